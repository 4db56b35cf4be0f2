"""Every metric of the table is exposed, with bounded labels."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from libhook import core
from libhook.core import lib
from scheduler_backend import bounds, metrics
from scheduler_backend.metrics import METRICS, Spaced
from tests.scheduler_backend.rig import Rig, wait_for


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def scrape(rig: Rig) -> dict[str, dict[tuple[str, ...], float]]:
    status, text = rig.http("GET", "/metrics")
    assert status == 200
    return {
        family.name: {
            tuple(sample.labels[name] for name in sorted(sample.labels, reverse=True)): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


def test_all_of_the_table_is_there_and_counts(rig: Rig) -> None:
    rig.tenant("a", 0.5, 0.6, gpus=[0])
    client = rig.client("a")
    client.ask()
    grant = client.grant()
    client.send(lib.WIRE_STATS, device=client.device(0), gate_waits=3, gate_wait_ns=10**9, valve_admissions=2)
    client.give_back(grant.epoch, busy_ns=5 * 10**8, launches=77)
    bad = rig.client("a")
    bad.socket.send(b"nonsense")
    bad.expect(lib.WIRE_ERROR)
    wait_for(lambda: rig.of("a")["launches"] == 77)
    found = scrape(rig)
    assert {row.name for row in METRICS} <= set(found)
    gpu = "GPU-00000000-1111-2222-3333-444444444444"
    assert found["gemini_request_ratio"]["a", gpu] == 0.5
    assert found["gemini_reported_busy_seconds"]["a", gpu] == 0.5
    assert found["gemini_grants"]["a", gpu] == 1
    assert found["gemini_gate_wait_seconds"]["a",] == 1.0
    assert found["gemini_valve_admissions"]["a",] == 2
    assert found["gemini_enforced"]["a",] == 1
    assert sum(found["gemini_protocol_errors"].values()) == 1
    rig.http("DELETE", "/tenants/a")
    assert not scrape(rig)["gemini_request_ratio"]


def test_where_limits_leave_the_card_idle_the_limit_is_owed(rig: Rig) -> None:
    def owed(name: str) -> float:
        return next(value for (tenant, _), value in scrape(rig)["gemini_owed_ratio"].items() if tenant == name)

    rig.tenant("a", 0.2, 0.3, gpus=[0])
    rig.tenant("b", 0.1, 0.2, gpus=[0])
    a, b = rig.client("a"), rig.client("b")
    assert (owed("a"), owed("b")) == (0.3, 0.2)
    rig.tenant("c", 0.5, gpus=[0])
    assert owed("a") == 0.3  # nothing of it runs yet
    c = rig.client("c")
    assert (owed("a"), owed("b"), owed("c")) == (0.2, 0.1, 0.5)
    for client, name in ((a, "a"), (b, "b"), (c, "c")):
        client.close()
        rig.http("DELETE", f"/tenants/{name}")


def test_time_waited_grows_while_the_token_does_not_come(tmp_path: Path) -> None:
    settings = tmp_path / "gemini.toml"
    # The holder keeps it, whatever it does, and nobody else comes in its place.
    settings.write_text("lease_margin_ms = 600000\noverrun_ms = 600000\n")
    with Rig("--config", str(settings)) as rig:
        for name in "ab":
            rig.tenant(name, 0.4, gpus=[0])
        holder, waiter = rig.client("a"), rig.client("b")
        holder.ask()
        holder.grant()
        waiter.ask()
        wait_for(lambda: rig.of("b")["waiting"])

        def waited() -> float:
            return next(value for (name, _), value in scrape(rig)["gemini_wait_seconds_sum"].items() if name == "b")

        assert scrape(rig)["gemini_missed_ratio"].keys() == scrape(rig)["gemini_held_seconds"].keys()
        wait_for(lambda: rig.of("b")["missed"] > 0.35)  # of its request of 0.4, in the window that follows
        assert rig.of("a")["missed"] == 0
        before = waited()
        wait_for(lambda: waited() > before + 0.05)
        assert rig.of("b")["grants"] == 0


def test_who_reads_without_end_has_a_small_part_of_the_loops_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of many tenants on many cards takes tens of milliseconds."""
    began: list[float] = []

    def render(_server: object) -> Iterator[bytes]:
        began.append(time.monotonic())
        time.sleep(0.02)
        yield b"text"

    async def read() -> None:
        spaced = Spaced(cast(Any, None), lambda: asyncio.sleep(0))
        for _ in range(3):
            assert await spaced.text() == b"text"

    monkeypatch.setattr(metrics, "render", render)
    asyncio.run(read())
    assert all(later - sooner >= 0.02 * bounds.METRICS_TIMES for sooner, later in itertools.pairwise(began))


def test_names_follow_prometheus_conventions() -> None:
    for row in METRICS:
        assert row.name.startswith("gemini_")
        assert not row.name.endswith("_total")  # added for counters
        assert row.text.endswith(".")
    assert core.lib.WIRE_VERSION == 1
