"""The only tenant sockets: bytes to events, actions to writes and timers. It decides nothing.

Each tenant has a ROUTER socket of its own, and that socket is the identity: a client is (tenant, nonce), whatever
else it says. A malformed frame costs its sender the connection: it is told why, what it held is taken for ended, and
whatever comes from that connection afterwards is dropped unread. Nobody else notices. A tenant may say so much and no
more: what it says beyond waits, and only its own.

Theory of operation. One thread, one event loop; the node machine is touched here and nowhere else. pyzmq is used
without its asyncio layer: the socket's descriptor says only that something changed (edge-triggered), so after each
look *and after each send* the socket's own EVENTS are asked, or a message could lie unseen until the next one. A
tenant that floods is read in slices, between which the others have their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import zmq

from scheduler_backend import descriptors, wire
from scheduler_backend.allowance import Allowance
from scheduler_backend.carrier import Carrier
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.seat import Standing
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.devices import Gpu, used_by
from scheduler_backend.outside import Outside
from scheduler_backend.page import TokenPage
from scheduler_backend.peers import PageListener, Peer
from scheduler_backend.problem import Problem
from scheduler_backend.tally import Counters, SeatTally, Series
from scheduler_backend.timer import Timer
from scheduler_backend.trace import Recorder

log = logging.getLogger("gemini.server")

LONGEST_PATH = 107  # bytes of sun_path, less its NUL
SLICE = 16  # messages of one tenant read before the others have their turn
# A process that takes and gives back 400 times a second says 800 messages; who floods waits, and only its own words do.
MESSAGES_A_SECOND, MESSAGES_AT_ONCE, MESSAGES_A_CLIENT = 1000, 1000, 250
FLOOD_PAUSE_SECONDS = 0.02
IO_THREADS = 4
HELLOS_A_SECOND, HELLOS_AT_ONCE = 20, 300  # of one tenant: each costs as much as twenty other messages
REFUSALS_LOGGED_A_SECOND = 5  # of one tenant
MOST_CLIENTS = 256  # processes of one tenant
MOST_LOOKS = 64  # at a card for what a tenant's context takes: where it cannot say, it is not asked for ever
MOST_PEERS = 512  # processes of one tenant that have a page and did not say Hello yet
MOST_BANNED = 4096  # connections of one tenant that are remembered as closed
STALLED_NS = 3_000_000  # a deadline this much late: we did not run
HEAR_NS = 2_000_000  # so long we then listen before leases lapse
PROBE_SECONDS = 1.0  # how often a client without a page is asked whether it is still there
# As plain integers: operations on pyzmq's enums cost a microsecond each, ten in cold caches.
_EVENTS, _POLLIN, _NOBLOCK, _MORE = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.NOBLOCK), int(zmq.SNDMORE | zmq.NOBLOCK)
_send_frame = zmq.backend.Socket.send  # the same without the sugar: two frames a message, two messages a hand-over
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS = 1000, 5000


class Client:
    """One process of a tenant, from its first Hello to its death; it may reconnect in between."""

    __slots__ = ("devices", "gpus", "library", "nonce", "number", "peer", "pid", "program", "route", "tenant", "uuids")

    def __init__(self, number: int, tenant: str, nonce: int) -> None:
        self.number = number
        self.tenant = tenant
        self.nonce = nonce
        self.route: bytes | None = None  # its connection, as the ROUTER names it
        self.peer: Peer | None = None  # known by the page socket
        self.pid = 0  # as it says; for people, until the peer is known
        self.program = ""
        self.library = ""
        self.uuids: tuple[bytes, ...] = ()
        self.gpus: dict[int, int] = {}  # its device -> our GPU
        self.devices: dict[int, int] = {}  # our GPU -> its device


class Endpoint:
    """A tenant's two sockets, its page, and its clients."""

    def __init__(
        self, name: str, folder: Path, router: zmq.Socket[bytes], page: TokenPage, owner: int | None = None
    ) -> None:
        self.name = name
        self.owner = owner  # the only user who gets in, besides root and us; None: whoever sees the folder
        self.folder = folder
        self.router = router
        self.page = page
        self.listener: PageListener | None = None
        self.fd = int(router.getsockopt(zmq.FD))
        self.by_route: dict[bytes, Client] = {}
        self.by_nonce: dict[int, Client] = {}
        self.peers: dict[int, Peer] = {}  # nonce -> process that has not said Hello yet
        self.banned: dict[bytes, None] = {}
        self.counters = Counters()
        self.draining = False  # a look at the socket is already due
        self.allowance = Allowance(MESSAGES_A_SECOND, MESSAGES_AT_ONCE)
        self.pauses = 0  # how often it was not read for having said too much
        self.paused = False
        self.told_ungated = False
        self.hellos = Allowance(HELLOS_A_SECOND, HELLOS_AT_ONCE)
        self.postponed: list[bytes] | None = None  # a Hello that has to wait
        self.complaints = Allowance(REFUSALS_LOGGED_A_SECOND, 4 * REFUSALS_LOGGED_A_SECOND)

    @property
    def socket_path(self) -> Path:
        """What the tenant gets as GEMINI_SOCKET."""
        return self.folder / "tenant.sock"


