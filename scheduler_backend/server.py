"""The tenants of this node and their sockets: the whole shell around the node machine. It decides nothing.

Each tenant has a socket of its own, and that socket is the identity: a client is (tenant, nonce), whatever else
it says. Nothing that one tenant does costs the others anything: it may come, say and ask so much and no more.

Its parts, each given those above it that it needs:
    roster        which tenants and clients there are
    tally         what is counted of them
    context_cost  what contexts take of a card
    outbox        what is said to clients
    handover      the node, its deadlines, and hand-overs that were prepared
    presence      clients that come and go
    intake        what clients say
    doors         who may come in
Where a part has something for one below it, it calls what the server has put in its place (on_...). Beside them stand
connection.py (one connection), endpoint.py (those of one tenant) and peers.py (its page socket). One thread, one event
loop; the node is given events in handover.py and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from scheduler_backend.context_cost import ContextCost
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.devices import Gpu
from scheduler_backend.doors import Doors
from scheduler_backend.endpoint import Client, Endpoint, free_number
from scheduler_backend.handover import Handovers
from scheduler_backend.intake import Intake
from scheduler_backend.outbox import Outbox
from scheduler_backend.outside import Outside
from scheduler_backend.peers import PageListener
from scheduler_backend.presence import Presence
from scheduler_backend.problem import Problem
from scheduler_backend.roster import Roster
from scheduler_backend.tally import SeatTally, Tallies
from scheduler_backend.trace import Recorder
from scheduler_backend.witness import Witness

LONGEST_PATH = 107  # bytes of sun_path, less its NUL


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
        self.loop, self.gpus, self.recorder, self.state_dir = loop, gpus, recorder, state_dir
        self.started_ns, self.incarnation = started_ns, incarnation
        self.node = recorder.node = Node(len(gpus), policy, last_epoch, started_ns)
        self.roster = Roster()
        self.tally = Tallies(len(gpus), policy.window_ns, self.roster.may_complain)
        self._contexts = ContextCost(gpus)
        self._outbox = Outbox(loop, self.node, self.roster, self.tally, incarnation)
        self._handovers = Handovers(loop, self.node, recorder, self.roster, self.tally, self._outbox)
        self._presence = Presence(loop, gpus, self.roster, self.tally, self._outbox, self._handovers)
        self._intake = Intake(
            loop, self.roster, self.tally, self._contexts, self._outbox, self._handovers, self._presence
        )
        self._doors = Doors(loop, self.roster)
        self.outside = Outside(gpus, state_dir / "tenants", self.roster.owners, self.roster.pids)
        self._witness = Witness(gpus, self.roster.pids, self._handovers.handle)
        self._outbox.on_gone = self._presence.gone
        self._handovers.look_again = self._intake.look_again
        self._presence.on_gone = self._witness.left
        self._presence.on_round = self._doors.look_after
        self._intake.on_knock = self._doors.knock
        self._weighing: asyncio.Task[None] | None = None
        self._closed = False
        self.shares: dict[str, str] = {}  # tenants that are named shares, and whence; the registry writes it
        self.idle_exit_seconds: float | None = None  # the daemon ends so long after its last tenant

    # --- for those outside ------------------------------------------------------------------------------------------
    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Its tenants, by name."""
        return self.roster.endpoints

    @property
    def clients(self) -> dict[int, Client]:
        """Their processes, by number."""
        return self.roster.clients

    @property
    def tallies(self) -> dict[tuple[str, int], SeatTally]:
        """What was counted, by tenant and GPU."""
        return self.tally.seats

    @property
    def refused(self) -> dict[str, int]:
        """Protocol errors by errno name."""
        return self._intake.refused

    @property
    def carried(self) -> int:
        """How many hand-overs were carried out as prepared."""
        return self._handovers.carried

    def on_change(self, call: Callable[[], None]) -> None:
        """Call this where tenants or clients changed: they are to be kept."""
        self._presence.on_change = call

    def change_soon(self) -> None:
        """Have it kept, in a while."""
        self._presence.change_soon()

    def catch_up(self) -> None:
        """Let the node hear what was carried out, for who looks at it."""
        self._handovers.catch_up()

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
        self._intake.join(endpoint)
        self.tally.add(spec)
        self._handovers.handle(ev.TenantAdded(spec))
        for nonce, pid, started in known or ():
            self._presence.remember(endpoint, nonce, pid, started)
        self._intake.begin(endpoint)
        return endpoint

    def _listener(self, endpoint: Endpoint) -> PageListener:
        return PageListener(
            self.loop,
            endpoint.page_path,
            endpoint.page,
            self.incarnation,
            lambda nonce, peer: self._presence.on_peer(endpoint, nonce, peer),
            lambda peer, connection: self._presence.listen(endpoint, peer, connection),
            endpoint.users,
            lambda: self._doors.has_room_for_page(endpoint),
            endpoint.owner,
        )

    # --- changes, and the end ---------------------------------------------------------------------------------------
    def change_tenant(self, spec: TenantSpec) -> None:
        """Shares or memory of a running tenant change; its GPUs stay."""
        self._handovers.handle(ev.TenantChanged(spec))
        self._presence.on_change()

    def recall(self, name: str, memory_bytes: int) -> None:
        """Ask a running tenant's processes for memory that they hold unused, as it uses more than that."""
        self._handovers.handle(ev.LessWanted(name, memory_bytes))

    def debt_ns(self, name: str) -> int:
        """How long it takes until a tenant has paid for what it had of any GPU before it was its."""
        now_ns = time.monotonic_ns()
        return max(self.node.machines[gpu].charges.debt_ns(name, now_ns) for gpu in self.node.tenants[name].gpus)

    def stop_tenant(self, name: str) -> None:
        """Close a tenant's sockets; its clients hear a Revoke and then find nobody."""
        endpoint = self.endpoints[name]
        self._handovers.handle(ev.TenantRemoved(name))
        del self.endpoints[name]
        self._intake.leave(endpoint)
        self._close(endpoint)
        with contextlib.suppress(OSError):
            endpoint.folder.rmdir()
        self.tally.remove(name)
        self._contexts.forget(name)
        self._presence.on_change()

    def _close(self, endpoint: Endpoint) -> None:
        self._intake.end(endpoint)
        for client in endpoint.by_nonce.values():
            self.clients.pop(client.number, None)
            if client.peer is not None:
                self._presence.release(client.peer)
        for peer in endpoint.peers.values():
            self._presence.release(peer)
        endpoint.close()

    def weigh(self) -> None:
        """Where some are host-bound, or were of late, or did not drain in time, ask the cards what tenants use; the
        answers are events.
        """
        if self._weighing is not None and not self._weighing.done():
            return
        now_ns = time.monotonic_ns()
        wanted = {
            machine.gpu: [seat.name for seat in machine.seats.values() if seat.members]
            for machine in self.node.machines
            if machine.beside.host_bound
            or machine.charges.weigh_until_ns > now_ns
            or any(seat.is_adrift for seat in machine.seats.values())
        }
        self._weighing = self.loop.create_task(self._witness.weigh(wanted))

    def close(self) -> None:
        """End: holders are told, sockets close. Tenants stay in state.json, and their folders where they are, for
        containers have them mounted: they find the next daemon's sockets there."""
        if self._closed:
            return
        self._closed = True
        self._presence.close()
        if self._weighing is not None:
            self._weighing.cancel()
        self._handovers.end()
        for client in self.clients.values():
            machine_gpus = client.devices
            for gpu in machine_gpus:
                machine = self.node.machines[gpu]
                if machine.holder is not None and machine.holder.name == client.tenant:
                    self._outbox.revoke(ev.Revoke(client.number, gpu, machine.epoch, ev.SHUTDOWN))
        for endpoint in self.endpoints.values():
            self._close(endpoint)
        self._handovers.close()
