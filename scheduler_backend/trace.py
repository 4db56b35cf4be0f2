"""The JSONL trace of every event and action, and its deterministic replay.

First line: a header with the policy's constants and the machine. Then one line an event: [now_ns, "Event", fields,
[["Action", fields], ...]]. What happened is kept in memory as it is, and made into lines and written in the pauses of
the loop, some at a time; a full disk costs lines, which are counted, and nothing else. A file that has grown to its
bound is moved to `.1`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import spec_of
from scheduler_backend.problem import Problem

FORMAT = 1
_MOST_PENDING = 50_000  # events kept while the disk does not take them
_MOST_LINE = 16 << 20  # characters of a line that are read: an event has some thousands; /dev/zero has no line's end
_AT_ONCE = 100  # events written by one flush: half a millisecond of the loop
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Recorder:
    """Writes the trace. `flush` is called by the shell in its pauses."""

    def __init__(self, path: Path | None, header: dict[str, Any], most_bytes: int = 256 << 20) -> None:
        self.path = path
        self.lost = 0  # events that no disk took
        self._header = header
        self._most_bytes = most_bytes
        self._pending: deque[tuple[int, ev.Event, list[ev.Action], str]] = deque()
        self._rest = b""  # lines of which the disk took a part
        self._fd = -1
        self._written = 0
        if path is not None:
            if path.exists():
                os.replace(path, path.with_name(path.name + ".1"))
            self._open(0)
            self.flush()  # the header: what reads the file finds a trace from the first moment

    def _open(self, part: int) -> None:
        assert self.path is not None
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError:
            self._fd = -1  # tried again with the next flush
            return
        self._written = 0
        self._rest = (_encode({**self._header, "format": FORMAT, "part": part}) + "\n").encode()
        self._header["part"] = part

    def record(self, now_ns: int, event: ev.Event, actions: list[ev.Action], refused: str = "") -> None:
        """Take one event and what came of it; `refused`: the machine took it for a fault of the client."""
        if self.path is None:
            return
        if len(self._pending) >= _MOST_PENDING:
            self.lost += 1
            return
        self._pending.append((now_ns, event, actions, refused))

    def flush(self) -> bool:
        """Write some of what is pending; whether there is more that could be written at once. A full disk keeps it."""
        if self.path is None or not (self._pending or self._rest):
            return False
        if self._fd < 0:
            self._open(int(self._header.get("part", 0)))
            if self._fd < 0:
                return False
        if not self._rest:
            lines = [_line(*self._pending.popleft()) for _ in range(min(_AT_ONCE, len(self._pending)))]
            self._rest = "".join(lines).encode()
        blob = self._rest
        try:
            done = os.write(self._fd, blob)
        except OSError:
            done = 0
        self._written += done
        self._rest = blob[done:]
        if self._rest:
            return False
        if self._written >= self._most_bytes:
            self.begin_anew()
        return bool(self._pending)

    def begin_anew(self) -> None:
        """The next part of the trace begins; the one before it is kept beside it, if nobody removed it."""
        if self.path is None:
            return
        if self._fd >= 0:
            os.close(self._fd)
        with contextlib.suppress(OSError):
            os.replace(self.path, self.path.with_name(self.path.name + ".1"))
        self._open(int(self._header.get("part", 0)) + 1)

    def close(self) -> None:
        """Write the rest and close."""
        while self.flush():
            pass
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _line(now_ns: int, event: ev.Event, actions: list[ev.Action], refused: str) -> str:
    done: list[Any] = [[type(a).__name__, a] for a in actions] if not refused else [["RemoteProtocolError", [refused]]]
    return _encode([now_ns, type(event).__name__, event, done]) + "\n"


def header(
    policy: Policy, gpus: list[dict[str, Any]], last_epoch: int, started_ns: int, incarnation: int
) -> dict[str, Any]:
    """What a replay needs to begin: the constants and the machine."""
    return {
        "policy": policy._asdict(),
        "gpus": gpus,
        "last_epoch": last_epoch,
        "started_ns": started_ns,
        "incarnation": incarnation,
    }


class Entry(NamedTuple):
    """One recorded event: its line in the file, and its parts."""

    line: int
    now_ns: int
    event: ev.Event
    actions: list[tuple[str, list[Any]]]


def _event(name: str, fields: list[Any]) -> ev.Event:
    kind = ev.EVENTS[name]
    if kind in (ev.TenantAdded, ev.TenantChanged):
        return kind(spec_of(fields[0]))
    return kind(*(_tuples(field) for field in fields))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def read(path: Path) -> tuple[dict[str, Any], Iterator[Entry]]:
    """The header and the entries of a trace; raises Problem for what is none. A last line cut off is left out."""
    try:
        file = path.open(encoding="utf-8", errors="replace")  # of another kind of file
    except OSError as error:
        raise Problem(f"trace {path}: {error.strerror}; name a trace.jsonl of a daemon's state directory") from None
    first = file.readline(_MOST_LINE)
    if not first:
        file.close()
        raise Problem(f"{path} is empty: the daemon has not been able to write to it yet; is its disk full?")
    try:
        head = json.loads(first)
        if head["format"] != FORMAT:
            raise ValueError(head["format"])
    except (ValueError, KeyError, TypeError):
        file.close()
        raise Problem(f"{path} is no trace of this version; name a trace.jsonl of a daemon's state directory") from None

    def entries() -> Iterator[Entry]:
        with file:
            lines = iter(lambda: file.readline(_MOST_LINE), "")
            for number, line in enumerate(lines, start=2):
                if len(line) < _MOST_LINE and not line.endswith("\n"):
                    return
                try:
                    now_ns, name, fields, actions = json.loads(line)
                    yield Entry(number, now_ns, _event(name, fields), [(a, f) for a, f in actions])
                except (ValueError, KeyError, TypeError):
                    raise Problem(f"{path}:{number} is no event of a trace; the file is damaged") from None

    return head, entries()


class Difference(NamedTuple):
    """Where a replay first parted from the record."""

    line: int
    now_ns: int
    event: ev.Event
    recorded: str
    replayed: str


def replay(path: Path, changes: dict[str, Any] | None = None) -> tuple[int, Difference | None]:
    """Run a trace through the machine; returns how many events agreed and the first action that differs, if any.

    `changes` replaces constants of the policy by name. Raises Problem for a trace that does not begin at the beginning.
    """
    head, entries = read(path)
    if head.get("part"):
        raise Problem(f"{path} is part {head['part']} of a longer trace; a replay needs the one that begins it")
    unknown = set(changes or ()) - set(Policy._fields)
    if unknown:
        raise Problem(f"policy constant {sorted(unknown)[0]!r} is unknown; there are {', '.join(Policy._fields)}")
    known = {name: value for name, value in head["policy"].items() if name in Policy._fields}
    node = Node(len(head["gpus"]), Policy(**{**known, **(changes or {})}), head["last_epoch"], head["started_ns"])
    count = 0
    for entry in entries:
        actions: list[tuple[str, list[Any]]]
        try:
            actions = [(type(a).__name__, json.loads(_encode(a))) for a in node.handle(entry.event, entry.now_ns)]
        except ev.RemoteProtocolError as error:
            actions = [("RemoteProtocolError", [str(error)])]
        if actions != entry.actions:
            width = max(len(actions), len(entry.actions))
            for index in range(width):
                recorded = _show(entry.actions, index)
                replayed = _show(actions, index)
                if recorded != replayed:
                    return count, Difference(entry.line, entry.now_ns, entry.event, recorded, replayed)
        count += 1
    return count, None


def _show(actions: list[tuple[str, list[Any]]], index: int) -> str:
    if index >= len(actions):
        return "nothing"
    name, fields = actions[index]
    kind = getattr(ev, name, None)
    if kind is None or not hasattr(kind, "_fields"):
        return f"{name}{tuple(fields)}"
    return f"{name}({', '.join(f'{key}={value}' for key, value in zip(kind._fields, fields, strict=False))})"
