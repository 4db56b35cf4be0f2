"""Two trees measured in turns: what counts as worse, and what the command says of a bad word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import in_turns
from bench.goals import claim
from bench.in_turns import BETTER, SAME, WORSE, Compared, compare, main
from tests.bench.running import ROOT


def answer(gap_us: float, work: float) -> dict[str, Any]:
    """What a bench prints, as far as it is compared."""
    return {"rows": [claim("handover.page", gap_us).as_json(), claim("conservation.page", work, "2 equal").as_json()]}


def verdicts(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[str]:
    return [each.verdict for each in compare(now, before)]


def test_a_figure_is_worse_in_its_goals_own_direction() -> None:
    low, high = [answer(70, 0.95), answer(75, 0.96)], [answer(80, 0.98), answer(82, 0.99)]
    assert verdicts(low, high) == [BETTER, WORSE]
    assert verdicts(high, low) == [WORSE, BETTER]


def test_runs_that_lie_between_each_other_are_no_different() -> None:
    assert verdicts([answer(70, 0.95), answer(81, 0.98)], [answer(80, 0.96), answer(82, 0.97)]) == [SAME, SAME]


def test_what_could_not_be_measured_is_worse_than_a_figure() -> None:
    assert Compared(6, "gap", "", False, [None, None], [400.0, 500.0]).verdict == WORSE
    assert Compared(9, "work", "", True, [0.9], [None]).verdict == BETTER
    assert "-, there 0.9 (0.9)" in Compared(9, "work", "", True, [None], [0.9]).line().replace("- (-)", "-")


def test_what_the_other_tree_does_not_measure_is_left_out() -> None:
    older = {"rows": answer(80, 0.98)["rows"][:1]}
    assert [each.what for each in compare([answer(70, 0.95)], [older])] == ["gap with the token page, p50"]


def test_trees_take_turns_in_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    def one(tree: Path, name: str, options: list[str]) -> dict[str, Any]:
        order.append(tree.name)
        return {"rows": [], "number": len(order)}

    monkeypatch.setattr(in_turns, "answer_in", one)
    here, there = in_turns.in_turns([Path("here"), Path("there")], "handover", 3, [])
    assert order == ["here", "there", "there", "here", "here", "there"]
    assert ([each["number"] for each in here], [each["number"] for each in there]) == ([1, 4, 5], [2, 3, 6])


@pytest.mark.parametrize(("name", "wanted"), [("handover", ["--runs", "1"]), ("recovery", [])])
def test_a_bench_is_told_to_run_once_where_it_runs_more_often(
    name: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """bench.recovery, which has no --runs, said that it does not know it."""
    words: list[list[str]] = []
    carried_out = subprocess.run

    def run(asked: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        if "--help" in asked:
            return carried_out(asked, **how)
        words.append(asked)
        return subprocess.CompletedProcess(asked, 0, stdout='{"rows": []}')

    monkeypatch.setattr(in_turns.subprocess, "run", run)
    in_turns.answer_in(ROOT, name, ["--seconds", "1"])
    assert [asked[3:] for asked in words] == [[*wanted, "--seconds", "1"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-commit", "handover"], "no-such-commit is no commit of this repository"),
        (["HEAD", "no-such-bench"], "no-such-bench is no bench; there are launch_overhead"),
        (["HEAD", "handover", "--runs", "0"], "--runs 0 measures nothing"),
    ],
)
def test_a_bad_word_is_named(words: list[str], says: str) -> None:
    done = subprocess.run([sys.executable, "-m", "bench.in_turns", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bench_without_figures_ends_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(in_turns, "checkout", lambda commit: ROOT)
    assert main(["HEAD", "handover", "--runs", "1", "--", "--no-such-option"]) == 2
    assert "bench.handover gave no figures" in capsys.readouterr().err
