"""What outlives the daemon, and what keeps a second one out."""

from __future__ import annotations

import json
import os
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scheduler_backend import persist
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.persist import Saved, StateDir, epochs_after
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
        assert epochs_after(place.load()) > 10**12
        assert (tmp_path / "state.bad").exists()
    place.close()


def test_epochs_go_on_from_the_clock_or_from_what_is_reserved(tmp_path: Path):
    place = StateDir(tmp_path)
    begun_ns = time.time_ns()
    assert begun_ns // 1000 <= epochs_after(place.load()) <= time.time_ns() // 1000  # nothing is there
    place.save(Saved(1 << 60))  # the clock was set back since
    assert epochs_after(place.load()) == 1 << 60
    place.save(Saved(5))  # what came later could not be written
    assert epochs_after(place.load()) > 10**12
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
    assert not place.save(Saved(1))
    assert place.load() == Saved()
    (tmp_path / "state.tmp").rmdir()
    assert place.save(Saved(1))
    assert place.load() == Saved(1)
    place.close()


def test_a_disk_that_stays_full_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    place = StateDir(tmp_path)
    for _ in range(2):
        caplog.clear()
        (tmp_path / "state.tmp").mkdir()
        assert not place.save(Saved(1))
        assert not place.save(Saved(1))
        (tmp_path / "state.tmp").rmdir()
        assert place.save(Saved(1))
        assert place.save(Saved(1))
        assert [one.getMessage().split()[0] for one in caplog.records] == ["state-unwritable", "state-written-again"]
    place.close()
