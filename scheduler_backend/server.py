"""The tenants of this node and their sockets: the whole shell around the node machine. It decides nothing.

Each tenant has a socket of its own, and that socket is the identity: a client is (tenant, nonce), whatever else
it says. Nothing that one tenant does costs the others anything: it may come, say and ask so much and no more.

The server is one object in layers, each of which knows only those below it:
    server    tenants, their sockets, the end
    intake    what clients say
    presence  clients that come and go
    handover  the node, its deadlines, and hand-overs that were prepared
    outbox    what is said to clients, and counted
Beside it stand connection.py (one connection), endpoint.py (those of one tenant) and peers.py (its page socket). One
thread, one event loop; the node is touched in handover.py and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any

from scheduler_backend import descriptors
from scheduler_backend.bounds import USERS_PART
from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.devices import Gpu
from scheduler_backend.endpoint import DESCRIPTORS_OF_PAGE, Endpoint, free_number
from scheduler_backend.intake import Intake
from scheduler_backend.outside import Outside
from scheduler_backend.peers import PageListener
from scheduler_backend.problem import Problem
from scheduler_backend.tally import SeatTally
from scheduler_backend.trace import Recorder
from scheduler_backend.witness import Witness

log = logging.getLogger("gemini.server")

LONGEST_PATH = 107  # bytes of sun_path, less its NUL
OPEN_AGAIN_SECONDS, SHUT_OUT_SECONDS = 0.1, 2.0  # after a tenant's processes came too often, at least and at most


class Server(Intake):
    """All tenants of this node. Use `start_tenant` and friends from the loop's thread only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        state_dir: Path,
        gpus: list[Gpu],
        policy: Policy,
        recorder: Recorder,
        **more: Any,
    ) -> None:
        super().__init__(loop, gpus, policy, recorder, **more)
        self.state_dir = state_dir
        self.shares: dict[str, str] = {}  # tenants that are named shares, and whence; the registry writes it
        self.outside = Outside(gpus, state_dir / "tenants", self._owners, self._pids)
        self._witness = Witness(gpus, self._pids, self.handle)
        self.on_gone = self._witness.left
        self._weighing: asyncio.Task[None] | None = None
        self.idle_exit_seconds: float | None = None  # the daemon ends so long after its last tenant
        self._closed = False
        self._room = descriptors.Room()
        self._deaf = False  # descriptors are short

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
        number = free_number(one.number for one in self.endpoints.values())
        endpoint: Endpoint | None = None
        try:
            endpoint = Endpoint(spec.name, number, folder, self.incarnation, owner)
            endpoint.listener = self._listener(endpoint)
        except OSError as error:
            if endpoint is not None:
                endpoint.close()
            raise Problem(
                f"tenant {spec.name}: {folder}: {error.strerror}; see that {self.state_dir} can be written"
            ) from None
        self.endpoints[spec.name] = endpoint
        for commons in (self.messages, self.hellos):
            commons.join(endpoint.party)
        for gpu in spec.gpus:
            self.tallies[spec.name, gpu] = SeatTally(self.node.policy.window_ns)
        self.handle(ev.TenantAdded(spec))
        for nonce, pid, started in known or ():
            self._remember(endpoint, nonce, pid, started)
        self.loop.add_reader(endpoint.fd, self._readable, endpoint)
        return endpoint

    def _listener(self, endpoint: Endpoint) -> PageListener:
        return PageListener(
            self.loop,
            endpoint.page_path,
            endpoint.page,
            self.incarnation,
            lambda nonce, peer: self._on_peer(endpoint, nonce, peer),
            lambda peer, connection: self._listen(endpoint, peer, connection),
            endpoint.users,
            lambda: self._room_for_page(endpoint),
            endpoint.owner,
        )

    # --- who may come in --------------------------------------------------------------------------------------------
    def _knocked(self, endpoint: Endpoint) -> None:
        """Somebody wants to come in. A tenant whose processes come ever anew is not listened to for a while."""
        now_ns = time.monotonic_ns()
        if self._crowds(endpoint):
            self._keep_out(endpoint, now_ns, OPEN_AGAIN_SECONDS, "descriptors")
            return
        try:
            came = endpoint.accept(now_ns)
        except OSError as error:  # no descriptor is left, to us or to this machine
            log.warning("accept tenant=%s error=%s", endpoint.name, error)
            self._mind_room(False)
            return
        if came and not self._room.take(came):
            self._mind_room(False)
        if endpoint.newcomers.left >= 1 or endpoint.shut:
            return
        pause = min(max(OPEN_AGAIN_SECONDS, endpoint.newcomers.lacks_seconds()), SHUT_OUT_SECONDS)
        self._keep_out(endpoint, now_ns, pause, "connections")

    def _keep_out(self, endpoint: Endpoint, now_ns: int, seconds: float, reason: str) -> None:
        endpoint.shut_out()
        endpoint.pauses += 1
        if endpoint.complaints.spend(now_ns):
            log.warning("shut-out tenant=%s seconds=%.1f reason=%s", endpoint.name, seconds, reason)
        self.loop.call_later(seconds, self._let_in, endpoint)

    def _crowds(self, endpoint: Endpoint) -> bool:
        """Have the tenants of its user as many descriptors as one user may? Else one would have all, and nobody new be
        let in."""
        owner = endpoint.person
        if owner in (None, 0, os.geteuid()):
            return False
        return self.descriptors_of(owner) >= descriptors.limit() // USERS_PART

    def descriptors_of(self, person: int | None) -> int:
        """How many of ours the connections of a user's tenants take, about."""
        return sum(one.descriptors for one in self.endpoints.values() if one.person == person)

    def _let_in(self, endpoint: Endpoint) -> None:
        if self.endpoints.get(endpoint.name) is endpoint and not self._deaf:
            endpoint.open()

    def _look_after_sockets(self) -> None:
        """Files of sockets that somebody removed are made anew, so that processes may still join; nobody is cut off.
        What fails is tried again at the next look. Who does not end its handshake is cut off."""
        self._mind_room(self._room.count())
        now_ns = time.monotonic_ns()
        for endpoint in self.endpoints.values():
            if (late := endpoint.end_slow(now_ns)) and endpoint.complaints.spend(now_ns):
                log.warning("handshake-late tenant=%s connections=%d", endpoint.name, late)
            if endpoint.complete():
                continue
            log.warning("sockets-made-anew tenant=%s folder=%s", endpoint.name, endpoint.folder)
            try:
                endpoint.reopen()
            except OSError as error:
                log.error("sockets-lost tenant=%s error=%s", endpoint.name, error)

    def _mind_room(self, room: bool) -> None:
        """Listen to those who are new; where there is no room for them, to nobody."""
        if room != self._deaf:
            return
        self._deaf = not room
        log.warning("descriptors short=%s; nobody new is listened to while they are", self._deaf)
        for endpoint in self.endpoints.values():
            if room:
                self._let_in(endpoint)
            else:
                endpoint.shut_out()

    def _room_for_page(self, endpoint: Endpoint) -> bool:
        """May one more page connection of this tenant be accepted?"""
        if self._crowds(endpoint):
            return False
        if not self._deaf and not self._room.take(DESCRIPTORS_OF_PAGE):
            self._mind_room(False)
        return not self._deaf

    # --- changes, and the end ---------------------------------------------------------------------------------------
    def change_tenant(self, spec: TenantSpec) -> None:
        """Shares or memory of a running tenant change; its GPUs stay."""
        self.handle(ev.TenantChanged(spec))
        self.on_change()

    def debt_ns(self, name: str) -> int:
        """How long it takes until a tenant has paid for what it had of any GPU before it was its."""
        now_ns = time.monotonic_ns()
        return max(self.node.machines[gpu].charges.debt_ns(name, now_ns) for gpu in self.node.tenants[name].gpus)

    def stop_tenant(self, name: str) -> None:
        """Close a tenant's sockets; its clients hear a Revoke and then find nobody."""
        endpoint = self.endpoints[name]
        self.handle(ev.TenantRemoved(name))
        del self.endpoints[name]
        for commons in (self.messages, self.hellos):
            commons.leave(endpoint.party)
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
        for client in endpoint.by_nonce.values():
            self.clients.pop(client.number, None)
            if client.peer is not None:
                self._release(client.peer)
        for peer in endpoint.peers.values():
            self._release(peer)
        endpoint.close()

    def _owners(self) -> dict[str, int | None]:
        """Whose each tenant is; None: not one user's."""
        return {name: endpoint.owner for name, endpoint in self.endpoints.items()}

    def _pids(self) -> dict[int, str]:
        """pid -> tenant of all processes that are known; never by what a client says of itself."""
        return {client.proven_pid: client.tenant for client in self.clients.values() if client.proven_pid}

    def weigh(self) -> None:
        """Where some are host-bound, or were of late, ask the cards what tenants use; the answers are events."""
        if self._weighing is not None and not self._weighing.done():
            return
        now_ns = time.monotonic_ns()
        wanted = {
            machine.gpu: [seat.name for seat in machine.seats.values() if seat.members]
            for machine in self.node.machines
            if machine.beside.host_bound or machine.charges.weigh_until_ns > now_ns
        }
        self._weighing = self.loop.create_task(self._witness.weigh(wanted))

    def close(self) -> None:
        """End: holders are told, sockets close. Tenants stay in state.json, and their folders where they are, for
        containers have them mounted: they find the next daemon's sockets there."""
        if self._closed:
            return
        self._closed = True
        for due in (self._probing, self._change_is_due, self._weighing):
            if due is not None:
                due.cancel()
        self._hear_carrier()
        self._carrier.close()
        self._lines.clear()
        for client in self.clients.values():
            machine_gpus = client.devices
            for gpu in machine_gpus:
                machine = self.node.machines[gpu]
                if machine.holder is not None and machine.holder.name == client.tenant:
                    self._revoke(ev.Revoke(client.number, gpu, machine.epoch, ev.SHUTDOWN))
        for endpoint in self.endpoints.values():
            self._close(endpoint)
        self._timer.close()
