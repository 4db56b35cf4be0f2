"""gemini demo end to end on a simulated card: its figures, its plot, its baseline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemini.cli.control import ask
from gemini.cli.starting import ensure_daemon
from tests.gemini.cli.conftest import Place, until


@pytest.mark.flaky(reruns=4)
def test_three_tenants_get_their_shares_and_a_plot(place: Place) -> None:
    plot, figures = place.dir / "demo.png", place.dir / "demo.json"
    done = place.gemini("demo", "--seconds", "3", "--json", str(figures), "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    assert "without Gemini" in done.stdout
    assert plot.read_bytes()[:4] == b"\x89PNG"
    answer = json.loads(figures.read_text())
    assert answer["device"]["simulated"] is True
    assert answer["utilization"] > 0.3
    tenants = {tenant["name"]: tenant for tenant in answer["tenants"]}
    for name, entitled in (("a", 0.5), ("b", 0.3), ("c", 0.2)):
        tenant = tenants[name]
        assert tenant["entitled"] == pytest.approx(entitled)
        # Wide bounds: this test is about the whole path, on a machine that may be busy; bench/fairness has the figures.
        assert tenant["busy"] / answer["utilization"] == pytest.approx(entitled, abs=0.08)
        assert tenant["achieved"] == pytest.approx(entitled, abs=0.1)
        assert tenant["launches"] > 100
        for key in ("error_pp_p99_1s", "overuse_ms_p99", "wait_ms_p99", "memory_bytes", "memory_limit_bytes"):
            assert key in tenant
    assert set(answer["handover_us"]) == {"p50", "p99"}
    bare = answer["baseline"]["shares"]
    assert all(share == pytest.approx(1 / 3, abs=0.1) for share in bare.values())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may begin to count processes anew")
def test_two_demos_in_containers_that_count_their_processes_anew_have_a_card_each() -> None:
    """Both were process 2 there, and the card's name was made of that: the second's was handed out already."""
    words = ["unshare", "--pid", "--fork", "--kill-child=SIGKILL", "sh", "-c", '"$@" 2>&1; exit $?', "sh"]
    words += [sys.executable, "-m", "gemini", "demo", "--sim", "--seconds", "1"]
    demos = [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=Place.environment(), stdin=subprocess.DEVNULL)
        for _ in range(2)
    ]
    said = [demo.communicate(timeout=120)[0] for demo in demos]
    assert [demo.returncode for demo in demos] == [0, 0], said


def loads_of(pid: int) -> set[int]:
    """The load generators that a process has started and that run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == "gemini-load" and int(rest.split()[1]) == pid:
            found.add(int(folder.name))
    return found


def test_a_demo_that_is_killed_leaves_neither_loads_nor_tenants(place: Place) -> None:
    ensure_daemon(place.node)
    demo = place.start("demo", "--seconds", "600", "--no-baseline", "--plot", "")
    until(lambda: len(loads_of(demo.pid)) == 3)
    loads = loads_of(demo.pid)
    demo.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in loads))
    until(lambda: not ask(place.node, "GET", "/state")["tenants"])
