"""Folders and files that nobody else may have made, may write, or may read: the state directory and what lies in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from scheduler_backend.problem import Problem


def check_folder(path: Path) -> None:
    """Raise Problem where this folder is a link, another user's, or others may write it; OSError where it is none."""
    found = os.lstat(path)
    why = None
    if stat.S_ISLNK(found.st_mode):
        why = "is a link"
    elif found.st_uid != os.geteuid():
        why = f"is user {found.st_uid}'s"
    elif found.st_mode & 0o022:
        why = f"can be written by others (mode {stat.S_IMODE(found.st_mode):o}); chmod go-w it"
    if why is not None:
        mend = "" if ";" in why else "; name the folder itself" if "link" in why else "; let that user remove it"
        raise Problem(f"state directory {path} {why}{mend}, or choose another --state-dir")


def open_file(path: Path, flags: int) -> int:
    """Open a file of ours, which no link is, for nobody else to read. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600:  # of an earlier daemon
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
