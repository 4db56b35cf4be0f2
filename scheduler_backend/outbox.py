"""What the node says, done: actions to frames, page words and timers, and counted for people.

The lowest layer of the server: it knows the node, the endpoints and the clients, and writes. A write never waits: who
does not read is cut off.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from libhook.core import lib
from scheduler_backend import wire
from scheduler_backend.connection import Connection
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.devices import Gpu, used_by
from scheduler_backend.endpoint import Client, Endpoint
from scheduler_backend.tally import SeatTally, Series, Work
from scheduler_backend.trace import Recorder

log = logging.getLogger("gemini.server")

MARKS = int(lib.WIRE_MARKS)
MOST_LOOKS = 64  # at a card for what a tenant's context takes: where it cannot say, it is not asked for ever


class Outbox(ABC):
    """The writing half."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gpus: list[Gpu],
        policy: Policy,
        recorder: Recorder,
        *,
        last_epoch: int,
        started_ns: int,
        incarnation: int,
    ) -> None:
        self.loop, self.gpus, self.recorder = loop, gpus, recorder
        self.incarnation = incarnation
        self.started_ns = started_ns
        self.node = recorder.node = Node(len(gpus), policy, last_epoch, started_ns)
        self.endpoints: dict[str, Endpoint] = {}
        self.clients: dict[int, Client] = {}
        self.tallies: dict[tuple[str, int], SeatTally] = {}
        self.gaps = [Series() for _ in gpus]
        self.mem_refusals: dict[str, int] = {}
        self.context_bytes: dict[tuple[str, int], int] = {}  # what a context of a tenant takes of a card
        self._context_looks: dict[tuple[str, int], int] = {}  # how often the card was asked for it
        self._to_tell = 0  # to be told with the answer to the message at hand
        self._mark_key = secrets.token_bytes(16)
        self._handed_now: ev.Handed | None = None
        self._serials = itertools.count(1)
        self._performers: dict[type, Callable[[Any], None]] = {
            ev.Page: self._page,
            ev.Grant: self._grant,
            ev.Extend: self._extend,
            ev.Revoke: self._revoke,
            ev.Welcome: self._welcome,
            ev.MemReply: self._mem_reply,
            ev.MemRecall: self._mem_recall,
            ev.Handed: self._handed,
            ev.Charged: self._charged,
            ev.LeaseLost: self._lease_lost,
            ev.Overran: self._overran,
        }

    @abstractmethod
    def _gone(self, endpoint: Endpoint, client: Client) -> None:
        """The client is dead or cut off for good (presence.py)."""

    @abstractmethod
    def _look_again(self, endpoint: Endpoint) -> None:
        """There is something to read (intake.py)."""

    # --- writes -----------------------------------------------------------------------------------------------------
    @staticmethod
    def _send(endpoint: Endpoint, route: Connection, frame: bytes) -> bool:
        return endpoint.settle(route, route.send(frame))

    def _to_client(self, number: int, write: Callable[[Any, int, int], bytes], action: Any) -> bool:
        client = self.clients.get(number)
        if client is None or client.route is None:
            return False
        endpoint = self.endpoints[client.tenant]
        device = client.devices.get(action.gpu)
        if device is None:
            return False
        return self._tell(endpoint, client, client.route, write(action, device, next(self._serials)))

    def _tell(self, endpoint: Endpoint, client: Client, route: Connection, frame: bytes) -> bool:
        sent = self._send(endpoint, route, frame)
        if not sent:
            self._unreachable(endpoint, client)
        return sent

    def _unreachable(self, endpoint: Endpoint, client: Client) -> None:
        """Its connection is gone. With a pidfd its death would be seen, so it may come back; else it is dead."""
        client.route = None
        if client.peer is None:
            self.loop.call_soon(self._gone, endpoint, client)

    def _page(self, action: ev.Page) -> None:
        endpoint = self.endpoints.get(action.tenant)
        if endpoint is not None:
            endpoint.page.store(action.gpu, action.epoch)

    def _grant(self, action: ev.Grant) -> None:
        client = self.clients.get(action.client)
        if client is not None:
            client.returned.pop(action.gpu, None)  # who joins the same grant again gives it back again
        self._to_client(action.client, wire.grant, action)

    def _extend(self, action: ev.Extend) -> None:
        self._to_client(action.client, wire.extend, action)

    def _revoke(self, action: ev.Revoke) -> None:
        client = self.clients.get(action.client)
        if client is not None and (client.tenant, action.gpu) in self.tallies:
            self.tallies[client.tenant, action.gpu].revokes += 1
        self._to_client(action.client, wire.revoke, action)

    def _cost_of_context(self, client: Client, gpu: int, held: int) -> int:
        """What a tenant's contexts take of a card; 0: unknown. Measured with its first, which is all it can spoil.

        Before a client has made one it asks what is known: that it was looked for in vain is said, too."""
        account = client.tenant, gpu
        known, looks = self.context_bytes.get(account, 0), self._context_looks.get(account, 0)
        if held == lib.WIRE_CONTEXT_KNOWN:
            return known or (lib.WIRE_CONTEXT_KNOWN if looks else 0)
        if not known and looks < MOST_LOOKS:
            self._context_looks[account] = looks + 1
            known = self.context_bytes[account] = max(0, used_by(self.gpus[gpu], client.proven_pid) - held)
        return known

    def _mark_of(self, client: Client, gpu: int) -> int:
        """The mark of what a tenant exports of a card while it is charged for that: never 0, and no other tenant's."""
        account = self.node.accounts[client.tenant, gpu]
        words = f"{self.endpoints[client.tenant].serial}/{gpu}/{account.times_left}"
        digest = hashlib.blake2b(words.encode(), key=self._mark_key, digest_size=8).digest()
        return int.from_bytes(digest) % (MARKS - 1) + 1

    def _mem_reply(self, action: ev.MemReply) -> None:
        if self._to_tell:
            action = action._replace(credit_bytes=self._to_tell)
            self._to_tell = 0
        if not action.granted:
            client = self.clients.get(action.client)
            if client is not None:
                self.mem_refusals[client.tenant] = self.mem_refusals.get(client.tenant, 0) + 1
        self._to_client(action.client, wire.mem_reply, action)

    def _mem_recall(self, action: ev.MemRecall) -> None:
        self._to_client(action.client, wire.mem_recall, action)

    def _welcome(self, action: ev.Welcome) -> None:
        client = self.clients.get(action.client)
        if client is None or client.route is None:
            return
        endpoint = self.endpoints[client.tenant]
        spec = self.node.tenants[client.tenant]
        devices = []
        for device in range(len(client.uuids)):
            gpu = client.gpus.get(device)
            if gpu is None:
                devices.append(wire.WelcomeDevice(0, 0, 0, False))
            else:
                account = self.node.accounts[client.tenant, gpu]
                devices.append(wire.WelcomeDevice(account.limit_bytes, account.used_bytes, gpu, True))
        shares = (spec.request_ppm, spec.limit_ppm)
        frame = wire.welcome(next(self._serials), self.incarnation, spec.name, shares, spec.latency, devices)
        self._tell(endpoint, client, client.route, frame)

    # --- for the record ---------------------------------------------------------------------------------------------
    def _handed(self, action: ev.Handed) -> None:
        tally = self.tallies[action.tenant, action.gpu]
        tally.grants += 1
        tally.wait.add(action.wait_ns)
        now_ns = self.node.machines[action.gpu].now_ns
        tally.waited.add(now_ns - action.wait_ns, now_ns)
        if action.wait_ns > action.gap_ns:  # it waited already when the token became free: a hand-over
            self._handed_now = action

    def _charged(self, action: ev.Charged) -> None:
        tally = self.tallies.get((action.tenant, action.gpu))
        if tally is not None:
            if action.held_ns:  # else what was learned only after it had been charged
                tally.overuse.add(action.overuse_ns)
            tally.charged = tally.charged.plus(Work(action.launches, action.busy_ns))

    def _lease_lost(self, action: ev.LeaseLost) -> None:
        if self._may_complain(action.tenant):
            log.warning("lease-lost tenant=%s client=%d gpu=%d epoch=%d", *action)
        if (action.tenant, action.gpu) in self.tallies:
            self.tallies[action.tenant, action.gpu].leases_lost += 1

    def _overran(self, action: ev.Overran) -> None:
        if self._may_complain(action.tenant):
            log.warning("overran tenant=%s client=%d gpu=%d epoch=%d", *action)
        if (action.tenant, action.gpu) in self.tallies:
            self.tallies[action.tenant, action.gpu].overran += 1

    def _may_complain(self, tenant: str) -> bool:
        """So many lines of the log a tenant may fill; the figures count all."""
        endpoint = self.endpoints.get(tenant)
        return endpoint is None or endpoint.complaints.spend(time.monotonic_ns())
