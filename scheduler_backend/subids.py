"""Users within users: the numbers that /etc/subuid lends to a user are his, whatever programs he runs under them.

With them one user may pass for 65,536 others (newuidmap, as rootless containers do), each with bounds and allowances of
its own. What root or the daemon's own user lends out (to containers of theirs, say) is nobody's of these.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

_FILE = Path("/etc/subuid")
_MOST_BYTES = 1 << 20

Range = tuple[int, int, int]  # the first number, that behind the last, whose they are


class SubIds:
    """The file as it is now."""

    def __init__(self, file: Path = _FILE) -> None:
        self.file = file
        self._stamp: tuple[int, int, int] | None = None
        self._ranges: list[Range] = []

    def person(self, uid: int) -> int:
        """Who acts under this number: whose it is lent, or itself."""
        try:
            found = self.file.stat()
        except OSError:
            return uid
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if stamp != self._stamp:
            self._stamp, self._ranges = stamp, self._read()
        return next((owner for first, end, owner in self._ranges if first <= uid < end), uid)

    def _read(self) -> list[Range]:
        try:
            with self.file.open("rb") as file:
                lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return []
        return [one for one in map(_range, lines) if one is not None]


def _range(line: str) -> Range | None:
    """NAME:FIRST:COUNT, or a number for the name; None: it says nothing of a user."""
    fields = line.split(":")
    if len(fields) != 3 or not (fields[1].isdecimal() and fields[2].isdecimal()):
        return None
    try:
        owner = int(fields[0]) if fields[0].isdecimal() else pwd.getpwnam(fields[0]).pw_uid
    except KeyError:
        return None
    if owner in (0, os.geteuid()):
        return None
    return int(fields[1]), int(fields[1]) + int(fields[2]), owner


lent = SubIds()
person = lent.person
