"""Every bench runs through and prints its JSON, at a size that proves nothing about the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench_main
from bench import goals
from scheduler_backend.simulation.programs import Program, spec
from tests.bench.running import ROOT, answer_of
from tests.scheduler_backend.simulation.recording import run

SMALL = {
    "launch_overhead": ["--runs=1", "--batches=20"],
    "handover": ["--runs=1", "--seconds=0.5"],
    "overuse": ["--runs=1", "--seconds=0.5"],
    "conservation": ["--runs=1", "--seconds=0.5", "--case=2 equal"],
    "early_return": ["--runs=1", "--seconds=1", "--case=1 ms bursts, 0.4 ms gaps, then away"],
    "latency_class": ["--runs=1", "--seconds=1", "--case=6 ms, away 14 ms"],
    "recovery": ["--kills=1", "--freezes=1", "--restarts=0"],
    "release": ["--runs=1", "--rounds=20"],
    "startup": ["--runs=1", "--processes=40"],
    "tenants": ["--runs=1", "--seconds=0.5", "--tenants=4"],
    "limit": ["--runs=1", "--seconds=1.5", "--case=alone, limit 0.5"],
    "convergence": ["--runs=1", "--case=leave"],
    "closed_loop": ["--runs=1", "--seconds=1", "--mix=10/10 at 0.5 beside 10/10 at 0.5", "--arm=gemini"],
    "hostbound": ["--runs=1", "--seconds=1", "--case=20/40/20 twice"],
    "streams": ["--runs=1", "--seconds=1", "--case=8 streams that overlap"],
    "lengths": ["--runs=1", "--seconds=1", "--case=20 us, then 5 ms", "--case=40 new functions"],
    "memory_limit": ["--runs=1"],
    "extender": ["--part=calls", "--runs=1", "--nodes=60", "--calls=5", "--pods=40"],
    "best_effort": ["--runs=1", "--seconds=1"],
    "gangs": ["--handovers=600"],
    "scale": ["--tenants=6", "--hours=0.0006", "--gpus=2", "--trouble=1"],
    "replicas": ["--operations=300"],
    "fairness": ["--runs=1", "--seconds=1.5", "--case=limits that bind", "--case=1, 2 and 4 processes", "--arm=gemini"],
}


@pytest.mark.flaky(reruns=2)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_bench_runs_through(name: str) -> None:
    answer, said = answer_of(f"bench.{name}", *SMALL[name])
    assert {"bench", "command", "commit", "machine", "passed"} <= set(answer), said
    assert answer["command"].startswith(f"python -m bench.{name} ")
    assert answer["passed"]
    for row in answer["rows"]:
        assert row["row"] in goals.ROWS
        assert row["what"] in {goal.what for goal in goals.GOALS.values()}


def test_the_extender_fills_no_card_beyond_what_is_held_of_it_already() -> None:
    """The bench's running pods asked for nothing, so their records did not count: it timed an empty cluster."""
    options = ["--part=calls", "--runs=1", "--nodes=60", "--calls=1", "--pods=400"]
    answer, said = answer_of("bench.extender", *options)
    overcommitted = goals.GOALS["extender.overcommit"].what
    assert [row["measured"] for row in answer["rows"] if row["what"] == overcommitted] == [0], said


def test_the_scheduler_on_paper_plays_what_a_daemon_recorded(tmp_path: Path) -> None:
    run(tmp_path / "trace.jsonl", [Program(spec("a", 0.6)), Program(spec("b", 0.3), "closed_loop")], 1, 3)
    answer, said = answer_of("bench.scale", f"--trace={tmp_path}/trace.jsonl", "--nodes=2")
    assert answer["eevdf"]["tenants"] == 4, said
    for share in answer["shares_of_the_last_node"].values():
        assert share["simulated"] == pytest.approx(share["recorded"], abs=0.05)
    words = [sys.executable, "-m", "bench.scale", "--trace=none.jsonl"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "none.jsonl: No such file" in done.stderr


def test_an_unknown_bench_is_refused_in_one_line() -> None:
    words = [sys.executable, "-m", "bench", "nonsense"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("value", [["--runs", "7"], ["--runs=7"]])
def test_options_with_values_go_to_each_named_bench(value: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`fairness --runs 1` said that 1 is no bench."""
    started: list[tuple[str, list[str]]] = []

    def run(name: str, options: list[str], profile: str) -> tuple[int, None]:
        assert not profile
        started.append((name, options))
        return 0, None

    monkeypatch.setattr(bench_main, "run", run)
    monkeypatch.setattr(sys, "argv", ["bench", "fairness", "handover", *value])
    assert bench_main.main() == 0
    assert started == [("fairness", value), ("handover", value)]


def test_a_bench_named_behind_options_is_refused_for_it_may_be_meant_as_their_value() -> None:
    words = [sys.executable, "-m", "bench", "--short", "fairness"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "name benches before options" in done.stderr


def test_the_table_is_made_of_what_was_kept_without_running_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = goals.claim("closed.due", 0.8, "1/0.1", "it pauses", 0.9).as_json()
    answer = {"commit": "abc1234", "rows": [row], "passed": {"row 17: due": False, "nobody dies": False}}
    (tmp_path / "closed_loop.json").write_text(json.dumps(answer))
    monkeypatch.setattr(bench_main, "OUT", tmp_path)
    monkeypatch.setattr(bench_main, "run", lambda name, options, profile: pytest.fail(f"{name} was run"))
    monkeypatch.setattr(sys, "argv", ["bench", "--table"])
    assert bench_main.main() == 1
    said = capsys.readouterr().out
    assert "measured before, at abc1234" in said
    assert "row 17 1/0.1: it pauses" in said
    assert "did not hold: closed_loop: nobody dies" in said


def test_the_figures_of_an_unkind_card_stand_beside_those_of_the_kind_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, figure in (("closed_loop.json", 0.97), ("closed_loop.h200.json", 0.91)):
        row = goals.claim("closed.due", figure, "1/0.1").as_json()
        (tmp_path / file).write_text(json.dumps({"commit": "abc1234", "rows": [row], "passed": {}}))
    monkeypatch.setattr(bench_main, "OUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", "--table", "--profile=h200"])
    assert bench_main.main() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("17 ")]
    assert [line[-2] for line in lines] == ["0.97", "0.91"]
    assert ["(h200)" in line for line in lines] == [False, True]
