"""What a tenant should ask for, read from what it did: its trace in, request, limit and memory out, with the reasons.

Pure: no file, no clock. The trace is run through the token machine again, so the books (memory) are the daemon's own.
A second counts where the tenant wanted the GPU in it. What it *wanted* of a second is the time in which it held the
token or waited for it; what it *had* is the time it held. A tenant that waits nearly whenever it does not hold would
take any share: then its request is a choice, and only what it had is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gemini.units import format_share, format_size
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.seat import State
from scheduler_backend.core.tenant import TenantSpec

SECOND = 1_000_000_000
GREEDY = 0.95  # part of a second above which it wanted all of it
LEAST_SECONDS = 5
MEMORY_STEP = 64 << 20
HEADROOM = 1.1
HOLDS = (State.HOLDING, State.CLOSING, State.SHARED, State.LEAVING)  # the last two beside others


class Advice(NamedTuple):
    """One value to ask for, as one would write it, and why."""

    option: str
    value: str
    why: str


@dataclass
class Use:
    """What one tenant did, second by second, over all of its GPUs (the busiest one counts)."""

    spec: TenantSpec
    had: np.ndarray  # share of each second
    wanted: np.ndarray
    throttled: np.ndarray  # share of each second in which it rested at its limit
    wait_ms: list[float] = field(default_factory=list)
    memory_peak_bytes: int = 0
    memory_refusals: int = 0
    duty: float | None = None  # of the GPU that its host keeps idle most; None where it is on none


def observe(node: Node, entries: Iterable[Any], name: str) -> Use | None:
    """Run a trace through the node of its beginning and note what this tenant did; None where neither knows it."""
    spec: TenantSpec | None = node.tenants.get(name)
    began_ns = last_ns = 0
    rows: dict[int, list[float]] = {}
    peak = refusals = 0
    waits: list[float] = []
    for entry in entries:
        began_ns = began_ns or entry.now_ns
        if spec is not None and last_ns:
            _note(node, spec, rows, last_ns - began_ns, entry.now_ns - began_ns)
        last_ns = entry.now_ns
        try:
            actions = node.handle(entry.event, entry.now_ns)
        except ev.RemoteProtocolError:
            continue
        spec = node.tenants.get(name, spec)
        for action in actions:
            if isinstance(action, ev.Handed) and action.tenant == name:
                waits.append(action.wait_ns / 1e6)
            elif isinstance(action, ev.MemReply) and not action.granted:
                refusals += node.clients.get(action.client, ("", ()))[0] == name
        if spec is not None:
            used = (node.accounts[name, gpu].used_bytes for gpu in spec.gpus if (name, gpu) in node.accounts)
            peak = max(peak, *used, 0)
    if spec is None:
        return None
    seconds = [rows[second] for second in sorted(rows)]
    columns = np.array(seconds).reshape(-1, 3).T
    seats = [node.machines[gpu].seats.get(name) for gpu in spec.gpus]
    duty = min((seat.duty.ppm / 1e6 for seat in seats if seat is not None and seat.duty.host_bound), default=None)
    return Use(spec, columns[0], columns[1], columns[2], waits, peak, refusals, duty)


def _note(node: Node, spec: TenantSpec, rows: dict[int, list[float]], from_ns: int, to_ns: int) -> None:
    """Between two events nothing changes: add that time to the seconds it lies in."""
    states = [node.machines[gpu].seats.get(spec.name) for gpu in spec.gpus]
    seats = [seat for seat in states if seat is not None]
    held = any(seat.state in HOLDS for seat in seats)
    resting = any(seat.state is State.WAITING and seat.throttled for seat in seats)
    waits = any(seat.state is State.WAITING for seat in seats)
    while from_ns < to_ns:
        second = from_ns // SECOND
        until = min(to_ns, (second + 1) * SECOND)
        part = (until - from_ns) / SECOND
        row = rows.setdefault(second, [0.0, 0.0, 0.0])
        row[0] += part * held
        row[1] += part * (held or waits)
        row[2] += part * resting
        from_ns = until


def advise(use: Use) -> list[Advice]:
    """Request, limit and memory for this tenant; empty where it was seen for too short a time."""
    active = use.wanted > 0.01
    count = int(active.sum())
    if count < LEAST_SECONDS:
        return []
    had, wanted, throttled = use.had[active], use.wanted[active], use.throttled[active]
    request, limit = use.spec.request_ppm / 1e6, use.spec.limit_ppm / 1e6
    greedy = float((wanted > GREEDY).mean())
    wait = f"waits of {np.percentile(use.wait_ms, 99):.1f} ms at p99" if use.wait_ms else "no waits"
    found = []
    if greedy > 0.5:
        typical = float(np.median(had))
        found.append(
            Advice(
                "--request",
                format_share(request),
                f"as now: it wanted the GPU all the time in {100 * greedy:.0f} % of {count} s and had "
                f"{100 * typical:.0f} % of it ({wait}); it would use any share, so more only where that is too slow",
            )
        )
    else:
        typical = float(np.percentile(had, 95))
        found.append(
            Advice(
                "--request",
                format_share(_up(typical)),
                f"in 95 % of {count} s it held the GPU for at most {100 * typical:.0f} % ({wait}); "
                f"{format_share(request)} is promised now",
            )
        )
    most = float(np.percentile(wanted, 99))
    if float(throttled.mean()) > 0.05:
        why = f"it rested at its limit of {format_share(limit)} for {100 * float(throttled.mean()):.0f} % of the time"
        found.append(Advice("--limit", format_share(min(1.0, _up(max(most, limit)))), why))
    elif most < 0.8 * limit:
        value = format_share(min(1.0, _up(max(most * 1.25, typical))))
        found.append(Advice("--limit", value, f"it never wanted more than {100 * most:.0f} % of a second (p99)"))
    else:
        found.append(Advice("--limit", format_share(limit), "it uses what it may take, and does not rest at it"))
    if use.memory_peak_bytes or use.memory_refusals:
        room = 1.5 if use.memory_refusals else HEADROOM
        size = -(-int(use.memory_peak_bytes * room) // MEMORY_STEP) * MEMORY_STEP
        why = f"it held up to {format_size(use.memory_peak_bytes)}, contexts included"
        if use.memory_refusals:
            why += f", and was refused {use.memory_refusals} times: how much it would take is not known"
        found.append(Advice("--memory", f"{size >> 20}MiB", why))
    if use.duty is not None:
        why = (
            f"host-bound: its work runs for {100 * use.duty:.0f} % of the time that it holds the GPU, so it may run "
            "beside others; larger batches, CUDA graphs or fewer waits for the GPU would use more of it"
        )
        found.append(Advice("(duty)", format_share(round(use.duty, 2)), why))
    return found


def _up(share: float) -> float:
    """To the next whole percent, at least one."""
    return max(1, int(np.ceil(share * 100 - 1e-9))) / 100
