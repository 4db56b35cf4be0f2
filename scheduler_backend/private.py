"""Folders and files that nobody else may have made, may write, or may read: the state directory and what lies in it."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path

from scheduler_backend.problem import Problem

FOLDER_MODE = 0o711  # what is in them is reached by who knows its name, as containers do; tenants' names are not listed


def own_folder(uid: int) -> Path:
    """Where a user's daemon has its state when nothing better is known."""
    return Path(f"/tmp/gemini-{uid}")


def check_folder(path: Path, *others: int) -> int:
    """Its owner: this user or one of `others`. Raise Problem where this folder is a link, someone else's, or others may
    write it; OSError where it is none."""
    found = os.lstat(path)
    why = None
    if stat.S_ISLNK(found.st_mode):
        why = "is a link; name the folder itself"
    elif found.st_uid not in (os.geteuid(), *others):
        why = f"is user {found.st_uid}'s; let that user remove it"
    elif found.st_mode & 0o022:
        why = f"can be written by others (mode {stat.S_IMODE(found.st_mode):o}); chmod go-w it"
    if why is not None:
        raise Problem(f"state directory {path} {why}, or choose another --state-dir")
    return found.st_uid


def check_daemon_folder(path: Path) -> tuple[int, ...]:
    """Users whose daemon is believed in this folder: root, this user, and for root who names another's folder that one.
    Raise Problem where the folder may not be used, OSError where it is none."""
    mine = os.geteuid()
    others = [0]
    if mine == 0:
        owner = os.lstat(path).st_uid
        if not _is_for_someone_else(path, owner):
            others.append(owner)
    return mine, 0, check_folder(path, *others)


def _is_for_someone_else(path: Path, owner: int) -> bool:
    """Is it called as the folder of a user who does not own it? In /tmp anybody makes that."""
    prefix, _, uid = path.name.rpartition("-")
    return prefix == own_folder(0).name.rpartition("-")[0] and uid.isdecimal() and path.name != own_folder(owner).name


def check_answering(connected: socket.socket, folder: Path, believed: tuple[int, ...]) -> None:
    """Raise Problem where another user than these listens at the other end."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid not in believed:
        raise Problem(
            f"process {pid} of user {uid} answers in {folder}, which is neither root nor its owner; "
            "end that process, or choose another --state-dir"
        )


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


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Put a whole new file there, whatever stood there before: who reads sees the old or the new one, and neither the
    name nor its draft is followed to elsewhere. One of this content and mode stays. Raises OSError."""
    with contextlib.suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as there:
        if stat.S_IMODE(os.fstat(there.fileno()).st_mode) == mode and there.read(len(content) + 1) == content:
            return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)  # of a process of this number that was killed
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    draft.rename(path)
