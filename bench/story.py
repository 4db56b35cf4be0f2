"""The daemon's trace and the device's timeline, told together: what each turn of a tenant was, and what really ran."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from libhook.observer import Segment
from scheduler_backend import trace
from scheduler_backend.core import events as ev


@dataclass
class Turn:
    """One grant of a GPU to a tenant; times are the daemon's CLOCK_MONOTONIC, 0 where it never came."""

    tenant: str
    epoch: int
    granted_ns: int
    quota_until_ns: int = 0
    ended_ns: int = 0
    asked_back_ns: int = 0
    held_ns: int = 0
    overuse_ns: int = 0
    busy_ns: int = 0
    beside: bool = False  # others ran beside it from its grant on: there was no turn to be over


def turns(path: Path, gpu: int = 0) -> list[Turn]:
    """All turns of one GPU in the order of their grants."""
    found: dict[int, Turn] = {}
    for entry in trace.read(path)[1]:
        for name, fields in sorted(entry.actions, key=lambda action: action[0] != "Handed"):  # it stands after Grant
            kind = getattr(ev, name, None)
            if kind is None or "gpu" not in getattr(kind, "_fields", ()):
                continue
            action = kind(*fields)
            if action.gpu != gpu:
                continue
            if isinstance(action, ev.Handed):
                found[action.epoch] = Turn(action.tenant, action.epoch, entry.now_ns)
            elif isinstance(action, ev.Grant | ev.Extend) and action.epoch in found:
                found[action.epoch].beside |= isinstance(action, ev.Grant) and action.shared
                if action.quota_ns or isinstance(action, ev.Grant):  # one without is for who drains: its lease alone
                    found[action.epoch].quota_until_ns = entry.now_ns + action.quota_ns
            elif isinstance(action, ev.Revoke) and action.epoch in found:
                found[action.epoch].asked_back_ns = entry.now_ns
            elif isinstance(action, ev.Charged) and action.epoch in found:
                turn = found[action.epoch]
                turn.busy_ns += action.busy_ns
                if action.held_ns:  # else what its Return told after a hand-over that had been prepared
                    turn.ended_ns, turn.held_ns, turn.overuse_ns = entry.now_ns, action.held_ns, action.overuse_ns
    return list(found.values())


def returns(path: Path, gpu: int = 0) -> list[tuple[int, int]]:
    """(now_ns, epoch): when each grant of the GPU came back, by a hand-over that was prepared or by its Return."""
    found: dict[int, int] = {}
    for entry in trace.read(path)[1]:
        event = entry.event
        if isinstance(event, ev.Carried) and event.gpu == gpu:
            found.setdefault(event.holder_epoch, entry.now_ns)
        elif isinstance(event, ev.TokenReturned) and event.gpu == gpu:
            found.setdefault(event.epoch, entry.now_ns)
    return [(now_ns, epoch) for epoch, now_ns in found.items()]


def work(segments: Iterable[Segment], pids: set[int]) -> list[Segment]:
    """The segments of these processes, in the order of their starts."""
    return sorted((s for s in segments if s.pid in pids), key=lambda segment: segment.start_ns)


def observed_overuse_ns(own: list[Turn], segments: list[Segment]) -> list[int]:
    """For each turn of one tenant, how long its work ran past the quota by the device's timeline, nanoseconds.

    `own` are the turns of that tenant in order, `segments` its work. A turn that was asked back early has its quota's
    end where it was asked back: what runs after that is overuse too.
    """
    found = []
    index = 0
    for turn, after in itertools.pairwise(own):
        last = 0
        while index < len(segments) and segments[index].start_ns < after.granted_ns:
            last = max(last, segments[index].end_ns)
            index += 1
        until = min(turn.quota_until_ns, turn.asked_back_ns or turn.quota_until_ns)
        found.append(max(0, last - until))
    return found


def foreign_ns(turns: Iterable[Turn], segments: Iterable[Segment], owners: dict[int, str]) -> int:
    """GPU time that ran inside the turns of another tenant, nanoseconds: 0 where no two hold the token at once."""
    own = sorted((turn for turn in turns if turn.ended_ns), key=lambda turn: turn.granted_ns)
    starts = [turn.granted_ns for turn in own]
    total = 0
    for segment in segments:
        index = max(0, bisect.bisect_right(starts, segment.start_ns) - 1)
        while index < len(own) and own[index].granted_ns < segment.end_ns:
            if own[index].tenant != owners.get(segment.pid):
                begin = max(own[index].granted_ns, segment.start_ns)
                total += max(0, min(own[index].ended_ns, segment.end_ns) - begin)
            index += 1
    return total
