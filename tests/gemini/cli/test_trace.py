"""gemini trace end to end: what a demo recorded exports, replays, and differs where a constant was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemini.cli.control import answers, ask
from gemini.cli.main import main
from gemini.cli.problem import Problem
from gemini.cli.trace import constant
from scheduler_backend import trace
from tests.gemini import chrome_schema
from tests.gemini.cli.conftest import Place, until
from tests.scheduler_backend.test_trace import busy_world


def test_the_trace_of_a_demo_exports_and_replays(place: Place) -> None:
    assert place.gemini("demo", "--seconds", "1", "--no-baseline", "--plot", "").returncode == 0
    recorded = place.node.state_dir / "trace.jsonl"
    out = place.dir / "chrome.json"
    done = place.gemini("trace", "export", str(recorded), "--out", str(out))
    assert done.returncode == 0, done.stderr
    document = json.loads(out.read_text())
    assert chrome_schema.check(document) > 50
    assert {event["name"] for event in document["traceEvents"]} >= {"token", "waiting", "thread_name"}
    picture = place.dir / "line.png"
    plotted = place.gemini("trace", "plot", str(recorded), "--out", str(picture), "--seconds", "0.4")
    assert (plotted.returncode, plotted.stdout) == (0, f"{picture}: 0.400 s of 3 tenants\n"), plotted.stderr
    assert picture.read_bytes()[:4] == b"\x89PNG"
    for words, said in ((["--from", "999"], "begin within them"), (["--seconds", "0"], "--seconds 0")):
        refused = place.gemini("trace", "plot", str(recorded), "--out", str(picture), *words)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        assert said in refused.stderr
    same = place.gemini("trace", "replay", str(recorded))
    assert same.returncode == 0, same.stdout
    changed = place.gemini("trace", "replay", str(recorded), "--set", "quota_ms=7")
    assert changed.returncode == 1
    assert "recorded" in changed.stdout
    unknown = place.gemini("trace", "replay", str(recorded), "--set", "nonsense=7")
    assert unknown.returncode == 2
    assert len(unknown.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("quota_ms=8", ("quota_ns", 8_000_000)),
        ("quota_ns=8000000", ("quota_ns", 8_000_000)),
        ("ordering=fifo", ("ordering", "fifo")),
        ("preemption=false", ("preemption", False)),
        ("ahead=2", ("ahead", 2)),
    ],
)
def test_a_constant_is_read_as_the_daemon_reads_it(text: str, read: tuple[str, object]) -> None:
    assert constant(text) == read


@pytest.mark.parametrize("value", ["quota_ms=inf", "quota_ms=nan", "quota_ms=-5", "quota_ns=0", "quota_ms=",
                                   "ordering=zzz", "ordering=1", "preemption=2", "ahead=0.5", "bogus=1"])  # fmt: skip
def test_a_constant_that_is_none_is_refused(value: str) -> None:
    name = value.partition("=")[0].removesuffix("_ns").removesuffix("_ms")
    with pytest.raises(Problem, match=f"--set {name}.* (give|there are|neither)") as caught:
        constant(value)
    assert caught.value.status == 2


def test_a_trace_without_grants_is_no_picture(place: Place) -> None:
    assert place.gemini("run", "--", "true").returncode == 0
    ask(place.node, "POST", "/shutdown")
    until(lambda: not answers(place.node))
    path = place.node.state_dir / "trace.jsonl"
    done = place.gemini("trace", "plot", str(path), "--out", str(place.dir / "x.png"))
    assert (done.returncode, done.stderr) == (
        1,
        f"gemini: {path} tells of no grants; record a run in which somebody used the card\n",
    )


def test_bad_traces_are_one_line(place: Place, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no trace\n")
    for words in (["replay", str(tmp_path / "x")], ["replay", str(tmp_path / "none")], ["export", str(tmp_path / "x")],
                  ["plot", str(tmp_path / "x"), "--out", str(tmp_path / "y.png")]):  # fmt: skip
        done = place.gemini("trace", *words)
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1


def test_a_later_part_replays_and_tells_who_held_where_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.jsonl"
    busy_world(path, 1, 60_000)
    head = json.loads(path.open().readline())
    assert head["part"] > 0
    assert main(["trace", "replay", str(path)]) == 0
    assert "every action the same" in capsys.readouterr().out
    assert main(["trace", "replay", str(path), "--set", "quota_ms=7"]) == 1
    assert "recorded" in capsys.readouterr().out
    assert main(["trace", "export", str(path), "--out", str(tmp_path / "chrome.json")]) == 0
    document = json.loads((tmp_path / "chrome.json").read_text())
    assert chrome_schema.check(document) > 50
    node = trace.node_of(path, head)
    assert node.machines[0].holder is not None
    granted_us = (node.machines[0].grant.granted_ns - head["started_ns"]) / 1e3
    begins = [event["ts"] for event in document["traceEvents"] if event["name"] == "token" and event["pid"] == 1]
    assert min(begins) == granted_us
    assert main(["trace", "plot", str(path), "--out", str(tmp_path / "x.png"), "--seconds", "0.1"]) == 0
    del head["state"]["things"][0]
    path.write_text(json.dumps(head) + "\n")
    capsys.readouterr()
    for words in (["replay", str(path)], ["export", str(path), "--out", str(tmp_path / "y")]):
        assert main(["trace", *words]) == 1
        assert "begins with a state that cannot be read" in capsys.readouterr().err
