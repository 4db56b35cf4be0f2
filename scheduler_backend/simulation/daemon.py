"""The daemon of a simulated world: its queue, the pure node machine, the carrier, and the messages of both.

Theory of operation. Everything that happens is a call in one heap, in the order of its time. Messages take a hop, in
order within a connection, and now and then a stall; a hand-over that was prepared is carried out without one, and told
to the node later. What a process makes of what it is told is decided elsewhere (library.py).
"""

from __future__ import annotations

import collections
import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from scheduler_backend.core import events as ev
from scheduler_backend.core.line import CarriedOut, Line, grant_of, left_of, told
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.simulation.process import Process


class Network(NamedTuple):
    """How long things take. Defaults: what a 2-CPU machine shows."""

    hop_ns: int = 60_000
    hop_spread_ns: int = 40_000  # mean of an exponential on top
    stall: float = 0.0  # part of the messages that meet a stall of up to stall_ns
    stall_ns: int = 20 * MS
    carry_ns: int = 40_000  # drain seen to page written
    taken_ns: int = 400_000  # ... and that told, where the Return came with the word and nothing else is to come
    behind: bool = True  # Returns come with the word of the drain
    wake_ns: int = 40_000  # page written to first launch; a timer's lateness
    prepared: bool = True  # hand-overs that were decided ahead are carried out


class Watcher(Protocol):
    """Sees all that happens, in a World (world.py)."""

    def on_actions(self, world: Any, event: ev.Event, actions: list[ev.Action]) -> None: ...
    def on_work(self, world: Any, process: Process, gpu: int, start_ns: int, end_ns: int) -> None: ...


