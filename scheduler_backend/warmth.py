"""Being awake, and quick, when a hand-over is due.

Between two hand-overs the daemon sleeps for milliseconds, and by then nothing that it needs is in the caches.
Measured on a 2-CPU VM (bench/handover shows the whole): a decision takes 30 us when the last one was 0.1 ms ago, 190
us when it was 4 ms ago, also if the thread spun meanwhile; a wake-up costs 25 to 50 us more. The GPU idles during all
of it. But the moment is known, for grants end by plan. So shortly before it the loop stops sleeping, and until the
hand-over has happened or is late it rehearses: a Return that concerns nobody goes through real sockets of its own,
the codec, a node machine of its own and back as a Grant. Everything else is served between two rehearsals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Any

import zmq

from libhook import core
from scheduler_backend import wire
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.timer import Timer

LEAD_NS = 100_000  # begin so long before the quota ends: one cold rehearsal
LATE_NS = 800_000  # stop so long after it: Returns come 260 to 860 us after it (p10, p90), two hops and a drain
PAUSE_NS = 150_000  # between two rehearsals: who is waited for may come here


class Warmth:
    """Call `expect(at_ns)` with the time of the next planned hand-over after each event."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: zmq.Context[Any], policy: Policy) -> None:
        self._loop = loop
        self._timer = Timer(loop, self._begin)
        self._due_ns = 0
        self._turning = False
        self._rest_until_ns = 0
        self._router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self._dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self._router.bind("inproc://rehearsal")
        self._dealer.connect("inproc://rehearsal")
        self._node = Node(1, policy)
        self._grant = ev.Grant(0, 0, 0, 0, 0, 0, False, False)
        for client, name in enumerate("ab"):
            self._node.handle(ev.TenantAdded(TenantSpec(name, WHOLE_PPM // 2)), 0)
            self._node.handle(ev.ClientJoined(name, client, (0,)), 0)
            self._note(self._node.handle(ev.TokenAsked(client, 0), 0))
        self._return = core.new(core.lib.WIRE_RETURN, 0, flags=core.lib.WIRE_RETURN_WANT_MORE)

    def _note(self, actions: list[ev.Action]) -> None:
        for action in actions:
            if type(action) is ev.Grant:
                self._grant = action

    def expect(self, at_ns: int) -> None:
        """A hand-over is due then (0: none is)."""
        if at_ns != self._due_ns:
            self._due_ns = at_ns
            self._timer.set(max(1, at_ns - LEAD_NS) if at_ns else 0)

    def _begin(self) -> None:
        if self._due_ns and not self._turning:
            self._turning = True
            self._turn()

    def _turn(self) -> None:
        now_ns = time.monotonic_ns()
        if not self._due_ns or not self._due_ns - 2 * LEAD_NS <= now_ns < self._due_ns + LATE_NS:
            self._turning = False
            return
        os.sched_yield()  # ZeroMQ's thread may wait for this very CPU with what we wait for
        if now_ns >= self._rest_until_ns:
            self._rehearse(now_ns)
            self._rest_until_ns = time.monotonic_ns() + PAUSE_NS
        self._loop.call_soon(self._turn)  # a loop with something to call does not sleep

    def _rehearse(self, now_ns: int) -> None:
        self._return.epoch = self._grant.epoch
        with contextlib.suppress(zmq.ZMQError):
            self._dealer.send(core.encode(self._return), zmq.NOBLOCK)
            route, frame = self._router.recv_multipart(zmq.NOBLOCK)
            kind, message = wire.decode(frame)
            event = wire.event_of(kind, message, self._grant.client, {0: 0})
            self._note(self._node.handle(event, now_ns))
            self._router.send(route, zmq.SNDMORE | zmq.NOBLOCK)
            self._router.send(wire.grant(self._grant, 0, 0), zmq.NOBLOCK)
            self._dealer.recv(zmq.NOBLOCK)

    def close(self) -> None:
        """Give the timer and the sockets back."""
        self._due_ns = 0
        self._timer.close()
        self._router.close(0)
        self._dealer.close(0)
