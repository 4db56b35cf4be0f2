"""Unix sockets in a folder that belongs to whoever they are for: made so that the folder's owner cannot misuse it.

A file there may at any moment be a link to another, so nothing is changed by its path: the socket is made beside the
folders of tenants, where only the daemon may write, and moved into place when it is as it shall be. Whatever lay there
is replaced in the same step; a link is replaced, never followed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

_MAKING = ".made.sock"  # short, so that its path is no longer than that of any tenant's socket


def set_aside(folder: Path, owner: int | None) -> None:
    """A tenant's folder that was another user's, of an earlier tenant of this name: it may hold whatever that user left
    in it, and is not for this one. Raises OSError."""
    wanted = os.getuid() if owner is None or os.getuid() != 0 else owner
    if os.path.lexists(folder) and os.lstat(folder).st_uid != wanted:
        folder.rename(folder.with_name(f".left-{folder.name}-{time.time_ns()}"))


def make_folder(folder: Path, owner: int | None) -> None:
    """A tenant's folder: for everybody who sees it, or for `owner` alone. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(opened, 0o755 if owner is None else 0o700)
        if owner is not None and os.getuid() == 0:
            os.fchown(opened, owner, -1)
    finally:
        os.close(opened)


def listen_at(path: Path, backlog: int) -> socket.socket:
    """A listener that does not block, at this path, whose folder is there. Who may reach it is decided by who sees that
    folder. Raises OSError."""
    making = path.parent.with_name(_MAKING)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            making.unlink()
        listening.bind(str(making))
        making.chmod(0o666)
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
