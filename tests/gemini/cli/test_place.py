"""`gemini place` as a command: JSON and table, exit status, and one line for a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gemini.cli.main import main
from tests.gemini.placement.bed import ask, cards, held, whole

SCENARIO: dict[str, Any] = {
    "nodes": [cards("n1", 2)],
    "placed": [held("old", "n1", (0, 100, "16Gi"))],
    "asks": [ask("p", gpu_request="0.5"), whole("q"), ask("r", gpu_request="7")],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(SCENARIO))
    return path


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", str(file), "--json"]) == 0
    out = capsys.readouterr()
    placed, refused, bad = json.loads(out.out)["placements"]
    assert (placed["node"], placed["devices"][0]["minor"]) == ("n1", 1)
    assert refused["refused"]["n1"]["reason"] == "InsufficientCore"
    assert bad["refused"]["*"]["reason"] == "Invalid"
    assert out.err == ""


def test_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["POD", "NODE", "DEVICE", "CORE", "MEMORY"]
    assert lines[1].split() == ["p", "n1", "gpu/1", "50%", "8Gi", "GPU-1"]
    assert lines[2].split() == ["q", "-", "-", "-", "-", "refused"]
    assert any(line.split()[:2] == ["gpu/0", "core:"] for line in lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[]", "scenario: [] is not an object"),
        ('{"policies": ["fastest"]}', "'fastest' is no policy; use some of"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"nodes": ' + "9" * 5000 + "}", "thousands of digits"),
        ('{"nodes": [{"name": "n", "devices": [{"minor": NaN}]}]}', "minor: nan is not a whole number"),
    ],
)
def test_a_bad_scenario_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("latin-1"))
    assert main(["place", str(path)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.count("\n") == 1
    assert problem in out.err


def test_a_missing_file_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["place", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_unknown_keys_are_noted_beside_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**SCENARIO, "polices": ["spread"]}))
    assert main(["place", str(path), "--json"]) == 0
    assert "polices is no key of a scenario" in capsys.readouterr().err


def test_the_module_runs_by_itself_and_reads_standard_input() -> None:
    command = [sys.executable, "-m", "gemini.cli.place", "-", "--json"]
    done = subprocess.run(command, input=json.dumps(SCENARIO), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [p["pod"] for p in json.loads(done.stdout)["placements"]] == ["p", "q", "r"]