class Server:
    """All tenants of this node. Use `start_tenant` and friends from the loop's thread only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        state_dir: Path,
        gpus: list[Gpu],
        policy: Policy,
        recorder: Recorder,
        *,
        last_epoch: int,
        started_ns: int,
        incarnation: int,
    ) -> None:
        self.loop, self.state_dir, self.gpus, self.recorder = loop, state_dir, gpus, recorder
        self.incarnation = incarnation
        self.started_ns = started_ns
        self.node = Node(len(gpus), policy, last_epoch, started_ns)
        self.endpoints: dict[str, Endpoint] = {}
        self.shares: dict[str, str] = {}  # tenants that are named shares, and whence; the registry writes it
        self.clients: dict[int, Client] = {}
        self.tallies: dict[tuple[str, int], SeatTally] = {}
        self.gaps = [Series() for _ in gpus]
        self.refused: dict[str, int] = {}  # protocol errors by errno name
        self.mem_refusals: dict[str, int] = {}
        self.context_bytes: dict[tuple[str, int], int] = {}  # what a context of a tenant takes of a card
        self._context_looks: dict[tuple[str, int], int] = {}  # how often the card was asked for it
        self._context_bytes = 0  # to be told with the answer to the message at hand
        self.handle_ns = Series()  # decision to sent, of hand-overs that went through the machine
        self.carried = 0  # hand-overs that were carried out as prepared
        self.on_change: Callable[[], None] = lambda: None  # tenants or clients changed: keep it
        self.outside = Outside(gpus, state_dir / "tenants", lambda: list(self.node.tenants), self._pids)
        self._gpu_of_uuid = {gpu.uuid_bytes: gpu.index for gpu in gpus}
        self._numbers = itertools.count(1)
        self._serials = itertools.count(1)
        # libzmq counts no connections: a tenant that connects without end delays who shares its thread.
        self._context = zmq.Context(io_threads=IO_THREADS)
        self._context.set(zmq.MAX_SOCKETS, 8192)
        self._timer = Timer(loop, self._on_time)
        self._carrier = Carrier(loop, self._hear_carrier)
        self._orders: dict[int, ev.Prepare] = {}  # per GPU, what may be carried out while nothing else happens
        self._handed_now: ev.Handed | None = None
        self._wake_ns = 0
        self._postponed = False
        self._closed = False
        self._deaf = False  # descriptors are short
        self._probing = loop.call_later(PROBE_SECONDS, self._probe)
        self._performers: dict[type, Callable[[Any], None]] = {
            ev.Page: self._page,
            ev.Grant: self._grant,
            ev.Prepare: self._prepare,
            ev.Unprepare: self._unprepare,
            ev.Extend: self._extend,
            ev.Revoke: self._revoke,
            ev.Welcome: self._welcome,
            ev.MemReply: self._mem_reply,
            ev.MemRecall: self._mem_recall,
            ev.WakeAt: self._wake_at,
            ev.Handed: self._handed,
            ev.Charged: self._charged,
            ev.LeaseLost: self._lease_lost,
            ev.Overran: self._overran,
        }

    # --- tenants ----------------------------------------------------------------------------------------------------
    def start_tenant(
        self, spec: TenantSpec, known: list[tuple[int, int, int]] | None = None, owner: int | None = None
    ) -> Endpoint:
        """Open a tenant's sockets and tell the node. `known`: (nonce, pid, start time) of clients of before a restart.

        With an `owner` (a user's number) no other user's process gets in, but root's and the daemon's own; without one
        whoever sees the folder does: in a cluster it is mounted into one pod, whatever user that runs as. Raises
        Problem where its folder cannot be made or its path is too long.
        """
        folder = self.state_dir / "tenants" / spec.name
        longest = folder / "tenant.sock.page"
        if (over := len(os.fsencode(longest)) - LONGEST_PATH) > 0:
            raise Problem(
                f"the socket path {longest} is {over} bytes too long for a Unix socket ({LONGEST_PATH}); "
                f"choose a shorter --state-dir or name"
            )
        router = self._context.socket(zmq.ROUTER)
        page: TokenPage | None = None
        try:
            self._configure(router)
            router.setsockopt(zmq.AFFINITY, 1 << len(self.endpoints) % IO_THREADS)
            users = frozenset() if owner is None else frozenset({owner, os.getuid(), 0})
            for user in users:
                router.setsockopt(zmq.IPC_FILTER_UID, user)
            self._bind(folder, router, owner)
            page = TokenPage(spec.name, self.incarnation)
            endpoint = Endpoint(spec.name, folder, router, page, owner)
            endpoint.listener = PageListener(
                self.loop,
                longest,
                page,
                self.incarnation,
                lambda nonce, peer: self._on_peer(endpoint, nonce, peer),
                self._listen,
                users,
            )
        except (OSError, zmq.ZMQError) as error:
            router.close(0)
            if page is not None:
                page.close()
            raise Problem(
                f"tenant {spec.name}: {folder}: {error.strerror}; see that {self.state_dir} can be written"
            ) from None
        self.endpoints[spec.name] = endpoint
        for gpu in spec.gpus:
            self.tallies[spec.name, gpu] = SeatTally()
        self.handle(ev.TenantAdded(spec))
        for nonce, pid, started in known or ():
            self._remember(endpoint, nonce, pid, started)
        self.loop.add_reader(endpoint.fd, self._readable, endpoint)
        self._readable(endpoint)
        return endpoint

    @staticmethod
    def _bind(folder: Path, router: zmq.Socket[bytes], owner: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755 if owner is None else 0o700)
        if owner is not None and os.getuid() == 0:
            os.chown(folder, owner, -1)
        router.bind(f"ipc://{folder / 'tenant.sock'}")
        (folder / "tenant.sock").chmod(0o666)  # who may reach it is decided by who sees the folder

    def _look_after_sockets(self) -> None:
        """Files of sockets that somebody removed are made anew, so that processes may still join; nobody is cut off.

        Where descriptors run out they are taken away until there are some again: who comes then tries again later.
        """
        short = descriptors.left() < descriptors.RESERVE
        if short != self._deaf:
            self._deaf = short
            log.warning("descriptors short=%s; nobody new is listened to while they are", short)
        for endpoint in self.endpoints.values():
            page_path = endpoint.folder / "tenant.sock.page"
            if short:
                self._unbind(endpoint)
                continue
            if endpoint.socket_path.exists() and page_path.exists():
                continue
            log.warning("sockets-made-anew tenant=%s folder=%s", endpoint.name, endpoint.folder)
            try:
                self._unbind(endpoint)
                self._bind(endpoint.folder, endpoint.router, endpoint.owner)
                if endpoint.listener is not None:
                    endpoint.listener.reopen()
            except (OSError, zmq.ZMQError) as error:
                log.error("sockets-lost tenant=%s error=%s", endpoint.name, error)

    @staticmethod
    def _unbind(endpoint: Endpoint) -> None:
        with contextlib.suppress(zmq.ZMQError):  # it was not bound
            endpoint.router.unbind(f"ipc://{endpoint.socket_path}")
        with contextlib.suppress(OSError):
            endpoint.socket_path.unlink()

    @staticmethod
    def _configure(router: zmq.Socket[bytes]) -> None:
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a send to who is gone is an error, not a loss
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)  # who comes back with its routing id gets it
        router.setsockopt(zmq.MAXMSGSIZE, wire.MAX_SIZE)  # libzmq closes the connection that sends more
        router.setsockopt(zmq.LINGER, 200)
        router.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        router.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        router.setsockopt(zmq.BACKLOG, 512)

    def change_tenant(self, spec: TenantSpec) -> None:
        """Shares or memory of a running tenant change; its GPUs stay."""
        self.handle(ev.TenantChanged(spec))
        self.on_change()

    def stop_tenant(self, name: str) -> None:
        """Close a tenant's sockets; its clients hear a Revoke and then find nobody."""
        endpoint = self.endpoints[name]
        self.handle(ev.TenantRemoved(name))
        del self.endpoints[name]
        self._close(endpoint)
        with contextlib.suppress(OSError):
            endpoint.folder.rmdir()
        for gpu in range(len(self.gpus)):
            self.tallies.pop((name, gpu), None)
            self.context_bytes.pop((name, gpu), None)
            self._context_looks.pop((name, gpu), None)
        self.mem_refusals.pop(name, None)
        self.on_change()

    def _close(self, endpoint: Endpoint) -> None:
        self.loop.remove_reader(endpoint.fd)
        endpoint.router.close()  # lingers for what was sent
        if endpoint.listener is not None:
            endpoint.listener.close()
        for client in endpoint.by_nonce.values():
            self.clients.pop(client.number, None)
            if client.peer is not None:
                self._release(client.peer)
        for peer in endpoint.peers.values():
            self._release(peer)
        endpoint.page.close()
        with contextlib.suppress(OSError):
            endpoint.socket_path.unlink()

    def _pids(self) -> dict[int, str]:
        """pid -> tenant of all processes that are known."""
        return {client.peer.pid if client.peer else client.pid: client.tenant for client in self.clients.values()}

    def close(self) -> None:
        """End: holders are told, sockets close. Tenants stay in state.json, and their folders where they are, for
        containers have them mounted: they find the next daemon's sockets there."""
        if self._closed:
            return
        self._closed = True
        self._probing.cancel()
        self._hear_carrier()
        self._carrier.close()
        self._orders.clear()
        for client in self.clients.values():
            machine_gpus = client.devices
            for gpu in machine_gpus:
                machine = self.node.machines[gpu]
                if machine.holder is not None and machine.holder.name == client.tenant:
                    self._revoke(ev.Revoke(client.number, gpu, machine.epoch, ev.SHUTDOWN))
        for endpoint in self.endpoints.values():
            self._close(endpoint)
        self._timer.close()
        self._context.term()

    # --- events in, actions out -------------------------------------------------------------------------------------
    def handle(self, event: ev.Event) -> None:
        """Give one event to the node and do what it says. Raises RemoteProtocolError for a client's fault."""
        if self._orders:
            self._take_back()
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

    # --- prepared hand-overs ----------------------------------------------------------------------------------------
    def _take_back(self) -> None:
        """No order is carried out from here on; those that were are events that came first."""
        for gpu, order in list(self._orders.items()):
            carried_ns = self._carrier.take_back(gpu)
            if carried_ns:
                self._orders.pop(gpu, None)
                self.carried += 1
                self._give(ev.Carried(gpu, order.holder_epoch, order.epoch), carried_ns)

    def _put_out(self) -> None:
        """Let the orders that stand be carried out (again)."""
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

    def _readable(self, endpoint: Endpoint) -> None:
        """Read a slice of what is there; come back at once if there is more."""
        endpoint.draining = False
        if endpoint.paused:
            return
        router = endpoint.router
        allowed = min(SLICE, endpoint.allowance.whole(time.monotonic_ns()))
        for count in range(SLICE):
            if count >= allowed:
                self._pause(endpoint)
                return
            if router.closed:
                return
            try:
                if not cast(int, router.get(_EVENTS)) & _POLLIN:
                    return
                frames = router.recv_multipart(_NOBLOCK)
            except zmq.ZMQError as error:
                log.error("receive tenant=%s error=%s", endpoint.name, error)
                return
            endpoint.allowance.take()
            self._receive(endpoint, frames)
            if endpoint.paused:
                return
        self._look_again(endpoint)

    def _pause(self, endpoint: Endpoint) -> None:
        """It has said too much: what it says now waits, in the kernel and in libzmq, and costs nobody else anything."""
        endpoint.paused = True
        endpoint.pauses += 1
        self.loop.call_later(FLOOD_PAUSE_SECONDS, self._unpause, endpoint)

    def _unpause(self, endpoint: Endpoint) -> None:
        endpoint.paused = False
        if self.endpoints.get(endpoint.name) is not endpoint:
            return
        if (frames := endpoint.postponed) is not None:
            endpoint.postponed = None
            self._receive(endpoint, frames)
        self._look_again(endpoint)

    def _look_again(self, endpoint: Endpoint) -> None:
        if not endpoint.draining and not endpoint.paused:
            endpoint.draining = True
            self.loop.call_soon(self._readable, endpoint)

    def _receive(self, endpoint: Endpoint, frames: list[bytes]) -> None:
        route = frames[0]
        if route in endpoint.banned:
            return
        client = endpoint.by_route.get(route)
        serial = 0
        try:
            if len(frames) != 2:
                raise wire.BadFrame(f"a message of {len(frames) - 1} frames; one message is one frame")
            kind, message = wire.decode(frames[1])
            serial = message.header.serial
            if kind == wire.HELLO:
                if not endpoint.hellos.spend(time.monotonic_ns()):
                    endpoint.postponed = frames
                    self._pause(endpoint)
                    return
                self._hello(endpoint, route, wire.hello_of(message))
            elif client is None:
                raise wire.BadFrame("the first message must be a Hello")
            elif kind == wire.STATS:
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
            else:
                event = wire.event_of(kind, message, client.number, client.gpus)
                if wire.asks_for_context(kind, message):
                    gpu = client.gpus[message.device]
                    self._context_bytes = self._cost_of_context(client, gpu, message.credit_bytes)
                if type(event) is not ev.TokenAsked or not self._waits_already(event):
                    self.handle(event)
        except wire.BadFrame as error:
            self._ban(endpoint, route, serial, error.code, str(error))
        except ev.RemoteProtocolError as error:
            self._ban(endpoint, route, serial, errno.EPROTO, str(error))

    def _waits_already(self, event: ev.TokenAsked) -> bool:
        """It asks for what it waits for: nothing to decide, and no reason to take a prepared hand-over back."""
        known = self.node.clients.get(event.client)
        seat = self.node.machines[event.gpu].seats.get(known[0]) if known is not None else None
        member = seat.members.get(event.client) if seat is not None else None
        return member is not None and member.standing is Standing.WAITS

    def _ban(self, endpoint: Endpoint, route: bytes, serial: int, code: int, text: str) -> None:
        """A protocol error costs the sender its connection, and nobody else anything."""
        name = errno.errorcode.get(code, "EPROTO")
        self.refused[name] = self.refused.get(name, 0) + 1
        if endpoint.complaints.spend(time.monotonic_ns()):
            log.warning("refused tenant=%s code=%s reason=%s", endpoint.name, name, text)
        self._send(endpoint, route, wire.error(next(self._serials), serial, code, text))
        while len(endpoint.banned) >= MOST_BANNED:
            del endpoint.banned[next(iter(endpoint.banned))]
        endpoint.banned[route] = None
        client = endpoint.by_route.get(route)
        if client is not None:
            self._gone(endpoint, client)

    # --- clients ----------------------------------------------------------------------------------------------------
    def _hello(self, endpoint: Endpoint, route: bytes, hello: wire.Hello) -> None:
        other = endpoint.by_route.get(route)
        if other is not None and other.nonce != hello.nonce:
            raise wire.BadFrame("a second Hello on one connection names another client")
        client = endpoint.by_nonce.get(hello.nonce)
        fresh = client is None
        if client is None:
            if len(endpoint.by_nonce) >= MOST_CLIENTS:
                raise wire.BadFrame(f"the tenant has {MOST_CLIENTS} processes already", errno.EUSERS)
            client = Client(next(self._numbers), endpoint.name, hello.nonce)
            endpoint.by_nonce[hello.nonce] = client
            self.clients[client.number] = client
        if client.route is not None:
            endpoint.by_route.pop(client.route, None)
        client.route = route
        endpoint.by_route[route] = client
        client.program, client.library, client.uuids = hello.program, hello.library, hello.uuids
        if client.peer is None:
            client.pid = hello.pid
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
            self._set_allowance(endpoint)
            self.on_change()  # before the Welcome: a daemon that dies now must know of it when it is back
        self.handle(ev.ClientJoined(endpoint.name, client.number, tuple(client.devices), held, memory))

    @staticmethod
    def _set_allowance(endpoint: Endpoint) -> None:
        endpoint.allowance.rate = max(MESSAGES_A_SECOND, min(8, len(endpoint.by_nonce)) * MESSAGES_A_CLIENT)

    def _listen(self, peer: Peer, connection: socket.socket) -> bool:
        """Its page connection is the carrier's from now on; False where that has no room."""
        self._carrier.forget(peer.channel)
        peer.channel = self._carrier.listen(connection.fileno())
        return peer.channel >= 0

    def _release(self, peer: Peer) -> None:
        self._carrier.forget(peer.channel)
        peer.channel = -1
        peer.close()

    def _on_peer(self, endpoint: Endpoint, nonce: int, peer: Peer) -> Peer | None:
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
            self.on_change()
            return peer
        if len(endpoint.peers) >= MOST_PEERS:
            return None
        endpoint.peers[nonce] = peer
        peer.watch(self.loop, lambda: self._peer_died(endpoint, nonce, peer))
        return peer

    def _peer_died(self, endpoint: Endpoint, nonce: int, peer: Peer) -> None:
        if endpoint.peers.get(nonce) is peer:
            del endpoint.peers[nonce]
        self._release(peer)

    def _attach(self, endpoint: Endpoint, client: Client, peer: Peer) -> None:
        client.peer, client.pid = peer, peer.pid
        peer.watch(self.loop, lambda: self._gone(endpoint, client))

    def _remember(self, endpoint: Endpoint, nonce: int, pid: int, started: int) -> None:
        """A client of before the restart: if its process lives it must be heard before anything is granted."""
        peer = Peer.of_pid(pid, started)
        if peer is None and started:
            return
        client = Client(next(self._numbers), endpoint.name, nonce)
        client.pid = pid
        endpoint.by_nonce[nonce] = client
        self.clients[client.number] = client
        if peer is not None:
            self._attach(endpoint, client, peer)
        policy = self.node.policy
        until_ns = time.monotonic_ns() + max(policy.alone_lease_ns, policy.alone_quota_ns) + policy.lease_margin_ns
        self.handle(ev.ClientsKnown(((endpoint.name, client.number),), until_ns))

    def _gone(self, endpoint: Endpoint, client: Client) -> None:
        """The client is dead or cut off for good."""
        if endpoint.by_nonce.get(client.nonce) is not client:
            return
        del endpoint.by_nonce[client.nonce]
        if client.route is not None:
            endpoint.by_route.pop(client.route, None)
        self.clients.pop(client.number, None)
        if client.peer is not None:
            self._release(client.peer)
        endpoint.counters.forget(client.number)
        log.info("gone tenant=%s client=%d pid=%d", endpoint.name, client.number, client.pid)
        self.handle(ev.ClientDied(client.number))
        self.loop.call_soon(self.on_change)

    def _probe(self) -> None:
        """Clients whose process is not known by a pidfd: a Welcome that cannot be sent says that they are gone."""
        self._probing = self.loop.call_later(PROBE_SECONDS, self._probe)
        for client in [client for client in self.clients.values() if client.peer is None and client.route is not None]:
            self._welcome(ev.Welcome(client.number))
        self._look_after_sockets()

    # --- writes -----------------------------------------------------------------------------------------------------
    def _send(self, endpoint: Endpoint, route: bytes, frame: bytes) -> bool:
        router = endpoint.router
        try:
            _send_frame(router, route, _MORE)
            _send_frame(router, frame, _NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                log.error("send tenant=%s error=%s", endpoint.name, error)
            return False
        if not endpoint.draining and cast(int, router.get(_EVENTS)) & _POLLIN:
            self._look_again(endpoint)
        return True

    def _to_client(self, number: int, write: Callable[[Any, int, int], bytes], action: Any) -> None:
        client = self.clients.get(number)
        if client is None or client.route is None:
            return
        endpoint = self.endpoints[client.tenant]
        device = client.devices.get(action.gpu)
        if device is None:
            return
        if not self._send(endpoint, client.route, write(action, device, next(self._serials))):
            self._unreachable(endpoint, client)

    def _unreachable(self, endpoint: Endpoint, client: Client) -> None:
        """Its connection is gone. With a pidfd its death would be seen, so it may come back; else it is dead."""
        if client.route is not None:
            endpoint.by_route.pop(client.route, None)
            client.route = None
        if client.peer is None:
            self.loop.call_soon(self._gone, endpoint, client)

    def _page(self, action: ev.Page) -> None:
        endpoint = self.endpoints.get(action.tenant)
        if endpoint is not None:
            endpoint.page.store(action.gpu, action.epoch)

    def _grant(self, action: ev.Grant) -> None:
        self._to_client(action.client, wire.grant, action)

    def _extend(self, action: ev.Extend) -> None:
        self._to_client(action.client, wire.extend, action)

    def _revoke(self, action: ev.Revoke) -> None:
        client = self.clients.get(action.client)
        if client is not None and (client.tenant, action.gpu) in self.tallies:
            self.tallies[client.tenant, action.gpu].revokes += 1
        self._to_client(action.client, wire.revoke, action)

    def _cost_of_context(self, client: Client, gpu: int, held: int) -> int:
        """What a tenant's contexts take of a card; 0: unknown. Measured with its first, which is all it can spoil."""
        account = client.tenant, gpu
        known, looks = self.context_bytes.get(account, 0), self._context_looks.get(account, 0)
        if not known and looks < MOST_LOOKS:
            self._context_looks[account] = looks + 1
            pid = client.peer.pid if client.peer is not None else client.pid
            known = self.context_bytes[account] = max(0, used_by(self.gpus[gpu], pid) - held)
        return known

    def _mem_reply(self, action: ev.MemReply) -> None:
        if self._context_bytes:
            action = action._replace(credit_bytes=self._context_bytes)
            self._context_bytes = 0
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
        if not self._send(endpoint, client.route, frame):
            self._unreachable(endpoint, client)

    def _wake_at(self, action: ev.WakeAt) -> None:
        self._wake_ns = action.at_ns
        self._postponed = False
        self._timer.set(action.at_ns)

    # --- for the record ---------------------------------------------------------------------------------------------
    def _handed(self, action: ev.Handed) -> None:
        tally = self.tallies[action.tenant, action.gpu]
        tally.grants += 1
        tally.wait.add(action.wait_ns)
        if action.wait_ns > action.gap_ns:  # it waited already when the token became free: a hand-over
            self._handed_now = action

    def _charged(self, action: ev.Charged) -> None:
        tally = self.tallies.get((action.tenant, action.gpu))
        if tally is not None:
            if action.held_ns:  # else what was learned only after it had been charged
                tally.overuse.add(action.overuse_ns)
            tally.busy_ns += action.busy_ns
            tally.launches += action.launches

    def _lease_lost(self, action: ev.LeaseLost) -> None:
        log.warning("lease-lost tenant=%s client=%d gpu=%d epoch=%d", *action)
        if (action.tenant, action.gpu) in self.tallies:
            self.tallies[action.tenant, action.gpu].leases_lost += 1

    def _overran(self, action: ev.Overran) -> None:
        log.warning("overran tenant=%s client=%d gpu=%d epoch=%d", *action)
        if (action.tenant, action.gpu) in self.tallies:
            self.tallies[action.tenant, action.gpu].overran += 1
