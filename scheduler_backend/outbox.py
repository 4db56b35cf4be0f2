"""What the node says to clients, done: actions to frames and page words.

A write never waits: who does not read is cut off.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets
from collections.abc import Callable
from typing import Any

from libhook.core import lib
from scheduler_backend import wire
from scheduler_backend.connection import Connection
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.endpoint import Client, Endpoint
from scheduler_backend.roster import Roster
from scheduler_backend.tally import Tallies

MARKS = int(lib.WIRE_MARKS)


class Outbox:
    """The writing half. `on_gone` is called in the loop for a client that is dead or cut off for good."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node: Node, roster: Roster, tallies: Tallies, incarnation: int
    ) -> None:
        self.loop, self.node, self.roster, self.tallies = loop, node, roster, tallies
        self.incarnation = incarnation
        self.on_gone: Callable[[Endpoint, Client], None] = lambda _endpoint, _client: None
        self.to_tell = 0  # to be told with the answer to the message at hand
        self._mark_key = secrets.token_bytes(16)
        self._serials = itertools.count(1)
        self.performers: dict[type, Callable[[Any], None]] = {
            ev.Page: self._page,
            ev.Grant: self._grant,
            ev.Extend: self._extend,
            ev.Revoke: self.revoke,
            ev.Welcome: self.welcome,
            ev.MemReply: self._mem_reply,
            ev.MemRecall: self._mem_recall,
        }

    # --- writes -----------------------------------------------------------------------------------------------------
    @staticmethod
    def _send(endpoint: Endpoint, route: Connection, frame: bytes) -> bool:
        return endpoint.settle(route, route.send(frame))

    def refuse(self, endpoint: Endpoint, route: Connection, serial: int, code: int, text: str) -> None:
        """Say on this connection why its message of that serial was not taken."""
        self._send(endpoint, route, wire.error(next(self._serials), serial, code, text))

    def to_client(self, number: int, write: Callable[[Any, int, int], bytes], action: Any) -> bool:
        """Write what the action says to this client, its device and a serial given; False: it cannot be reached."""
        client = self.roster.clients.get(number)
        if client is None or client.route is None:
            return False
        endpoint = self.roster.endpoints[client.tenant]
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
            self.loop.call_soon(self.on_gone, endpoint, client)

    def _page(self, action: ev.Page) -> None:
        endpoint = self.roster.endpoints.get(action.tenant)
        if endpoint is not None:
            endpoint.page.store(action.gpu, action.epoch)

    def _grant(self, action: ev.Grant) -> None:
        client = self.roster.clients.get(action.client)
        if client is not None:
            client.returned.pop(action.gpu, None)  # who joins the same grant again gives it back again
        self.to_client(action.client, wire.grant, action)

    def _extend(self, action: ev.Extend) -> None:
        self.to_client(action.client, wire.extend, action)

    def revoke(self, action: ev.Revoke) -> None:
        """Ask a client for the token."""
        client = self.roster.clients.get(action.client)
        if client is not None:
            self.tallies.revoke(client.tenant, action.gpu)
        self.to_client(action.client, wire.revoke, action)

    def mark_of(self, client: Client, gpu: int) -> int:
        """Return the mark of what a tenant exports of a card while it is charged for that: never 0, nor another's."""
        account = self.node.accounts[client.tenant, gpu]
        words = f"{self.roster.endpoints[client.tenant].serial}/{gpu}/{account.times_left}"
        digest = hashlib.blake2b(words.encode(), key=self._mark_key, digest_size=8).digest()
        return int.from_bytes(digest) % (MARKS - 1) + 1

    def _mem_reply(self, action: ev.MemReply) -> None:
        if self.to_tell:
            action = action._replace(credit_bytes=self.to_tell)
            self.to_tell = 0
        if not action.granted:
            client = self.roster.clients.get(action.client)
            if client is not None:
                self.tallies.refuse_memory(client.tenant)
        self.to_client(action.client, wire.mem_reply, action)

    def _mem_recall(self, action: ev.MemRecall) -> None:
        self.to_client(action.client, wire.mem_recall, action)

    def welcome(self, action: ev.Welcome) -> None:
        """Tell a client its limits."""
        client = self.roster.clients.get(action.client)
        if client is None or client.route is None:
            return
        endpoint = self.roster.endpoints[client.tenant]
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
