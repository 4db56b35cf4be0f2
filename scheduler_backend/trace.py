"""The JSONL trace of every event and action, and its deterministic replay.

First line: a header with the policy's constants and the machine. Then one line an event: [now_ns, "Event", fields,
[["Action", fields], ...]]. What happened is kept in memory as it is, and made into lines and written in the pauses of
the loop, some at a time; a full disk costs events, which are counted, and nothing else.

A file that has grown to its bound is moved to `.1`, and the next part begins: with the node's state in its header
(core/snapshot.py), so that each part replays by itself. State and events must meet: the state is taken between two
events, what is pending then still goes to the part before, what comes later to the next one. Where events were lost,
the next part begins as soon as the disk has taken all of before, so no part has a gap.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from scheduler_backend import private
from scheduler_backend.core import events as ev
from scheduler_backend.core import snapshot
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
    """Writes the trace. `flush` is called by the shell in its pauses, between two events of `node`."""

    def __init__(self, path: Path | None, header: dict[str, Any], most_bytes: int = 256 << 20) -> None:
        self.path = path
        self.node: Node | None = None  # whose events these are; set by who has it
        self.lost = 0  # events that no disk took
        self._header = header
        self._most_bytes = most_bytes
        self._pending: deque[tuple[int, ev.Event, list[ev.Action], str]] = deque()
        self._torn = False  # the event after the last pending one was lost, and so are those that follow
        self._rest = b""  # lines of which the disk took a part
        self._fd = -1
        self._written = 0  # of the events of this part; below 0: its header is not out yet
        self._part = 0
        self._head: dict[str, Any] = {}  # of the part that is to begin
        self._before_part = -1  # pending events that come before it; -1: none is to begin
        self._leaving = False  # and nobody waits for the disk to take those
        if path is not None:
            self._head = {**header, "format": FORMAT, "part": 0, "lost": 0}
            if path.exists():
                os.replace(path, path.with_name(path.name + ".1"))
            self._open()
            self.flush()  # the header: what reads the file finds a trace from the first moment

    def _open(self) -> bool:
        """Begin the file of a part, with its header; whether that could be done."""
        assert self.path is not None
        try:
            self._fd = private.open_file(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        except OSError:
            self._fd = -1  # tried again with the next flush
            return False
        self._rest = (_encode(self._head) + "\n").encode()
        self._written = -len(self._rest)
        self._part = self._head["part"]
        self._head = {}
        return True

    def record(self, now_ns: int, event: ev.Event, actions: list[ev.Action], refused: str = "") -> None:
        """Take one event and what came of it; `refused`: the machine took it for a fault of the client."""
        if self.path is None:
            return
        if self._torn or len(self._pending) >= _MOST_PENDING:
            self._torn = True
            self.lost += 1
            return
        self._pending.append((now_ns, event, actions, refused))

    def flush(self) -> bool:
        """Write some of what is pending; whether there is more that could be written at once. A full disk keeps it."""
        if self.path is None or not (self._pending or self._rest or self._before_part == 0):
            return False
        taken = (self._fd >= 0 or self._open()) and self._write()
        if not taken:
            if self._leaving:
                self._leave()
            return self._leaving
        if self._before_part < 0 and (self._written >= self._most_bytes or (self._torn and not self._pending)):
            self._cut()
        return bool(self._pending) or self._before_part == 0

    def _write(self) -> bool:
        """Some lines, or what is left of them, or the next part's header; False where the disk does not take all."""
        if not self._rest and self._before_part == 0:
            if not self._begin_part():
                return False
        elif not self._rest:
            count = min(_AT_ONCE, len(self._pending))
            if self._before_part > 0:
                count = min(count, self._before_part)
                self._before_part -= count
            self._rest = "".join([_line(*self._pending.popleft()) for _ in range(count)]).encode()
        try:
            done = os.write(self._fd, self._rest)
        except OSError:
            done = 0
        self._written += done
        self._rest = self._rest[done:]
        return not self._rest

    def _cut(self) -> None:
        """What is recorded from here on belongs to the next part, which begins with the node as it is now."""
        self._head = {**self._header, "format": FORMAT, "part": self._part + 1, "lost": self.lost}
        if self.node is not None:
            self._head["state"] = snapshot.taken(self.node)
        self._before_part = len(self._pending)
        self._torn = False

    def _begin_part(self) -> bool:
        """Its file; the one before it is kept beside it, if nobody removed it. Whether that could be done."""
        assert self.path is not None
        if self._fd >= 0:
            os.close(self._fd)
        with contextlib.suppress(OSError):
            os.replace(self.path, self.path.with_name(self.path.name + ".1"))
        self._before_part = -1
        self._leaving = False
        return self._open()

    def begin_anew(self) -> None:
        """The folder is another one: the next part begins in it, whether or not the file before takes its events."""
        if self._fd >= 0:  # else the part at hand has no file yet, and will have one there
            self._cut()
            self._leaving = True

    def _leave(self) -> None:
        """The file before takes no more: what was for it is lost."""
        self.lost += self._rest.count(b"\n") - (self._written < 0 < len(self._rest)) + self._before_part
        for _ in range(self._before_part):
            self._pending.popleft()
        self._rest = b""
        self._before_part = 0
        self._head["lost"] = self.lost

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
    head, file = _begun(path)
    return head, _entries(path, file)


