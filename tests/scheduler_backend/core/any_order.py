"""Random events against the invariants: deaths, late, doubled and lost messages, changes of shares, gangs, restarts.

The short form runs in test_node.py. `python -m tests.scheduler_backend.core.any_order --steps 1000000` is the long one.
Every trace is written by the daemon's own recorder and replayed at its end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bench.report import report
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.trace import Recorder, header, replay

GPUS = 3
ALL = tuple(range(GPUS))
TENANTS = [
    TenantSpec("a", 300_000, 1_000_000, 1000, False, (0, 1)),
    TenantSpec("b", 200_000, 400_000, 1000, False, (0,)),
    TenantSpec("c", 100_000, 100_000, 0, True, (0, 1)),
    TenantSpec("d", 0, 1_000_000, 500, False, (0, 1)),
    TenantSpec("e", 0, 300_000, 500, False, (1,)),
]
TURNS = [TenantSpec(name, 200_000, 1_000_000, 0, False, (2,)) for name in "pqrs"]  # may be decided in a row
TENANTS += TURNS


@dataclass
class Client:
    """What a client believes, and messages it may send twice or late."""

    number: int
    tenant: str
    gpus: tuple[int, ...]
    held: dict[int, int] = field(default_factory=dict)
    old: list[tuple[int, int]] = field(default_factory=list)
    pages: dict[int, int] = field(default_factory=dict)


SETTINGS = settings(max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))


class AnyOrder(RuleBasedStateMachine):
    """Any event at any time; `steps` counts those of all examples."""

    steps = 0
    beside = 0  # sums up those that ran beside others after each

    @initialize()
    def start(self) -> None:
        self.now_ns = 0
        self.folder = tempfile.TemporaryDirectory(prefix="gemini-any-order-")
        self.traces = 0
        self.strangers: dict[int, Client] = {}  # of before a restart
        self.clients: dict[int, Client] = {}
        self.numbers = 0
        self.begin(0)
        for spec in TENANTS:
            self.handle(ev.TenantAdded(spec))

    def begin(self, last_epoch: int) -> None:
        """A daemon starts, and its trace."""
        self.node = Node(GPUS, Policy(), last_epoch, self.now_ns)
        self.traces += 1
        self.trace = Path(self.folder.name) / f"{self.traces}.jsonl"
        gpus = [{} for _ in range(GPUS)]
        self.recorder = Recorder(self.trace, header(self.node.policy, gpus, last_epoch, self.now_ns, self.traces))
        self.wake_ns = 0
        self.virtual = [0] * GPUS
        self.recorded = 0
        self.epochs: dict[int, tuple[str, int]] = {}
        self.pages: dict[tuple[str, int], int] = {}

    def end(self) -> None:
        """A daemon ends: what it recorded gives the same actions again."""
        self.recorder.close()
        count, difference = replay(self.trace)
        assert difference is None, f"after {count} events: {difference}"
        assert count == self.recorded

    def handle(self, event: ev.Event) -> None:
        AnyOrder.steps += 1
        self.recorded += 1
        try:
            actions = self.node.handle(event, self.now_ns)
        except ev.RemoteProtocolError as error:
            self.recorder.record(self.now_ns, event, [], str(error))
            self.check()
            return
        self.recorder.record(self.now_ns, event, actions)
        for action in actions:
            if isinstance(action, ev.Grant | ev.Extend | ev.Prepare):  # what the wire can carry
                assert action.quota_ns >= 0, action
                assert action.lease_ns >= 0, action
                assert action.cap_ns > 0, action
            if isinstance(action, ev.Grant):
                assert self.pages[self.node.clients[action.client][0], action.gpu] == action.epoch
                assert action.quota_ns > 0
                assert action.lease_ns >= action.quota_ns
                tenant = self.node.clients[action.client][0]
                assert self.epochs.setdefault(action.epoch, (tenant, action.gpu)) == (tenant, action.gpu)
                if action.client in self.clients:
                    self.clients[action.client].held[action.gpu] = action.epoch
            elif isinstance(action, ev.Page):
                self.pages[action.tenant, action.gpu] = action.epoch
                shared = {seat.shared_epoch for seat in self.node.machines[action.gpu].seats.values()}
                shown = [epoch for (_, gpu), epoch in self.pages.items() if gpu == action.gpu and epoch]
                assert len([epoch for epoch in shown if epoch not in shared]) <= 1, "two tenants may launch on one GPU"
            elif isinstance(action, ev.WakeAt):
                self.wake_ns = action.at_ns
        self.check()

    def check(self) -> None:
        """After each event, not after each rule: one rule may be hundreds of Ticks."""
        self.node.check()
        for gpu, machine in enumerate(self.node.machines):
            assert machine.clock.virtual_now >= self.virtual[gpu], "virtual time went back"
            self.virtual[gpu] = machine.clock.virtual_now
        for spec in self.node.tenants.values():
            for gpu in spec.gpus:
                machine = self.node.machines[gpu]
                holds = spec.name in machine.beside.sharing or (
                    machine.holder is not None and machine.holder.name == spec.name
                )
                AnyOrder.beside += len(machine.beside.sharing)
                assert bool(self.pages.get((spec.name, gpu), 0)) == holds, "the page shows what is true"

    def any_client(self, data: st.DataObject) -> Client:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    @rule(spec=st.sampled_from(TENANTS), held=st.booleans(), memory=st.integers(0, 400))
    def joins(self, spec: TenantSpec, held: bool, memory: int) -> None:
        if len(self.clients) < 12 and spec.name in self.node.tenants:
            self.join(spec, held, memory)

    def join(self, spec: TenantSpec, held: bool, memory: int) -> None:
        self.numbers += 1
        client = Client(self.numbers, spec.name, spec.gpus)
        self.clients[client.number] = client
        last = self.node.epochs.last
        holds = tuple((gpu, last) for gpu in spec.gpus[:1] if held and last)
        self.handle(ev.ClientJoined(spec.name, client.number, ALL, holds, tuple((gpu, memory) for gpu in spec.gpus)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), held=st.booleans())
    def says_hello_again(self, data: st.DataObject, held: bool) -> None:
        client = self.any_client(data)
        holds = tuple(client.held.items()) if held else ()
        if not held:
            client.held.clear()
        self.handle(ev.ClientJoined(client.tenant, client.number, ALL, holds, ()))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), burst=st.sampled_from([0, MS, 5 * MS, 50 * MS]))
    def asks(self, data: st.DataObject, burst: int) -> None:
        client = self.any_client(data)
        self.handle(ev.TokenAsked(client.number, data.draw(st.sampled_from(client.gpus)), burst, MS))

    @rule()
    def all_take_turns(self) -> None:
        for spec in TURNS:
            if spec.name not in self.node.tenants:
                self.handle(ev.TenantAdded(spec))
            elif self.node.tenants[spec.name] != spec:
                self.handle(ev.TenantChanged(spec))
            if not any(client.tenant == spec.name for client in self.clients.values()):
                self.join(spec, False, 0)
            for client in list(self.clients.values()):
                if client.tenant == spec.name:
                    self.handle(ev.TokenAsked(client.number, 2, 0, 0))

    @precondition(lambda self: self.node.machines[2].holder)
    @rule(turns=st.integers(1, 30))
    def hosts_are_slow(self, turns: int) -> None:
        for _ in range(turns):
            self.time_passes(9 * MS)
            holder = self.node.machines[2].holder
            for number in [] if holder is None else list(holder.members):
                epoch = self.clients[number].held.pop(2, 0) if number in self.clients else 0
                if epoch:
                    event = ev.TokenReturned(number, 2, epoch, True, busy_ns=4 * MS, launches=9, held_ns=9 * MS)
                    self.handle(event)

    @precondition(lambda self: any(client.held for client in self.clients.values()))
    @rule(data=st.data(), busy=st.integers(0, 1 << 64), waited=st.integers(0, 1 << 64), little=st.booleans())
    def uses(self, data: st.DataObject, busy: int, waited: int, little: bool) -> None:
        holders = sorted(number for number, client in self.clients.items() if client.held)
        client = self.clients[data.draw(st.sampled_from(holders))]
        gpu = data.draw(st.sampled_from(sorted(client.held)))
        busy, waited = (busy % (10 * MS), waited % (10 * MS)) if little else (busy, waited)
        self.handle(ev.Used(client.number, gpu, client.held[gpu], busy, waited))

    @rule(spec=st.sampled_from(TENANTS), percent=st.integers(0, 100), span=st.sampled_from([0, MS, 1000 * MS]))
    def the_card_says(self, spec: TenantSpec, percent: int, span: int) -> None:
        self.handle(ev.Weighed(spec.name, spec.gpus[-1], span * percent // 100, span))

    @precondition(lambda self: any(client.held for client in self.clients.values()))
    @rule(data=st.data(), more=st.booleans(), twice=st.booleans())
    def returns(self, data: st.DataObject, more: bool, twice: bool) -> None:
        holders = sorted(number for number, client in self.clients.items() if client.held)
        client = self.clients[data.draw(st.sampled_from(holders))]
        gpu = data.draw(st.sampled_from(sorted(client.held)))
        epoch = client.held.pop(gpu)
        client.old.append((gpu, epoch))
        event = ev.TokenReturned(client.number, gpu, epoch, more, busy_ns=MS)
        self.handle(event)
        if twice:
            self.handle(event)

    @precondition(lambda self: any(machine.prepared for machine in self.node.machines))
    @rule(data=st.data(), followed=st.booleans(), row=st.integers(1, 4), apart=st.sampled_from([0, 300_000, 9 * MS]))
    def carried(self, data: st.DataObject, followed: bool, row: int, apart: int) -> None:
        """One, or several in a row which are told together."""
        machine = data.draw(st.sampled_from([machine for machine in self.node.machines if machine.prepared]))
        orders = [machine.prepared, *machine.behind][:row]
        times = [self.now_ns + place * apart for place in range(len(orders))]
        if self.wake_ns and times[-1] > self.wake_ns:
            times = [self.now_ns] * len(orders)
        for order, at_ns in zip(orders, times, strict=True):
            assert machine.prepared is not None
            assert machine.prepared.epoch == order.epoch, "what is carried out in a row is what was said"
            self.now_ns = at_ns
            last = order is orders[-1]
            self.handle(ev.Carried(order.gpu, order.holder_epoch, order.epoch, followed or not last))
            holder = self.clients.get(order.holder)
            if holder is not None and holder.held.get(order.gpu) == order.holder_epoch:
                holder.old.append((order.gpu, holder.held.pop(order.gpu)))  # its Return comes late, or never
            if not last and order.holder in self.node.clients:
                self.handle(ev.TokenReturned(order.holder, order.gpu, order.holder_epoch, True, followed=True))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), draining=st.booleans(), old=st.booleans())
    def renews(self, data: st.DataObject, draining: bool, old: bool) -> None:
        client = self.any_client(data)
        held = client.old if old else list(client.held.items())
        if held:
            gpu, epoch = data.draw(st.sampled_from(held))
            self.handle(ev.TokenRenewed(client.number, gpu, epoch, draining))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def returns_late(self, data: st.DataObject) -> None:
        client = self.any_client(data)
        if client.old:
            gpu, epoch = data.draw(st.sampled_from(client.old))
            self.handle(ev.TokenReturned(client.number, gpu, epoch, data.draw(st.booleans())))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        client = self.any_client(data)
        del self.clients[client.number]
        self.handle(ev.ClientDied(client.number))

    @rule(span=st.sampled_from([10_000, 300_000, MS, 5 * MS, 30 * MS, 300 * MS, 1100 * MS]))
    def time_passes(self, span: int) -> None:
        until_ns = self.now_ns + span
        ticks = 0
        while self.wake_ns and self.wake_ns <= until_ns:
            before_ns = self.wake_ns
            self.now_ns = max(self.now_ns, before_ns)
            self.handle(ev.Tick())
            ticks += 1
            assert ticks < 10_000, "the machine asks for one tick after another"
        self.now_ns = until_ns

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), needed=st.integers(0, 600), credit=st.integers(0, 300))
    def asks_memory(self, data: st.DataObject, needed: int, credit: int) -> None:
        client = self.any_client(data)
        self.handle(ev.MemoryAsked(client.number, data.draw(st.sampled_from(client.gpus)), needed, credit, 1))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), exported=st.integers(0, 600))
    def exports_memory(self, data: st.DataObject, exported: int) -> None:
        client = self.any_client(data)
        self.handle(ev.MemoryAsked(client.number, data.draw(st.sampled_from(client.gpus)), 0, 0, 1, exported))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), freed=st.integers(0, 900), recalled=st.booleans())
    def frees_memory(self, data: st.DataObject, freed: int, recalled: bool) -> None:
        client = self.any_client(data)
        self.handle(ev.MemoryReleased(client.number, data.draw(st.sampled_from(client.gpus)), freed, recalled))

    @rule(
        spec=st.sampled_from(TENANTS),
        request=st.sampled_from([0, 50_000, 200_000]),
        limit=st.sampled_from([200_000, 1_000_000]),
    )
    def changes(self, spec: TenantSpec, request: int, limit: int) -> None:
        if spec.name in self.node.tenants:
            self.handle(ev.TenantChanged(spec._replace(request_ppm=request, limit_ppm=limit)))

    @rule(spec=st.sampled_from(TENANTS), most=st.integers(0, 900), done=st.booleans())
    def is_to_have_less_memory(self, spec: TenantSpec, most: int, done: bool) -> None:
        if spec.name not in self.node.tenants:
            return
        self.handle(ev.LessWanted(spec.name, most))
        if done:
            self.handle(ev.TenantChanged(self.node.tenants[spec.name]._replace(memory_bytes=most)))

    @rule(spec=st.sampled_from(TENANTS))
    def is_removed_or_added(self, spec: TenantSpec) -> None:
        if spec.name in self.node.tenants:
            self.handle(ev.TenantRemoved(spec.name))
            self.clients = {number: client for number, client in self.clients.items() if client.tenant != spec.name}
        else:
            self.handle(ev.TenantAdded(spec._replace(request_ppm=min(spec.request_ppm, 200_000))))

    @precondition(lambda self: self.recorded > 20)
    @rule()
    def the_daemon_restarts(self) -> None:
        self.end()
        tenants = list(self.node.tenants.values())
        self.begin(self.node.epochs.last + 1_000_000)
        self.strangers |= self.clients
        self.clients = {}
        for spec in tenants:
            self.handle(ev.TenantAdded(spec))
        known = tuple((client.tenant, number) for number, client in self.strangers.items())
        self.handle(ev.ClientsKnown(known, self.now_ns + 270 * MS))

    @precondition(lambda self: self.strangers)
    @rule(data=st.data(), lives=st.booleans())
    def one_of_before_is_heard(self, data: st.DataObject, lives: bool) -> None:
        client = self.strangers.pop(data.draw(st.sampled_from(sorted(self.strangers))))
        if not lives or client.tenant not in self.node.tenants:
            self.handle(ev.ClientDied(client.number))
            return
        self.clients[client.number] = client
        held = tuple(client.held.items())
        self.handle(ev.ClientJoined(client.tenant, client.number, ALL, held, ()))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), epoch=st.integers(0, 1 << 63))
    def speaks_nonsense(self, data: st.DataObject, epoch: int) -> None:
        self.handle(ev.TokenReturned(self.any_client(data).number, 1, epoch))

    @rule(count=st.integers(1, 3))
    def restarts_with_clients_unheard(self, count: int) -> None:
        known = tuple(("a", 1_000_000 + number) for number in range(count))
        self.handle(ev.ClientsKnown(known, self.now_ns + 270 * MS))

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.end()
            self.folder.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(description="Random events against every invariant, and each trace replayed.")
    parser.add_argument("--steps", type=int, default=1_000_000, help="events that the node takes, at least")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.monotonic()
    rounds = 0
    while AnyOrder.steps < arguments.steps:
        print(f"{AnyOrder.steps} events, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        examples = settings(SETTINGS, max_examples=500, stateful_step_count=200, database=None, print_blob=True)
        machine = seed(arguments.seed + rounds)(type("AnyOrder", (AnyOrder,), {}))
        run_state_machine_as_test(machine, settings=examples)
        rounds += 1
    figures = {
        "events": AnyOrder.steps,
        "seconds": time.monotonic() - started,
        "beside_others": AnyOrder.beside,
        "violated_invariants": 0,
    }
    return report("Does any order of events violate an invariant, or replay differently?", figures, {"none": True})


if __name__ == "__main__":
    sys.exit(main())
