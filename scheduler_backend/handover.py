"""Events in, actions out: the node is given one event at a time here and nowhere else, and its deadlines are kept.

Between two events what the node has prepared may be carried out by the carrier's thread (carrier.py). Before each event
the orders are taken back, so that nothing is decided while an older decision may still be carried out; those that were
carried out are events that came first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from scheduler_backend import wire
from scheduler_backend.carrier import Carrier
from scheduler_backend.core import events as ev
from scheduler_backend.core.line import CarriedOut, Line, grant_of, left_of, told
from scheduler_backend.core.node import Node
from scheduler_backend.endpoint import Endpoint
from scheduler_backend.outbox import Outbox
from scheduler_backend.roster import Roster
from scheduler_backend.tally import Tallies
from scheduler_backend.timer import Timer
from scheduler_backend.trace import Recorder

log = logging.getLogger("gemini.server")

STALLED_NS = 3_000_000  # a deadline this much late: we did not run
HEAR_NS = 2_000_000  # so long we then listen before leases lapse


class Handovers:
    """The node, its deadlines and its orders. Where we ourselves were held up `look_again` has a tenant's messages read
    before leases lapse.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        recorder: Recorder,
        roster: Roster,
        tallies: Tallies,
        outbox: Outbox,
    ) -> None:
        self.node, self.recorder, self.roster, self.tallies, self.outbox = node, recorder, roster, tallies, outbox
        self.look_again: Callable[[Endpoint], None] = lambda _endpoint: None
        self.carried = 0  # hand-overs that were carried out as prepared
        self._timer = Timer(loop, self._on_time)
        self._carrier = Carrier(loop, self.hear_carrier)
        self._lines: dict[int, Line] = {}  # per GPU, what may be carried out while nothing else happens
        self._wake_ns = 0
        self._armed_ns = 0
        self._postponed = False
        self._performers: dict[type, Callable[[Any], None]] = {
            **outbox.performers,
            **tallies.performers,
            ev.Handed: self._handed,
            ev.Prepare: self._prepare,
            ev.Unprepare: self._unprepare,
            ev.WakeAt: self._wake_at,
        }

    def handle(self, event: ev.Event) -> None:
        """Give one event to the node and do what it says. Raises RemoteProtocolError for a client's fault."""
        if type(event) in ev.MEMORY:
            self._give(event, time.monotonic_ns())
            self._set_clock()
            return
        if self._lines:
            self._take_back(event)
        try:
            self._give(event, time.monotonic_ns())
        finally:
            self._put_out()

    def _give(self, event: ev.Event, now_ns: int, more: bool = False) -> None:
        """One event to the node, and what it says is done. more: as of `told`."""
        try:
            actions = self.node.handle(event, now_ns)
        except ev.RemoteProtocolError as error:
            self.recorder.record(now_ns, event, [], str(error))
            raise
        performers = self._performers
        carried = type(event) is ev.Carried
        for action in left_of(actions, more) if carried else actions:
            if not (carried and type(action) is ev.Grant and self._knows(action)):
                performers[type(action)](action)
        self.tallies.end_event(time.monotonic_ns() - now_ns, carried=carried)
        self.recorder.record(now_ns, event, actions)

    def _take_back(self, event: ev.Event | None = None) -> None:
        """No order is carried out from here on; those that were are events that came first, before `event`."""
        carried: list[CarriedOut] = []
        for gpu, line in self._lines.items():
            for done in self._carrier.take_back(gpu):
                order = line.carried(done.carried_ns)
                carried.append(CarriedOut(done.carried_ns, order, self._said_with_the_word(order, done, event)))
        if not carried:
            return
        self.carried += len(carried)
        for said, at_ns, more in told(carried, event, bool(self.node.gangs.gangs)):
            self._give(said, at_ns or time.monotonic_ns(), more)

    def _said_with_the_word(self, order: ev.Prepare, done: Any, event: ev.Event | None) -> ev.TokenReturned | None:
        """The holder's Return, where that came with the word of its drain; not if `event` is the same Return."""
        client = self.roster.clients.get(order.holder)
        if not done.returned or client is None or client.gpus.get(done.said.device) != order.gpu:
            return None
        said = wire.returned(client.number, order.gpu, done.said)
        if type(event) is ev.TokenReturned and event[:3] == said[:3]:
            return None
        client.returned[order.gpu] = client.taken[order.gpu] = order.holder_epoch
        return said

    def _put_out(self) -> None:
        """Let the orders that stand be carried out (again), and come back in time."""
        self._set_clock()
        for gpu, line in self._lines.items():
            for order in line.orders:
                holder, following = self.roster.clients.get(order.holder), self.roster.endpoints.get(order.tenant)
                if holder is None or holder.peer is None or following is None:
                    break
                self._carrier.prepare(
                    gpu,
                    order.after != 0,
                    holder.peer.channel,
                    self.roster.endpoints[holder.tenant].page,
                    order.holder_epoch,
                    following.page,
                    order.epoch,
                    order.not_before_ns,
                    order.wanting_from_ns,
                    order.more > 0 or not all(map(self._reads_page, order.clients)),
                )

    def _set_clock(self) -> None:
        """Once for all that was done."""
        if self._wake_ns != self._armed_ns:
            self._armed_ns = self._wake_ns
            self._timer.set(self._wake_ns)

    def is_behind(self, gpu: int) -> bool:
        """Return whether something was carried out of which the node has not heard: what it says is old then."""
        return gpu in self._lines and self._carrier.carried(gpu)

    def catch_up(self) -> None:
        """Let the node hear what was carried out, for who looks at it."""
        if any(self.is_behind(gpu) for gpu in self._lines):
            self.hear_carrier()

    def listen(self, fd: int, account: int) -> int:
        """Listen to a page connection (Carrier.listen)."""
        return self._carrier.listen(fd, account)

    def forget(self, channel: int) -> None:
        """Listen to a page connection no more (Carrier.forget)."""
        self._carrier.forget(channel)

    def end(self) -> None:
        """Nothing is carried out from here on; what was is heard."""
        self.hear_carrier()
        self._carrier.close()
        self._lines.clear()

    def close(self) -> None:
        """No deadline is kept any more."""
        self._timer.close()

    def hear_carrier(self) -> None:
        """The carrier says that it has carried out something; also asked when it may have."""
        if self._lines:
            self._take_back()
            self._put_out()

    def _handed(self, action: ev.Handed) -> None:
        self.tallies.hand(action, self.node.machines[action.gpu].now_ns)

    def _prepare(self, action: ev.Prepare) -> None:
        if not self._lines.setdefault(action.gpu, Line()).put(action):
            return  # only when it may be carried out has changed
        for number in action.clients:
            if self._reads_page(number) and self.outbox.to_client(
                number, wire.prepared_grant, grant_of(action, number)
            ):
                self.roster.clients[number].told[action.gpu] = action.epoch

    def _knows(self, action: ev.Grant) -> bool:
        """Was this client told of the grant before it began? Then the page said when, and saying it again wakes it."""
        client = self.roster.clients.get(action.client)
        return client is not None and client.told.get(action.gpu) == action.epoch

    def _reads_page(self, number: int) -> bool:
        """Does this client see by itself that its turn has come?"""
        client = self.roster.clients.get(number)
        return client is not None and client.peer is not None and client.peer.channel >= 0

    def _unprepare(self, action: ev.Unprepare) -> None:
        self._lines[action.gpu].drop(action)

    def _on_time(self) -> None:
        """A deadline. Where this process itself was held up, what clients said meanwhile is heard first."""
        now_ns = time.monotonic_ns()
        if now_ns - self._wake_ns > STALLED_NS and not self._postponed:
            self._postponed = True
            log.info("stalled late_ms=%.1f", (now_ns - self._wake_ns) / 1e6)
            for endpoint in list(self.roster.endpoints.values()):
                self.look_again(endpoint)
            self._timer.set(now_ns + HEAR_NS)
            return
        self._postponed = False
        self.handle(ev.Tick())

    def _wake_at(self, action: ev.WakeAt) -> None:
        self._wake_ns = action.at_ns
        self._postponed = False
