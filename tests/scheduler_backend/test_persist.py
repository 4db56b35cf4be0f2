"""What outlives the daemon, and what keeps a second one out."""

from __future__ import annotations

import json
import os
import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scheduler_backend import persist
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.persist import Saved, StateDir
from scheduler_backend.problem import Problem


def test_what_is_saved_comes_back(tmp_path: Path):
    place = StateDir(tmp_path)
    assert place.load() == Saved()
    saved = Saved(5, 6, [TenantSpec("a", 1, 2, 3, True, (0, 1))], {"a": {7: 8}}, [("a", 1 << 63, 9, 10)])
    place.save(saved)
    assert place.load() == saved
    place.close()


def test_a_damaged_file_is_set_aside_and_epochs_do_not_repeat(tmp_path: Path):
    place = StateDir(tmp_path)
    for text in ("{", "[]", json.dumps({"format": 99}), json.dumps({"format": 1, "reserved_epoch": "x"})):
        (tmp_path / "state.json").write_text(text)
        assert place.load().reserved_epoch > 10**12
        assert (tmp_path / "state.bad").exists()
    place.close()


def test_a_second_daemon_is_told_who_runs(tmp_path: Path):
    place = StateDir(tmp_path)
    with pytest.raises(Problem, match=rf"pid {os.getpid()}\) runs on"):
        StateDir(tmp_path)
    place.close()
    StateDir(tmp_path).close()


def test_a_daemon_that_waits_takes_over_when_the_other_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(persist.log, "warning", lambda text, *args: said.put(text.split()[0]))
    first = StateDir(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(StateDir, tmp_path, lambda: said.put("asked"))
        assert said.get(timeout=60) == "asked"
        assert said.get(timeout=60) == "waiting"
        assert not second.done()
        first.close()
        assert said.get(timeout=60) == "took-over"
    with pytest.raises(Problem, match="runs on"):
        StateDir(tmp_path)
    second.result().close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="cannot be written"):
        StateDir(tmp_path / "file" / "below")


def test_a_full_disk_does_not_end_the_daemon(tmp_path: Path):
    place = StateDir(tmp_path)
    (tmp_path / "state.tmp").mkdir()  # what is written to cannot be
    place.save(Saved(1))
    place.close()