def read_joined(path: Path) -> tuple[dict[str, Any], Iterator[Entry]]:
    """As `read`, beginning with the part before it where that lies beside it and nothing was lost between them."""
    head, file = _begun(path)
    entries = _entries(path, file)
    if not head.get("part"):
        return head, entries
    before = path.with_name(path.name + ".1")
    try:
        earlier, older = _begun(before)
    except Problem:
        return head, entries
    follows = [earlier.get("part", 0) + 1, earlier.get("incarnation"), earlier.get("lost")]
    if follows != [head["part"], head.get("incarnation"), head.get("lost")]:
        older.close()
        return head, entries
    return earlier, itertools.chain(_entries(before, older), entries)


def _begun(path: Path) -> tuple[dict[str, Any], TextIO]:
    """A trace's header, and its file, of which that was read."""
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
    except (ValueError, KeyError, TypeError, RecursionError):
        file.close()
        raise Problem(f"{path} is no trace of this version; name a trace.jsonl of a daemon's state directory") from None
    return head, file


def _entries(path: Path, file: TextIO) -> Iterator[Entry]:
    with file:
        lines = iter(lambda: file.readline(_MOST_LINE), "")
        for number, line in enumerate(lines, start=2):
            if len(line) < _MOST_LINE and not line.endswith("\n"):
                return
            try:
                now_ns, name, fields, actions = json.loads(line)
                yield Entry(number, now_ns, _event(name, fields), [(a, f) for a, f in actions])
            except (ValueError, KeyError, TypeError, RecursionError):
                raise Problem(f"{path}:{number} is no event of a trace; the file is damaged") from None


def node_of(path: Path, head: dict[str, Any], changes: dict[str, Any] | None = None) -> Node:
    """The node as it was where a trace with this header begins, with these constants of the policy changed.

    Raises Problem where the header does not tell.
    """
    part = head.get("part")
    if part and "state" not in head:
        raise Problem(f"{path} is part {part} of a longer trace and has no state to begin with; name a part that has")
    try:
        known = {name: value for name, value in head["policy"].items() if name in Policy._fields}
        policy, gpus = Policy(**{**known, **(changes or {})}), len(head["gpus"])
        if part:
            return snapshot.restored(head["state"], gpus, policy)
        return Node(gpus, policy, head["last_epoch"], head["started_ns"])
    except snapshot.InvalidSnapshot as error:
        raise Problem(f"{path} begins with a state that cannot be read: {error}; record a new one") from None
    except (AttributeError, LookupError, TypeError, ValueError):
        raise Problem(f"{path} is no trace of this version: its header is damaged; record a new one") from None


# What the machine raises over events that cannot follow from those before: the trace is damaged, or of another version.
OUT_OF_STEP = (
    ev.LocalProtocolError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip


class Difference(NamedTuple):
    """Where a replay first parted from the record."""

    line: int
    now_ns: int
    event: ev.Event
    recorded: str
    replayed: str


def replay(path: Path, changes: dict[str, Any] | None = None) -> tuple[int, Difference | None]:
    """Run a trace through the machine; returns how many events agreed and the first action that differs, if any.

    `changes` replaces constants of the policy by name. Raises Problem for what does not replay.
    """
    head, entries = read(path)
    unknown = set(changes or ()) - set(Policy._fields)
    if unknown:
        raise Problem(f"policy constant {sorted(unknown)[0]!r} is unknown; there are {', '.join(Policy._fields)}")
    node = node_of(path, head, changes)
    count = 0
    for entry in entries:
        actions: list[tuple[str, list[Any]]]
        try:
            actions = [(type(a).__name__, json.loads(_encode(a))) for a in node.handle(entry.event, entry.now_ns)]
        except ev.RemoteProtocolError as error:
            actions = [("RemoteProtocolError", [str(error)])]
        except OUT_OF_STEP as error:
            actions = [(type(error).__name__, [str(error)])]
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
