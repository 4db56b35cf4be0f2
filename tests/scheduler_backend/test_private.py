"""The state directory and its files are ours alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from scheduler_backend import private
from scheduler_backend.persist import Saved, StateDir
from scheduler_backend.problem import Problem


def test_a_folder_that_another_user_made_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes a folder another user's")
    os.chown(tmp_path, 65534, -1)
    try:
        with pytest.raises(Problem, match="is user 65534's; let that user remove it, or choose another --state-dir"):
            StateDir(tmp_path)
    finally:
        os.chown(tmp_path, 0, -1)
    assert not list(tmp_path.iterdir()), "nothing was written there"


def test_a_folder_that_others_may_write_or_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(Problem, match=r"can be written by others \(mode 777\); chmod go-w it"):
        StateDir(tmp_path / "open")
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    with pytest.raises(Problem, match="is a link; name the folder itself"):
        StateDir(tmp_path / "link")


def test_files_follow_no_link_and_nobody_else_reads_them(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    folder = tmp_path / "s"
    place = StateDir(folder)
    (folder / "state.tmp").symlink_to(victim)
    assert not place.save(Saved())
    (folder / "state.tmp").unlink()
    assert place.save(Saved())
    place.close()
    assert victim.read_text() == "kept"
    for name in ("state.json", "daemon.lock"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    (folder / "daemon.log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        private.open_file(folder / "daemon.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
