"""A real Prometheus over a real daemon and tenants that work: the node's part of the rules and of the boards.

First come is first served by this daemon, whoever was promised what: the largest tenant misses its share on purpose.
Another tenant's program comes without the library. The end-to-end test does the same with all parts of a cluster.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.bed import LOAD, Bed
from gemini.observability import boards, rules
from tests.e2e.build import Builder, CannotBuild
from tests.e2e.dcgm import dcgm_exporter
from tests.e2e.pictures import chosen
from tests.e2e.process import free_port, until
from tests.e2e.prometheus import prometheus

pytestmark = pytest.mark.timeout(900)
SCRAPE = 0.5
PATIENCE = 300.0
CLUSTERS = re.compile(r"gemini_(extender|plugin|webhook)_")  # what is there in a cluster only


def test_a_share_missed_on_purpose_and_a_tenant_without_the_library_fire_their_alerts(tmp_path: Path) -> None:
    try:
        program = Builder().prometheus(fetch=False) / "prometheus"
    except CannotBuild as why:
        pytest.skip(str(why))
    port = free_port()
    with Bed(config=f'ordering = "fifo"\nmetrics_port = {port}\n') as bed, contextlib.ExitStack() as stack:
        for name, request in (("train", 0.6), ("serve", 0.1), ("tune", 0.1)):
            bed.tenant(name, request, 1.0, memory=8 << 30)
            bed.load(name, "--kernel-us", 1000, "--seconds", 0)
        bed.tenant("loose", 0.1, 0.2)
        bed.until_busy("train", "serve", "tune", seconds=60)
        environment = bed.environment() | {"GEMINI_SOCKET": bed.sockets["loose"]}  # and no LD_PRELOAD
        outside = subprocess.Popen(
            [LOAD, "--seconds", "0", "--burst", "5", "--gap-us", "20000"], env=environment, stdout=subprocess.DEVNULL
        )
        uuids = [card["uuid"] for card in bed.state()["devices"]]
        targets = {
            "gemini-daemon": f"http://127.0.0.1:{port}",
            "dcgm-exporter": stack.enter_context(dcgm_exporter(uuids)),
        }
        try:
            with prometheus(tmp_path / "data", tmp_path, program, targets, SCRAPE) as watching:

                def fired() -> dict[str, list[dict[str, Any]]] | None:
                    found = watching.firing()
                    tenants = {name: {alert["labels"].get("tenant") for alert in found[name]} for name in found}
                    both = tenants.get("GeminiShareMissed") == {"train"} and tenants.get("GeminiOutside") == {"loose"}
                    return found if both else None

                found = until(fired, "GeminiShareMissed of train and GeminiOutside of loose", PATIENCE)
                (missed,) = found["GeminiShareMissed"]
                assert re.fullmatch(
                    r"train gets [\d.]+% of what its share gives it on GPU-[\w-]+", missed["annotations"]["summary"]
                )
                assert {rule["health"] for rule in watching.rules()} == {"ok"}
                asked = [record.name for record in rules.RECORDS]
                asked += [
                    rules.spelt(alert.watched, SCRAPE) for alert in rules.ALERTS if "absent(" not in alert.watched
                ]
                for query in (query for board in boards.BOARDS for panel in board.panels for query in panel.queries):
                    asked.append(chosen(query.expr, SCRAPE))
                for query in (one for one in asked if not CLUSTERS.search(one)):
                    until(lambda query=query: bool(watching.query(query)), f"an answer to {query}", 60)
        finally:
            outside.kill()
            outside.wait()
