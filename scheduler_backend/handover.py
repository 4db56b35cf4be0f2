"""Events in, actions out: the node is given one event at a time here and nowhere else, and its deadlines are kept.

Between two events what the node has prepared may be carried out by the carrier's thread (carrier.py). Before each event
the orders are taken back, so that nothing is decided while an older decision may still be carried out; those that were
carried out are events that came first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from scheduler_backend import wire
from scheduler_backend.carrier import Carrier
from scheduler_backend.core import events as ev
from scheduler_backend.outbox import Outbox
from scheduler_backend.tally import Series
from scheduler_backend.timer import Timer

log = logging.getLogger("gemini.server")

STALLED_NS = 3_000_000  # a deadline this much late: we did not run
HEAR_NS = 2_000_000  # so long we then listen before leases lapse


class Handovers(Outbox):
    """The node, its deadlines and its orders."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *arguments: Any, **more: Any) -> None:
        super().__init__(loop, *arguments, **more)
        self.handle_ns = Series()  # decision to sent, of hand-overs that went through the machine
        self.carried = 0  # hand-overs that were carried out as prepared
        self._timer = Timer(loop, self._on_time)
        self._carrier = Carrier(loop, self._hear_carrier)
        self._orders: dict[int, ev.Prepare] = {}  # per GPU, what may be carried out while nothing else happens
        self._wake_ns = 0
        self._armed_ns = 0
        self._postponed = False
        self._performers |= {ev.Prepare: self._prepare, ev.Unprepare: self._unprepare, ev.WakeAt: self._wake_at}

    def handle(self, event: ev.Event) -> None:
        """Give one event to the node and do what it says. Raises RemoteProtocolError for a client's fault."""
        if type(event) in ev.MEMORY:
            self._give(event, time.monotonic_ns())
            self._set_clock()
            return
        if self._orders:
            self._take_back(event)
        try:
            self._give(event, time.monotonic_ns())
        finally:
            self._put_out()

    def _give(self, event: ev.Event, now_ns: int) -> None:
        try:
            actions = self.node.handle(event, now_ns)
        except ev.RemoteProtocolError as error:
            self.recorder.record(now_ns, event, [], str(error))
            raise
        performers = self._performers
        for action in actions:
            performers[type(action)](action)
        took_ns = time.monotonic_ns() - now_ns
        if self._handed_now is not None:
            if type(event) is not ev.Carried:  # those were done before this code ran
                self.handle_ns.add(took_ns)
                self.gaps[self._handed_now.gpu].add(self._handed_now.gap_ns + took_ns)
            self._handed_now = None
        self.recorder.record(now_ns, event, actions)

    def _take_back(self, event: ev.Event | None = None) -> None:
        """No order is carried out from here on; those that were are events that came first, before `event`."""
        for gpu, order in list(self._orders.items()):
            carried_ns = self._carrier.take_back(gpu)
            if carried_ns:
                self._orders.pop(gpu, None)
                self.carried += 1
                said = self._said_with_the_word(order, event)
                following = said or event
                followed = type(following) is ev.TokenReturned and following.gpu == gpu and not self.node.gangs.gangs
                self._give(ev.Carried(gpu, order.holder_epoch, order.epoch, followed), carried_ns)
                if said is not None:
                    self._give(said, time.monotonic_ns())

    def _said_with_the_word(self, order: ev.Prepare, event: ev.Event | None) -> ev.Event | None:
        """The holder's Return, where that came with the word of its drain; not if `event` is the same Return."""
        message, client = self._carrier.returned(order.gpu), self.clients.get(order.holder)
        if message is None or client is None or client.gpus.get(message.device) != order.gpu:
            return None
        said = wire.event_of(wire.RETURN, message, client.number, client.gpus)
        if type(event) is ev.TokenReturned and event[:3] == said[:3]:
            return None
        client.returned[order.gpu] = client.taken[order.gpu] = order.holder_epoch
        return said

    def _put_out(self) -> None:
        """Let the orders that stand be carried out (again), and come back in time."""
        self._set_clock()
        for gpu, order in self._orders.items():
            holder, following = self.clients.get(order.holder), self.endpoints.get(order.tenant)
            if holder is not None and holder.peer is not None and following is not None:
                page = self.endpoints[holder.tenant].page
                self._carrier.prepare(
                    gpu,
                    holder.peer.channel,
                    page,
                    order.holder_epoch,
                    following.page,
                    order.epoch,
                    order.not_before_ns,
                    order.wanting_from_ns,
                )

    def _set_clock(self) -> None:
        """Once for all that was done."""
        if self._wake_ns != self._armed_ns:
            self._armed_ns = self._wake_ns
            self._timer.set(self._wake_ns)

    def _hear_carrier(self) -> None:
        """The carrier says that it has carried out something; also asked when it may have."""
        if self._orders:
            self._take_back()
            self._put_out()

    def _prepare(self, action: ev.Prepare) -> None:
        known = self._orders.get(action.gpu)
        self._orders[action.gpu] = action
        if known is not None and known.epoch == action.epoch:
            return  # only when it may be carried out has changed
        for number in action.clients:
            client = self.clients.get(number)
            if client is not None and client.peer is not None and client.peer.channel >= 0:
                grant = ev.Grant(
                    number,
                    action.gpu,
                    action.epoch,
                    action.quota_ns,
                    action.lease_ns,
                    action.cap_ns,
                    action.contended,
                    False,
                )
                self._to_client(number, wire.prepared_grant, grant)

    def _unprepare(self, action: ev.Unprepare) -> None:
        self._orders.pop(action.gpu, None)

    def _on_time(self) -> None:
        """A deadline. Where this process itself was held up, what clients said meanwhile is heard first."""
        now_ns = time.monotonic_ns()
        if now_ns - self._wake_ns > STALLED_NS and not self._postponed:
            self._postponed = True
            log.info("stalled late_ms=%.1f", (now_ns - self._wake_ns) / 1e6)
            for endpoint in list(self.endpoints.values()):
                self._look_again(endpoint)
            self._timer.set(now_ns + HEAR_NS)
            return
        self._postponed = False
        self.handle(ev.Tick())

    def _wake_at(self, action: ev.WakeAt) -> None:
        self._wake_ns = action.at_ns
        self._postponed = False
