"""gemini demo end to end on a simulated card: its figures, its plot, its baseline, its trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gemini import chrome_schema
from tests.gemini.cli.conftest import Place


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


def test_the_trace_of_a_demo_exports_and_replays(place: Place) -> None:
    assert place.gemini("demo", "--seconds", "1", "--no-baseline", "--plot", "").returncode == 0
    recorded = place.node.state_dir / "trace.jsonl"
    out = place.dir / "chrome.json"
    done = place.gemini("trace", "export", str(recorded), "--out", str(out))
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    assert chrome_schema.check(document) > 50
    assert {event["name"] for event in document["traceEvents"]} >= {"token", "waiting", "thread_name"}
    same = place.gemini("trace", "replay", str(recorded))
    assert same.returncode == 0, same.stdout
    changed = place.gemini("trace", "replay", str(recorded), "--set", "quota_ms=7")
    assert changed.returncode == 1
    assert "recorded" in changed.stdout
    unknown = place.gemini("trace", "replay", str(recorded), "--set", "nonsense=7")
    assert unknown.returncode == 1
    assert len(unknown.stderr.splitlines()) == 1


def test_bad_traces_are_one_line(place: Place, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no trace\n")
    for words in (["replay", str(tmp_path / "x")], ["replay", str(tmp_path / "none")], ["export", str(tmp_path / "x")]):
        done = place.gemini("trace", *words)
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1


def test_check_says_what_is_there(place: Place) -> None:
    done = place.gemini("check")
    assert done.returncode == 0, done.stdout
    assert "simulated" in done.stdout
    assert all(line.split()[0] in ("ok", "warn") for line in done.stdout.splitlines())


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_check_without_a_driver_says_what_to_do() -> None:
    done = subprocess.run([sys.executable, "-m", "gemini", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--sim" in done.stdout
