"""Unix sockets in folders that the daemon alone may write, for whoever they are for.

A socket is made beside the folders of tenants, and moved into place when it is as it shall be. Whatever lay there is
replaced in the same step; a link is replaced, never followed. A folder is never a user's own: what he put there would
fill the file system of the daemon's state, which is the machine's memory as a rule. The socket in it is his.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from pathlib import Path

from scheduler_backend import rights

_MAKING = ".made.sock"  # short, so that its path is no longer than that of any tenant's socket


def set_aside(folder: Path) -> None:
    """A tenant's folder that is a user's, of an earlier daemon: it may hold whatever that user left in it. Raises
    OSError."""
    if os.path.lexists(folder) and os.lstat(folder).st_uid != os.getuid():
        folder.rename(folder.with_name(f".left-{folder.name}-{time.time_ns()}"))


def make_folder(folder: Path, owner: int | None) -> None:
    """A tenant's folder: for everybody who sees it, or where that is for `owner` alone, for who knows what is in it.
    Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(opened, 0o755 if owner is None else 0o711)
    finally:
        os.close(opened)


def is_socket(path: Path) -> bool:
    """Is a socket there itself? A link may lead to another's, or to what cannot be looked at."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def listen_at(path: Path, backlog: int, owner: int | None) -> socket.socket:
    """A listener that does not block, at this path, whose folder is there. It may be reached by who sees that folder,
    or by `owner` and root alone. Raises OSError."""
    making = path.parent.with_name(_MAKING)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    rights.refuse(listening)
    try:
        with contextlib.suppress(FileNotFoundError):
            making.unlink()
        listening.bind(str(making))
        making.chmod(0o666 if owner is None else 0o600)
        if owner is not None and os.getuid() == 0:
            os.chown(making, owner, -1)
        listening.listen(backlog)
        opened = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.rename(making, path.name, dst_dir_fd=opened)
        finally:
            os.close(opened)
    except OSError:
        listening.close()
        with contextlib.suppress(OSError):
            making.unlink()
        raise
    return listening
