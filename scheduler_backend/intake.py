"""What clients say, read in slices and only so much of it: bytes to events.

A malformed frame costs its sender the connection: it is told why, what it held is taken for ended, and whatever comes
from that connection afterwards is dropped unread. Nobody else notices. A tenant may say so much and no more: what it
says beyond waits, and only its own. What says nothing new (a Return of what is over) costs the tenant as much as many
messages that do, for there is no end to it. A Hello has a turn of the loop to itself.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from typing import Any

from scheduler_backend import wire
from scheduler_backend.allowance import Commons
from scheduler_backend.bounds import (
    ALL_HELLOS_A_SECOND,
    ALL_HELLOS_AT_ONCE,
    ALL_MESSAGES_A_SECOND,
    ALL_MESSAGES_AT_ONCE,
    MESSAGES_A_TURN,
)
from scheduler_backend.connection import ALL, COMMAND, Connection
from scheduler_backend.context_cost import ContextCost
from scheduler_backend.core import events as ev
from scheduler_backend.core.seat import Standing
from scheduler_backend.endpoint import Client, Endpoint
from scheduler_backend.handover import Handovers
from scheduler_backend.outbox import Outbox
from scheduler_backend.presence import Presence
from scheduler_backend.roster import Roster
from scheduler_backend.tally import Counters, Tallies, Work

log = logging.getLogger("gemini.server")

FLOOD_PAUSE_SECONDS = 0.005  # well within what a refusal of memory waits for the answers to a recall (Policy.recall_ns)
PAUSED_AT_ONCE = 3  # of more the pauses are longer
STALE_COSTS = 25  # as many messages as it takes the place of
ASKED_COSTS = 3  # where it waits already, and there is nothing to do
STATS_COST, UNHEARD_COSTS = 5, 5
_ERRNO = {errno.E2BIG: errno.EPROTO}
_BROKEN = {
    errno.E2BIG: "a message of several frames; one message is one frame",
    errno.EMSGSIZE: f"a frame of more than {wire.MAX_SIZE} bytes",
}


class Intake:
    """The reading half. `on_knock` is called where somebody wants to come in."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        roster: Roster,
        tallies: Tallies,
        contexts: ContextCost,
        outbox: Outbox,
        handovers: Handovers,
        presence: Presence,
    ) -> None:
        self.loop, self.roster, self.tallies, self.contexts = loop, roster, tallies, contexts
        self.outbox, self.handovers, self.presence = outbox, handovers, presence
        self.on_knock: Callable[[Endpoint], None] = lambda _endpoint: None
        self.refused: dict[str, int] = {}  # protocol errors by errno name
        self._paused = 0  # tenants that are not read for now
        self._messages = Commons(ALL_MESSAGES_A_SECOND, ALL_MESSAGES_AT_ONCE)
        self._hellos = Commons(ALL_HELLOS_A_SECOND, ALL_HELLOS_AT_ONCE)

    def join(self, endpoint: Endpoint) -> None:
        """A tenant comes, which has its part of what all may say."""
        for commons in (self._messages, self._hellos):
            commons.join(endpoint.party)

    def begin(self, endpoint: Endpoint) -> None:
        """Read what it says from now on."""
        self.loop.add_reader(endpoint.fd, self._readable, endpoint)

    def end(self, endpoint: Endpoint) -> None:
        """Read nothing of it any more."""
        self.loop.remove_reader(endpoint.fd)

    def leave(self, endpoint: Endpoint) -> None:
        """A tenant is gone, and its part is the others'."""
        for commons in (self._messages, self._hellos):
            commons.leave(endpoint.party)

    def _readable(self, endpoint: Endpoint) -> None:
        """Read a slice of what is there; come back at once if there is more."""
        endpoint.draining = False
        if endpoint.paused or endpoint.closed:
            return
        found, knocks = endpoint.ready(MESSAGES_A_TURN)
        if knocks:
            self.on_knock(endpoint)
        left = MESSAGES_A_TURN
        for connection in found:
            if left <= 0 or endpoint.paused or endpoint.closed:
                break
            try:
                left -= self._hear(endpoint, connection, left)
            finally:
                if connection.is_open and connection.has_more:
                    connection.keep()
                    endpoint.behind[connection.fd] = connection
                    self.look_again(endpoint)
                else:
                    endpoint.behind.pop(connection.fd, None)
        if endpoint.behind:
            self.look_again(endpoint)

    def _hear(self, endpoint: Endpoint, connection: Connection, most: int) -> int:
        """What one connection has to say, at most so many messages; how many turns of the tenant that took."""
        if not self._may_speak(endpoint):
            self._pause(endpoint)
            return 0
        if not connection.read():
            endpoint.drop(connection)
            return 1
        for heard in range(most):
            if heard and not self._may_speak(endpoint):
                self._pause(endpoint)
                return heard
            taken = connection.take()
            if taken == ALL:
                if not heard:  # a piece of something: what it costs is the look at it
                    self._spend(endpoint, 1)
                return heard or 1
            if taken < 0:
                self._spend(endpoint, self._broken(endpoint, connection, -taken))
                return heard + 1
            if taken == COMMAND:
                self._spend(endpoint, 1)
                if connection.is_ready:
                    endpoint.shaking.pop(connection.fd, None)
                continue
            self._spend(endpoint, self._receive(endpoint, connection, connection.message()))
            if endpoint.said_hello:  # a turn of its own
                endpoint.said_hello = False
                return most
            if endpoint.paused or not connection.has_more:
                return heard + 1
        return most

    def _may_speak(self, endpoint: Endpoint) -> bool:
        """Has it something left of its own, and of what is all tenants'?"""
        now_ns = time.monotonic_ns()
        return endpoint.allowance.whole(now_ns) >= 1 and self._messages.has(endpoint.party, now_ns)

    def _spend(self, endpoint: Endpoint, cost: int) -> None:
        endpoint.allowance.take(cost)
        if not endpoint.closed:
            self._messages.take(endpoint.party, cost)

    def _may_greet(self, endpoint: Endpoint) -> bool:
        """May it say another Hello?"""
        now_ns = time.monotonic_ns()
        if not (self._hellos.has(endpoint.party, now_ns) and endpoint.hellos.spend(now_ns)):
            return False
        self._hellos.take(endpoint.party)
        return True

    def _broken(self, endpoint: Endpoint, connection: Connection, code: int) -> int:
        """What it sent is no ZMTP of ours; returns what that costs its tenant."""
        if not connection.is_ready or code == errno.ENOBUFS:  # it does not read what it asked for
            name = errno.errorcode.get(code, "EPROTO")
            self.refused[name] = self.refused.get(name, 0) + 1
            endpoint.drop(connection)
            return UNHEARD_COSTS
        known = connection.client is not None
        self._ban(endpoint, connection, 0, _ERRNO.get(code, code), _BROKEN.get(code, "what it sent is no ZMTP 3.1"))
        return STALE_COSTS if known else UNHEARD_COSTS

    def _pause(self, endpoint: Endpoint) -> None:
        """It has said too much: what it says now waits in the kernel, and costs nobody else anything."""
        endpoint.paused = True
        endpoint.pauses += 1
        self._paused += 1
        self.loop.remove_reader(endpoint.fd)
        pause = FLOOD_PAUSE_SECONDS * max(1, self._paused // PAUSED_AT_ONCE)  # each look at one costs time, too
        self.loop.call_later(pause, self._unpause, endpoint)

    def _unpause(self, endpoint: Endpoint) -> None:
        endpoint.paused = False
        self._paused -= 1
        if endpoint.closed or not self.roster.is_there(endpoint):
            return
        self.loop.add_reader(endpoint.fd, self._readable, endpoint)
        self.look_again(endpoint)

    def look_again(self, endpoint: Endpoint) -> None:
        """Read what it says soon, if nothing else sees to that already."""
        if not endpoint.draining and not endpoint.paused and not endpoint.closed:
            endpoint.draining = True
            self.loop.call_soon(self._readable, endpoint)

    def _receive(self, endpoint: Endpoint, route: Connection, frame: bytes) -> int:
        """Take one message; returns what it costs its tenant."""
        client = route.client
        serial = 0
        try:
            kind, message = wire.decode(frame)
            serial = message.header.serial
            if kind == wire.HELLO:
                if not self._may_greet(endpoint):
                    return UNHEARD_COSTS  # who gets no Welcome says it again
                endpoint.said_hello = True
                self.presence.hello(endpoint, route, wire.hello_of(message))
            elif client is None:
                if route.left:
                    return UNHEARD_COSTS
                raise wire.BadFrame("the first message must be a Hello")
            elif kind == wire.STATS:
                self._count(endpoint, client, message)
                return STATS_COST
            else:
                event = wire.event_of(kind, message, client.number, client.gpus)
                if wire.asks_for_context(kind, message):
                    gpu = client.gpus[message.device]
                    self.outbox.to_tell = self.contexts.of(client, gpu, message.credit_bytes)
                elif wire.tells_exported(kind, message):
                    self.outbox.to_tell = self.outbox.mark_of(client, client.gpus[message.device])
                cost, waits = self._worth(client, event)
                if not waits:
                    self.handovers.handle(event)
                return cost
        except wire.BadFrame as error:
            self._ban(endpoint, route, serial, error.code, str(error))
            return UNHEARD_COSTS if client is None else STALE_COSTS
        except ev.RemoteProtocolError as error:
            self._ban(endpoint, route, serial, errno.EPROTO, str(error))
            return STALE_COSTS
        return 1

    def _count(self, endpoint: Endpoint, client: Client, message: Any) -> None:
        tally = self.tallies.seats.get((endpoint.name, client.gpus.get(message.device, -1)))
        if tally is not None:
            tally.say(client.number, Work(message.launches, message.busy_ns), again=client.again)
        values = tuple(int(getattr(message, name)) for name in Counters.FIELDS)
        endpoint.counters.update(client.number, message.device, values)
        if message.ungated_lookups and not endpoint.told_ungated:
            endpoint.told_ungated = True
            log.warning(
                "ungated tenant=%s client=%d pid=%d calls=%d program=%s",
                endpoint.name,
                client.number,
                client.pid,
                message.ungated_lookups,
                client.program,
            )

    def _worth(self, client: Client, event: Any) -> tuple[int, bool]:
        """What it costs; and whether it asks for what it waits for, so that there is nothing to decide, and no reason
        to take a prepared hand-over back.
        """
        kind = type(event)
        if kind in ev.MEMORY:
            return 1, False
        if kind is ev.TokenReturned and client.taken.get(event.gpu) == event.epoch:
            del client.taken[event.gpu]
            return 1, True  # it was not sure that it had been heard on the short way
        behind = self.handovers.is_behind(event.gpu)
        if behind and kind is not ev.TokenReturned:  # with one of those it is told together (handle)
            self.handovers.hear_carrier()
        seat = self.handovers.node.machines[event.gpu].seats.get(client.tenant)
        member = seat.members.get(client.number) if seat is not None else None
        if member is None:
            return STALE_COSTS, False
        standing = member.standing
        if kind is ev.TokenAsked:
            if standing is Standing.WAITS:
                return ASKED_COSTS, True
            new = standing is Standing.QUIET  # who lost its lease has to return first
        elif kind is ev.TokenReturned:
            new = (behind or event.epoch == member.epoch) and client.returned.get(event.gpu) != event.epoch
            client.returned[event.gpu] = event.epoch
        else:
            new = event.epoch == member.epoch and (standing is Standing.HOLDS or kind is ev.Used)  # that comes late
        return 1 if new else STALE_COSTS, False

    def _ban(self, endpoint: Endpoint, route: Connection, serial: int, code: int, text: str) -> None:
        """A protocol error costs the sender its connection, and nobody else anything."""
        name = errno.errorcode.get(code, "EPROTO")
        self.refused[name] = self.refused.get(name, 0) + 1
        client = route.client
        worth_a_word = endpoint.complaints.spend(time.monotonic_ns())
        if worth_a_word:
            log.warning("refused tenant=%s code=%s reason=%s", endpoint.name, name, text)
        if route.is_ready and (worth_a_word or client is not None):  # others who talk nonsense are legion
            self.outbox.refuse(endpoint, route, serial, code, text)
        endpoint.drop(route)
        if client is not None:
            self.presence.gone(endpoint, client)
