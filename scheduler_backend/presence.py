"""Clients come and go: Hello, the page's hello, deaths, and those of before a restart."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
import time
from collections.abc import Callable

from scheduler_backend import wire
from scheduler_backend.bounds import MOST_CLIENTS, MOST_PEERS, MOST_PEERS_OF_ONE
from scheduler_backend.connection import Connection
from scheduler_backend.core import events as ev
from scheduler_backend.devices import Gpu
from scheduler_backend.endpoint import Client, Endpoint
from scheduler_backend.handover import Handovers
from scheduler_backend.outbox import Outbox
from scheduler_backend.peers import Peer
from scheduler_backend.roster import Roster
from scheduler_backend.tally import Tallies

log = logging.getLogger("gemini.server")

PROBE_SECONDS = 1.0  # how often a client without a page is asked whether it is still there
PROBED_AT_ONCE = 8
GONE_SECONDS = 0.25  # until the file says that a client is gone: one that has ended is not waited for after a restart


class Presence:
    """Who is there. `on_change`: tenants or clients changed, to be kept; `on_gone`: a process of a tenant is gone;
    `on_round`: it is time to look after the sockets, too.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        gpus: list[Gpu],
        roster: Roster,
        tallies: Tallies,
        outbox: Outbox,
        handovers: Handovers,
    ) -> None:
        self.loop, self.roster, self.tallies = loop, roster, tallies
        self.outbox, self.handovers, self.node = outbox, handovers, handovers.node
        self.on_change: Callable[[], None] = lambda: None
        self.on_gone: Callable[[int, str], None] = lambda _pid, _tenant: None
        self.on_round: Callable[[], None] = lambda: None
        self._gpu_of_uuid = {gpu.uuid_bytes: gpu.index for gpu in gpus}
        self._numbers = itertools.count(1)
        self._change_is_due: asyncio.TimerHandle | None = None
        self._unknown: list[int] = []  # clients that are still to be probed in this round
        self._awaited_until_ns = 0  # for so long those of before a restart may come back
        self._probing = loop.call_later(PROBE_SECONDS, self._probe)

    def close(self) -> None:
        """Look at nothing any more."""
        self._probing.cancel()
        if self._change_is_due is not None:
            self._change_is_due.cancel()

    def hello(self, endpoint: Endpoint, route: Connection, hello: wire.Hello) -> None:
        """A client says who it is, on this connection. Raises BadFrame."""
        other = route.client
        if other is not None and other.nonce != hello.nonce:
            raise wire.BadFrame("a second Hello on one connection names another client")
        client = endpoint.by_nonce.get(hello.nonce)
        if client is not None and client.route not in (None, route) and hello.serial < client.hello_serial:
            route.left = True  # said before the one that was heard, on a connection that it has left since
            return
        fresh = client is None
        if client is None:
            if len(endpoint.by_nonce) >= MOST_CLIENTS:
                raise wire.BadFrame(f"the tenant has {MOST_CLIENTS} processes already", errno.EUSERS)
            client = Client(next(self._numbers), endpoint.name, hello.nonce)
            endpoint.by_nonce[hello.nonce] = client
            endpoint.kept = ""
            self.roster.clients[client.number] = client
        if client.route is not None and client.route != route:
            client.route.client = None
            client.route.left = True  # its Hello tells anew all that may still come there
        client.route, client.hello_serial = route, hello.serial
        client.told.clear()
        route.left, route.client = False, client
        client.program, client.library, client.uuids = hello.program, hello.library, hello.uuids
        if client.peer is None:
            client.proven_pid, client.pid = route.pid, route.pid or hello.pid
            if (peer := endpoint.peers.pop(hello.nonce, None)) is not None:
                self._attach(endpoint, client, peer)
        spec = self.node.tenants[endpoint.name]
        client.gpus, client.devices = {}, {}
        for device, uuid in enumerate(hello.uuids):
            gpu = self._gpu_of_uuid.get(uuid)
            if gpu is not None and gpu in spec.gpus and gpu not in client.devices:
                client.gpus[device], client.devices[gpu] = gpu, device
        held = tuple((gpu, hello.held[device]) for device, gpu in client.gpus.items() if hello.held[device])
        memory = tuple((gpu, hello.memory[device]) for device, gpu in client.gpus.items())
        log.info(
            "hello tenant=%s client=%d pid=%d program=%s", endpoint.name, client.number, client.pid, client.program
        )
        if fresh:
            self._changed()  # before the Welcome: a daemon that dies now must know of it when it is back
        self.handovers.handle(ev.ClientJoined(endpoint.name, client.number, tuple(client.devices), held, memory))

    def listen(self, endpoint: Endpoint, peer: Peer, connection: socket.socket) -> bool:
        """Its page connection is the carrier's from now on; False where that has no room."""
        self.handovers.forget(peer.channel)
        peer.channel = self.handovers.listen(connection.fileno(), endpoint.number)
        return peer.channel >= 0

    def release(self, peer: Peer) -> None:
        """End what is kept of a process on the page socket."""
        self.handovers.forget(peer.channel)
        peer.channel = -1
        peer.close()

    def on_peer(self, endpoint: Endpoint, nonce: int, peer: Peer) -> Peer | None:
        """A process on the page socket. Its nonce may not be that of another living process."""
        client = endpoint.by_nonce.get(nonce)
        known = client.peer if client is not None else endpoint.peers.get(nonce)
        if known is not None:
            if (known.pid, known.start_time) != (peer.pid, peer.start_time):
                return None
            peer.close()  # it came back; the pidfd that we hold will do
            return known
        if client is not None:
            self._attach(endpoint, client, peer)
            self._changed()
            return peer
        self._make_room_for(endpoint, peer)
        if len(endpoint.peers) >= MOST_PEERS:
            return None
        endpoint.peers[nonce] = peer
        peer.watch(self.loop, lambda: self._peer_died(endpoint, nonce, peer))
        return peer

    def _make_room_for(self, endpoint: Endpoint, peer: Peer) -> None:
        """One process may wait for its Hello under so many nonces; each costs descriptors until the process ends."""
        same = [nonce for nonce, one in endpoint.peers.items() if one.pid == peer.pid > 0]  # 0: in no /proc of ours
        for nonce in same[: max(0, len(same) - MOST_PEERS_OF_ONE + 1)]:
            self.release(endpoint.peers.pop(nonce))

    def _peer_died(self, endpoint: Endpoint, nonce: int, peer: Peer) -> None:
        if endpoint.peers.get(nonce) is peer:
            del endpoint.peers[nonce]
        self.release(peer)

    def _attach(self, endpoint: Endpoint, client: Client, peer: Peer) -> None:
        client.peer, client.proven_pid, client.pid = peer, peer.pid, peer.pid
        endpoint.kept = ""
        peer.watch(self.loop, lambda: self.gone(endpoint, client))

    def remember(self, endpoint: Endpoint, nonce: int, pid: int, started: int) -> None:
        """A client of before the restart: if its process lives it must be heard before anything is granted."""
        peer = Peer.of_pid(pid, started)
        if peer is None and started:
            return
        client = Client(next(self._numbers), endpoint.name, nonce)
        client.pid, client.again = pid, True
        endpoint.by_nonce[nonce] = client
        endpoint.kept = ""
        self.roster.clients[client.number] = client
        if peer is not None:
            self._attach(endpoint, client, peer)
        policy = self.node.policy
        until_ns = time.monotonic_ns() + max(policy.alone_lease_ns, policy.alone_quota_ns) + policy.lease_margin_ns
        self._awaited_until_ns = until_ns
        self.handovers.handle(ev.ClientsKnown(((endpoint.name, client.number),), until_ns))

    def gone(self, endpoint: Endpoint, client: Client) -> None:
        """The client is dead or cut off for good."""
        if endpoint.by_nonce.get(client.nonce) is not client:
            return
        del endpoint.by_nonce[client.nonce]
        endpoint.kept = ""
        if client.route is not None:  # what is unread there says nothing any more
            endpoint.drop(client.route)
        self.roster.clients.pop(client.number, None)
        self.on_gone(client.proven_pid, endpoint.name)
        if client.peer is not None:
            self.release(client.peer)
        endpoint.counters.forget(client.number)
        self.tallies.forget(endpoint.name, client.number)
        log.info("gone tenant=%s client=%d pid=%d", endpoint.name, client.number, client.pid)
        self.handovers.handle(ev.ClientDied(client.number))
        self.change_soon()

    def change_soon(self) -> None:
        """Keep it, in a while: many die at once, or come and go."""
        if self._change_is_due is None:
            self._change_is_due = self.loop.call_later(GONE_SECONDS, self._changed)

    def _changed(self) -> None:
        if self._change_is_due is not None:
            self._change_is_due.cancel()
            self._change_is_due = None
        self.on_change()

    def _probe(self) -> None:
        """Clients whose process is not known by a pidfd: a connection that ended, or a Welcome that cannot be sent,
        says that they are gone, and so does the end of the wait for those of before a restart.
        """
        self._probing = self.loop.call_later(PROBE_SECONDS, self._probe)
        if not self._unknown:
            self._unknown = [number for number, client in self.roster.clients.items() if client.peer is None]
            self._probe_some()
        self.on_round()

    def _probe_some(self) -> None:
        """Not all in one turn of the loop: a tenant may have many such clients."""
        for number in self._unknown[:PROBED_AT_ONCE]:
            client = self.roster.clients.get(number)
            if client is None or client.peer is not None:
                continue
            if client.route is not None:
                self.outbox.welcome(ev.Welcome(number))
            elif time.monotonic_ns() >= self._awaited_until_ns:
                self.gone(self.roster.endpoints[client.tenant], client)
        del self._unknown[:PROBED_AT_ONCE]
        if self._unknown:
            self.loop.call_soon(self._probe_some)
