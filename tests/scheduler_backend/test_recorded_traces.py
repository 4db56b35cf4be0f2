"""The token machine decides what it decided when the traces were recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from scheduler_backend import trace
from tests.scheduler_backend.recorded_traces import FOLDER, SCENES


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()))
    return path


@pytest.mark.parametrize("name", SCENES)
def test_a_recorded_trace_replays_to_the_same_actions(name: str, tmp_path: Path) -> None:
    count, difference = trace.replay(unpacked(name, tmp_path))
    assert difference is None, difference
    assert count > 500


def test_what_is_recorded_is_what_can_be_recorded_anew() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.jsonl.gz" for name in SCENES}


def test_a_trace_with_another_action_is_noticed(tmp_path: Path) -> None:
    path = unpacked("demo", tmp_path)
    lines = path.read_text().splitlines()
    now_ns, event, fields, actions = json.loads(lines[200])
    lines[200] = json.dumps([now_ns, event, fields, [*actions, ["WakeAt", [1]]]])
    path.write_text("\n".join(lines) + "\n")
    count, difference = trace.replay(path)
    assert (count, difference is not None and difference.line) == (199, 201)
