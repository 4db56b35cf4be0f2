"""What outlives the daemon, in its state directory: the lock, and state.json (epochs, tenants, known clients, cards).

Epochs are reserved in blocks ahead, so that a number that was granted is never granted again, whenever the daemon died.
The file is replaced in one step. It may be missing, or damaged (then it is set aside with a word about it), or what a
full disk kept of one long ago. So a daemon never begins below the clock's microseconds either, which no earlier one can
have reached by counting grants (`epochs_after`); what is reserved counts where the clock was set back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler_backend import private
from scheduler_backend.core.tenant import TenantSpec, spec_of
from scheduler_backend.problem import Problem

log = logging.getLogger("gemini.persist")

EPOCH_BLOCK = 100_000  # in microseconds less than a daemon takes to start: what is reserved is not ahead of the clock
FORMAT = 1
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def same_file(descriptor: int, path: Path) -> bool:
    """Does this path name the open file still?"""
    try:
        found = os.stat(path)
    except OSError:
        return False
    known = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (known.st_dev, known.st_ino)


@dataclass
class Saved:
    """The content of state.json."""

    reserved_epoch: int = 0  # every epoch up to here may have been granted
    incarnation: int = 0
    tenants: list[TenantSpec] = field(default_factory=list)
    pids: dict[str, dict[int, int]] = field(default_factory=dict)  # tenant -> registrar's pid -> start time
    clients: list[tuple[str, int, int, int]] = field(default_factory=list)  # tenant, nonce, pid, start time
    owners: dict[str, int] = field(default_factory=dict)  # tenant -> the only user who gets in
    shares: list[str] = field(default_factory=list)  # tenants that were added as named shares
    cards: list[str] = field(default_factory=list)  # UUIDs of those that the daemon had in this boot of the machine


def epochs_after(saved: Saved) -> int:
    """The number up to which every epoch may have been granted by a daemon of before; the wall clock's microseconds at
    least."""
    return max(saved.reserved_epoch, time.time_ns() // 1000)


def _boot() -> str:
    """Which boot of the machine this is; "": it cannot be told."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def clients_text(clients: Sequence[tuple[str, int, int, int]]) -> str:
    """These (tenant, nonce, pid, start time) as they stand in state.json."""
    return json.dumps(clients)[1:-1]


def _make_tenants(path: Path) -> None:
    folder = path / "tenants"
    folder.mkdir(exist_ok=True)
    folder.chmod(private.FOLDER_MODE)  # an earlier daemon left it open


class StateDir:
    """The daemon's place. Raises Problem where it cannot be had. `wait`: called where a daemon has it,
    whose end is then waited for."""

    def __init__(self, path: Path, wait: Callable[[], None] | None = None) -> None:
        self.path = path
        self.cards: list[str] = []  # UUIDs of those that this daemon has
        self._file = path / "state.json"
        self._told_lost = False
        self._told_unwritable = False
        try:
            path.mkdir(parents=True, exist_ok=True, mode=private.FOLDER_MODE)
            private.check_folder(path)
            _make_tenants(path)
            self._lock = private.open_file(path / "daemon.lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise Problem(
                f"state directory {path} cannot be written: {error.strerror}; choose another --state-dir"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "?"
            if wait is None:
                os.close(self._lock)
                raise Problem(
                    f"a daemon (pid {pid}) runs on {path} already; use it, end it, or choose another --state-dir"
                ) from None
            wait()
            log.warning("waiting state_dir=%s pid=%s", path, pid)
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # nothing is there yet that a signal would have to tidy
            log.warning("took-over state_dir=%s pid=%s", path, pid)
        self._sign()

    def _sign(self) -> None:
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def keep(self) -> bool:
        """Take the directory anew where somebody removed it; whether that was so. Raises Problem where another daemon
        has taken it since: two of them would give the same cards out twice.
        """
        if same_file(self._lock, self.path / "daemon.lock"):
            return False
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=private.FOLDER_MODE)
            private.check_folder(self.path)
            _make_tenants(self.path)
            fresh = private.open_file(self.path / "daemon.lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if not self._told_lost:
                log.error("state-dir-lost path=%s error=%s", self.path, error)
            self._told_lost = True
            return False
        self._told_lost = False
        try:
            fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(fresh, 32, 0).decode(errors="replace").strip() or "?"
            os.close(fresh)
            raise Problem(
                f"state directory {self.path} was removed, and another daemon (pid {pid}) was started on it; "
                f"this one ends, so that no card is given out twice"
            ) from None
        os.close(self._lock)
        self._lock = fresh
        self._sign()
        log.warning("state-dir-made-anew path=%s", self.path)
        return True

    def load(self) -> Saved:
        """What the last daemon left; what is fresh otherwise."""
        try:
            raw = json.loads(self._file.read_text())
            if raw["format"] != FORMAT:
                raise ValueError(f"format {raw['format']}")
            return Saved(
                int(raw["reserved_epoch"]),
                int(raw["incarnation"]),
                [spec_of(spec) for spec in raw["tenants"]],
                {name: {int(pid): int(at) for pid, at in pids.items()} for name, pids in raw["pids"].items()},
                [(str(name), int(nonce), int(pid), int(at)) for name, nonce, pid, at in raw["clients"]],
                {str(name): int(user) for name, user in raw.get("owners", {}).items()},
                [str(name) for name in raw.get("shares", [])],
                [str(uuid) for uuid in raw.get("cards", [])] if raw.get("boot") == _boot() != "" else [],
            )
        except FileNotFoundError:
            return Saved()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("state-unreadable file=%s error=%s", self._file, error or "damaged")
            with contextlib.suppress(OSError):
                os.replace(self._file, self._file.with_suffix(".bad"))
            return Saved()

    def save(self, saved: Saved, clients: Sequence[str] = ()) -> bool:
        """Replace state.json; whether it was written. On a full disk say so, once, and go on. `clients`: texts of more
        clients (`clients_text`), which are thousands, and of which a save changes one."""
        raw: dict[str, Any] = {
            "format": FORMAT,
            "reserved_epoch": saved.reserved_epoch,
            "incarnation": saved.incarnation,
            "tenants": saved.tenants,
            "pids": saved.pids,
            "owners": saved.owners,
            "shares": saved.shares,
            "cards": self.cards,
            "boot": _boot(),
        }
        texts = [text for text in (clients_text(saved.clients), *clients) if text]
        temporary = self._file.with_suffix(".tmp")
        try:
            with os.fdopen(private.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
                file.write(f'{json.dumps(raw)[:-1]}, "clients": [{", ".join(texts)}]}}')
            os.replace(temporary, self._file)
        except OSError as error:
            if not self._told_unwritable:
                log.error("state-unwritable file=%s error=%s", self._file, error)
            self._told_unwritable = True
            return False
        if self._told_unwritable:
            log.warning("state-written-again file=%s", self._file)
        self._told_unwritable = False
        return True

    def close(self) -> None:
        """Let another daemon in."""
        os.close(self._lock)
