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


def test_what_stands_in_a_files_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for name in ("spec.json", f".spec.json.{os.getpid()}"):  # the file, and its draft
        (tmp_path / name).symlink_to(victim)
    private.replace_file(tmp_path / "spec.json", b"new", 0o640)
    assert (victim.read_text(), (tmp_path / "spec.json").read_bytes()) == ("kept", b"new")
    assert stat.S_ISREG(os.lstat(tmp_path / "spec.json").st_mode)
    before = (tmp_path / "spec.json").stat()
    assert stat.S_IMODE(before.st_mode) == 0o640
    private.replace_file(tmp_path / "spec.json", b"new", 0o640)
    assert (tmp_path / "spec.json").stat().st_ino == before.st_ino, "containers have it mounted"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spec.json", "victim"]


def test_others_reach_what_is_in_a_state_directory_and_do_not_list_it(tmp_path: Path) -> None:
    (tmp_path / "s" / "tenants").mkdir(parents=True)  # as an earlier daemon left it
    (tmp_path / "s" / "tenants").chmod(0o755)
    StateDir(tmp_path / "s").close()
    StateDir(tmp_path / "fresh").close()
    for folder in ("s/tenants", "fresh", "fresh/tenants"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o711


def test_root_believes_a_daemon_of_the_folders_owner_where_the_folder_is_that_users(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes folders another user's")
    for name, owner, believed in (
        ("named", 65534, {0, 65534}),
        ("gemini-65534", 65534, {0, 65534}),
        ("gemini-0", 0, {0}),
        ("gemini-0", 65534, None),  # /tmp lets anybody make that
        ("gemini-1000", 65534, None),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        os.chown(tmp_path / name, owner, -1)
        if believed is None:
            with pytest.raises(Problem, match="is user 65534's; let that user remove it, or choose another"):
                private.check_daemon_folder(tmp_path / name)
        else:
            assert set(private.check_daemon_folder(tmp_path / name)) == believed