class Daemon:
    """The node, and the ways to and from its processes. `receive` takes what arrives at one of them, over a connection;
    `world` is what watchers are shown. Whoever puts the parts together sets both.
    """

    def __init__(
        self,
        gpus: int,
        policy: Policy | None,
        network: Network | None,
        watchers: Sequence[Watcher],
        seed: int,
        check_every: int,
    ) -> None:
        self.world: Any = None
        self.receive: Callable[[Process, int, Any], None] = lambda _process, _connection, _action: None
        self.policy, self.network = policy or Policy(), network or Network()
        self.node = Node(gpus, self.policy)
        self.watchers, self.check_every = list(watchers), check_every
        self.random = random.Random(seed)
        self.now_ns = 0
        self.event_ns = 0  # when what the node hears was: what was carried out is told later
        self.handled = 0
        self.handovers = 0
        self.processes: dict[int, Process] = {}
        self.pages: dict[tuple[str, int], int] = {}
        self.orders: dict[int, Line] = collections.defaultdict(Line)
        self.given_up: set[tuple[int, int]] = set()  # (client, gpu): its work may overlap with another's
        self.down = False
        self.stopped: set[int] = set()  # GPUs whose next order was decided for a holder that wants more, and it did not
        self._carried: list[CarriedOut] = []  # and not told yet
        self._queue: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._serial = 0
        self._wake_ns = 0
        self._last: dict[tuple[int, bool], int] = {}  # (client, to it?) -> when its last message arrives
        self._performers: dict[type, Callable[[Any], None]] = {
            ev.Grant: self._tell,
            ev.Extend: self._tell,
            ev.Revoke: self._tell,
            ev.Page: self._page,
            ev.Prepare: self._prepare,
            ev.Unprepare: lambda action: self.orders[action.gpu].drop(action),
            ev.WakeAt: self._wake_at,
            ev.LeaseLost: lambda action: self.given_up.add((action.client, action.gpu)),
            ev.Overran: lambda action: self.given_up.add((action.client, action.gpu)),
            ev.Handed: self._handed,
        }

    # --- the queue ---------------------------------------------------------------------------------------------------
    def at(self, when_ns: int, call: Callable[..., object], *arguments: Any) -> None:
        """Call it then; what is due at the same time comes in the order of these calls."""
        self._serial += 1
        heapq.heappush(self._queue, (when_ns, self._serial, call, arguments))

    def run_until(self, until_ns: int) -> None:
        """Let all happen that is due by then."""
        queue = self._queue
        while queue and queue[0][0] <= until_ns:
            self.now_ns, _, call, arguments = heapq.heappop(queue)
            call(*arguments)
        self.now_ns = until_ns

    def die(self) -> None:
        """It handles nothing any more, and what was prepared or not told yet is lost."""
        self.down = True
        self.orders.clear()
        self._carried.clear()
        self.stopped.clear()

    def come_back(self) -> None:
        """Begin anew, with epochs that are above all of before."""
        self.node = Node(len(self.node.machines), self.policy, self.node.epochs.last + 1_000_000, self.now_ns)
        self.down = False
        self._wake_ns = 0

    # --- the node ----------------------------------------------------------------------------------------------------
    def handle(self, event: ev.Event) -> None:
        """Give the node an event, after what was carried out."""
        if self._carried and type(event) not in ev.MEMORY:
            self._tell_carried(event)
        self._give(event, self.now_ns)

    def _tell_carried(self, following: ev.Event | None = None) -> None:
        """What was carried out is told, in the order of its time, before anything else is (`following`)."""
        carried, self._carried = self._carried, []
        self.stopped.clear()
        for event, at_ns, more in told(carried, following, bool(self.node.gangs.gangs)):
            self._give(event, at_ns or self.now_ns, more)

    def _give(self, event: ev.Event, at_ns: int, more: bool = False) -> None:
        self.event_ns = at_ns
        actions = self.node.handle(event, at_ns)
        self.handled += 1
        performers = self._performers
        for action in left_of(actions, more) if type(event) is ev.Carried else actions:
            perform = performers.get(type(action))
            if perform is not None:
                perform(action)
        if self.check_every and self.handled % self.check_every == 0:
            self.node.check()
        for watcher in self.watchers:
            watcher.on_actions(self.world, event, actions)

    def _page(self, action: ev.Page) -> None:
        self.pages[action.tenant, action.gpu] = action.epoch

    def _prepare(self, action: ev.Prepare) -> None:
        self.orders[action.gpu].put(action)

    def _handed(self, action: ev.Handed) -> None:
        self.handovers += 1

    def _wake_at(self, action: ev.WakeAt) -> None:
        self._wake_ns = action.at_ns
        if action.at_ns:
            self.at(max(action.at_ns, self.now_ns) + self.network.wake_ns // 2, self._tick, action.at_ns)

    def _tick(self, at_ns: int) -> None:
        if at_ns == self._wake_ns and not self.down:
            self.handle(ev.Tick())

    # --- messages ----------------------------------------------------------------------------------------------------
    def _hop(self, process: Process, to_client: bool) -> int:
        """When a message sent now arrives: in the order of sending."""
        network = self.network
        took_ns = network.hop_ns + process.program.hop_ns + int(self.random.expovariate(1.0) * network.hop_spread_ns)
        if network.stall and self.random.random() < network.stall:
            took_ns += self.random.randrange(network.stall_ns)
        key = (process.number, to_client)
        at_ns = max(self.now_ns + took_ns, self._last.get(key, 0))
        self._last[key] = at_ns
        return at_ns

    def _tell(self, action: Any) -> None:
        process = self.processes.get(action.client)
        if process is not None:
            self.at(self._hop(process, True), self.receive, process, process.connection, action)

    def send(self, process: Process, event: ev.Event) -> None:
        """Send the daemon a message of this process."""
        self.at(self._hop(process, False), self._deliver, process, process.connection, event)

    def _deliver(self, process: Process, connection: int, event: ev.Event) -> None:
        if connection == process.connection and process.alive and not self.down:
            self.handle(event)

    # --- the carrier -------------------------------------------------------------------------------------------------
    def give_back(self, process: Process, said: ev.TokenReturned) -> None:
        """It has drained. Where an order stands for that the carrier sees to it, else the Return goes as a message."""
        order = next(iter(self.orders[said.gpu].orders), None)
        if (
            self.network.prepared
            and order is not None
            and said.gpu not in self.stopped
            and (order.holder, order.holder_epoch) == (process.number, said.epoch)
            and order.not_before_ns <= self.now_ns
            and (not said.want_more or order.wanting_from_ns <= self.now_ns)
        ):
            self.at(self.now_ns + self.network.carry_ns, self._carry, order, process, process.connection, said)
        else:
            self.send(process, said)

    def _carry(self, order: ev.Prepare, holder: Process, connection: int, said: ev.TokenReturned) -> None:
        """The carrier: one page is cleared, the other shows its epoch, and who sleeps there wakes."""
        if self.down or connection != holder.connection:
            return
        line = self.orders[order.gpu]
        if order not in line.orders[:1]:
            self.send(holder, said)
            return
        line.carried(self.now_ns)
        if not said.want_more:
            self.stopped.add(order.gpu)
        self.pages[order.holder_tenant, order.gpu], self.pages[order.tenant, order.gpu] = 0, order.epoch
        for number in order.clients:
            process = self.processes.get(number)
            if process is not None:
                grant = grant_of(order, number)
                self.at(self.now_ns + self.network.wake_ns, self.receive, process, process.connection, grant)
        self._carried.append(CarriedOut(self.now_ns, order, said if self.network.behind else None))
        if not self.network.behind:
            self.send(holder, said)
        if not line.orders or order.gpu in self.stopped or not self.network.behind:
            self.at(self.now_ns + self.network.taken_ns, self._told_late)

    def untold(self, tenant: str, gpu: int) -> bool:
        """Has the carrier handed it the token, which the node does not know yet?"""
        return any((one.order.tenant, one.order.gpu) == (tenant, gpu) for one in self._carried)

    def _told_late(self) -> None:
        if self._carried and not self.down:
            self._tell_carried()
