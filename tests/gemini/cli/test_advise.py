"""gemini advise: a trace in, lines with reasons out; mistakes are one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemini.cli.main import main
from scheduler_backend import trace
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from tests.gemini.test_advise import played


def recorded(path: Path, seconds: int, parts: int = 1) -> Path:
    recorder = trace.Recorder(path, trace.header(Policy(), [{}], 0, 0, 1))
    node = recorder.node = Node(1, Policy(), 0, 0)
    entries = played(seconds, work_ms=20, rest_ms=80, memory=100 << 20)
    for number, entry in enumerate(entries):
        recorder.record(entry.now_ns, entry.event, node.handle(entry.event, entry.now_ns))
        if number * parts // len(entries) < (number + 1) * parts // len(entries) < parts:
            recorder.begin_anew()
            while recorder.flush():
                pass
    recorder.close()
    return path


def test_advice_is_a_line_for_each_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "trace.jsonl", 8)
    assert main(["advise", "a", "--trace", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["--request", "--limit", "--memory"]
    assert main(["advise", "a", "--json", "--state-dir", str(tmp_path)]) == 0
    assert {one["option"] for one in json.loads(capsys.readouterr().out)} == {"--request", "--limit", "--memory"}


@pytest.mark.parametrize(("name", "seconds", "text"), [("b", 8, "knows no tenant b"), ("a", 2, "let it work")])
def test_what_cannot_be_advised_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, seconds: int, text: str
) -> None:
    path = recorded(tmp_path / "trace.jsonl", seconds)
    assert main(["advise", name, "--trace", str(path)]) == 1
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1


def test_of_a_long_trace_the_last_two_parts_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "trace.jsonl", 16, parts=4)
    assert main(["advise", "a", "--trace", str(path)]) == 0
    joined = capsys.readouterr().out
    assert [line.split()[0] for line in joined.splitlines()] == ["--request", "--limit", "--memory"]
    assert "in 95 % of 8 s" in joined or "in 95 % of 9 s" in joined
    path.with_name("trace.jsonl.1").unlink()
    assert main(["advise", "a", "--trace", str(path)]) == 1
    assert "let it work" in capsys.readouterr().err


def test_a_trace_that_lacks_events_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "trace.jsonl", 6)
    lines = path.read_text().splitlines(keepends=True)
    removed = '[7000000000,"TenantRemoved",["z"],[]]\n'
    path.write_text("".join([*lines, removed]))
    assert main(["advise", "a", "--trace", str(path)]) == 1
    error = capsys.readouterr().err
    assert "does not follow from those before it" in error
    assert len(error.splitlines()) == 1
