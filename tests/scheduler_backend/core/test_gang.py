"""Gangs by tables of events: all tokens or none, one assembles at a time, and unused GPUs are left to others."""

from __future__ import annotations

from typing import Any

from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec

GRANT, REVOKE = ev.Grant, ev.Revoke


class Bench:
    """A node with a clock that the test moves; each tenant has one client, numbered as it comes."""

    def __init__(self, *tenants: tuple[Any, ...]) -> None:
        self.node = Node(3, Policy())
        self.now_ns = 0
        self.wake_ns = 0
        self.epochs: dict[tuple[int, int], int] = {}
        for number, (name, request, *gpus) in enumerate(tenants, start=1):
            latency = name.startswith("latency")
            self.do(ev.TenantAdded(TenantSpec(name, round(request * 1e6), 1_000_000, 0, latency, tuple(gpus))))
            self.do(ev.ClientJoined(name, number, tuple(gpus)))
            for gpu in gpus:
                self.node.gangs.asked(name, gpu)

    def do(self, event: ev.Event) -> list[Any]:
        actions = self.node.handle(event, self.now_ns)
        self.node.check()
        for action in actions:
            if isinstance(action, ev.WakeAt):
                self.wake_ns = action.at_ns
            elif isinstance(action, ev.Grant):
                self.epochs[action.client, action.gpu] = action.epoch
        return actions

    def at(self, now_ms: float) -> Bench:
        while self.wake_ns and self.wake_ns <= now_ms * MS:
            self.now_ns = max(self.now_ns, self.wake_ns)
            self.do(ev.Tick())
        self.now_ns = round(now_ms * MS)
        return self

    def ask(self, client: int, gpu: int) -> list[tuple[str, int, int]]:
        return told(self.do(ev.TokenAsked(client, gpu)))

    def back(self, client: int, gpu: int, *, more: bool = False) -> list[tuple[str, int, int]]:
        return told(self.do(ev.TokenReturned(client, gpu, self.epochs[client, gpu], more, idle=not more)))


def told(actions: list[Any]) -> list[tuple[str, int, int]]:
    """(what, client, gpu) of grants and revocations."""
    return [(type(a).__name__, a.client, a.gpu) for a in actions if isinstance(a, GRANT | REVOKE)]


def test_a_gang_waits_until_all_its_tokens_are_free_and_then_has_all() -> None:
    bench = Bench(("s", 0.3, 0), ("t", 0.3, 1), ("g", 0.3, 0, 1))
    bench.ask(1, 0)
    bench.ask(2, 1)
    bench.at(1)
    assert bench.ask(3, 0) == []
    assert bench.ask(3, 1) == []
    assert bench.at(9).back(1, 0) == []  # kept
    assert bench.node.machines[0].reservation.gang == "g"
    assert bench.at(10).back(2, 1) == [("Grant", 3, 0), ("Grant", 3, 1)]
    one, other = bench.node.machines[0], bench.node.machines[1]
    assert one.grant.quota_until_ns == other.grant.quota_until_ns


def test_while_it_assembles_others_run_no_longer_than_until_the_last_holder_is_done() -> None:
    bench = Bench(("s", 0.3, 0), ("t", 0.3, 1), ("g", 0.3, 0, 1))
    bench.ask(1, 0)
    bench.at(2).ask(2, 1)  # its quota ends at 12
    bench.ask(3, 0)
    bench.ask(3, 1)
    assert bench.at(5).back(1, 0, more=True) == [("Grant", 1, 0)]
    assert bench.node.machines[0].grant.quota_until_ns == bench.node.machines[1].grant.quota_until_ns


def test_a_kept_token_is_idle_for_one_quota_at_most() -> None:
    bench = Bench(("s", 0.3, 0), ("t", 0.3, 1), ("g", 0.3, 0, 1))
    bench.ask(2, 1)
    bench.at(1).ask(3, 0)
    bench.ask(3, 1)
    bench.at(10).ask(1, 0)  # the other's kernel does not end
    assert bench.node.machines[0].holder is None
    bench.at(25)
    holder = bench.node.machines[0].holder
    assert holder is not None
    assert holder.name == "s"


def test_what_it_does_not_use_now_is_kept_for_it_and_joined_at_once() -> None:
    bench = Bench(("g", 0.5, 0, 1), ("s", 0.5, 1))
    assert bench.ask(1, 0) == [("Grant", 1, 0)]
    assert bench.at(1).ask(2, 1) == []
    assert bench.at(2).ask(1, 1) == [("Grant", 1, 1)]
    bench.back(1, 1)
    assert bench.at(4).back(1, 0) == [("Grant", 2, 1)]


def test_a_gpu_that_it_leaves_unused_is_left_to_others_until_it_asks_there() -> None:
    bench = Bench(("g", 0.5, 0, 1), ("s", 0.4, 1))
    for turn in range(3):
        bench.at(10 * turn).ask(1, 0)
        bench.at(10 * turn + 5).back(1, 0)
    bench.at(40).ask(1, 0)
    assert bench.at(41).ask(2, 1) == [("Grant", 2, 1)]
    assert bench.at(42).ask(1, 1) == [("Revoke", 1, 0)]  # it never holds and waits


def test_when_one_part_is_asked_back_all_are() -> None:
    bench = Bench(("g", 0.5, 0, 1), ("latency", 0.4, 1))
    bench.ask(1, 0)
    bench.ask(1, 1)
    assert sorted(bench.at(3).ask(2, 1)) == [("Revoke", 1, 0), ("Revoke", 1, 1)]
    assert bench.back(1, 1, more=True) == [("Grant", 2, 1)]


def test_a_gang_is_not_preempted_twice_within_a_quota() -> None:
    bench = Bench(("g", 0.5, 0, 1), ("latency", 0.4, 1))
    for gpu in (0, 1):
        bench.do(ev.TokenAsked(1, gpu, 8 * MS, 0))  # with bursts that fill a quota, and so last beyond its pardon
    bench.at(3).ask(2, 1)
    for gpu in (0, 1):
        bench.back(1, gpu, more=True)
    assert bench.at(4).back(2, 1) == [("Grant", 1, 0), ("Grant", 1, 1)]
    assert bench.at(5).ask(2, 1) == []
    bench.at(12.9)
    assert not bench.node.machines[1].grant.closing_ns
    bench.at(13)
    assert bench.node.machines[1].grant.closing_ns


def test_of_two_gangs_that_lack_the_same_gpu_the_one_that_waits_longest_has_the_claim() -> None:
    bench = Bench(("a", 0.4, 0, 1), ("b", 0.4, 1, 2), ("s", 0.2, 1))
    bench.ask(3, 1)
    bench.at(1)
    for client, gpu in ((1, 0), (1, 1), (2, 1), (2, 2)):
        assert bench.ask(client, gpu) == []
    assert [machine.reservation.gang for machine in bench.node.machines] == ["a", "a", ""]
    assert bench.at(8).back(3, 1) == [("Grant", 1, 0), ("Grant", 1, 1)]
    assert bench.at(9).back(1, 0) == []
    assert bench.back(1, 1) == [("Grant", 2, 1), ("Grant", 2, 2)]


def test_a_gang_that_is_removed_leaves_no_claim() -> None:
    bench = Bench(("g", 0.5, 0, 1), ("s", 0.4, 1), ("t", 0.4, 0))
    bench.ask(2, 1)
    bench.ask(1, 0)
    bench.ask(1, 1)
    bench.ask(3, 0)
    bench.do(ev.TenantRemoved("g"))
    assert [machine.reservation.gang for machine in bench.node.machines] == ["", "", ""]
    assert bench.node.machines[0].holder is not None


def test_a_tenant_that_uses_one_of_its_gpus_is_like_any_other_until_it_asks_for_a_second() -> None:
    node = Node(2, Policy())
    for number, name in enumerate("ab", start=1):
        node.handle(ev.TenantAdded(TenantSpec(name, 500_000, gpus=(0, 1))), 0)
        node.handle(ev.ClientJoined(name, number, (0, 1)), 0)
    actions = node.handle(ev.TokenAsked(1, 0), 0) + node.handle(ev.TokenAsked(2, 1), 0)
    assert told(actions) == [("Grant", 1, 0), ("Grant", 2, 1)]
    assert told(node.handle(ev.TokenAsked(1, 1), MS)) == [("Revoke", 1, 0)]  # it never holds and waits
    node.check()


def test_two_gangs_that_are_ahead_where_the_other_waits_are_not_passed_over_for_each_other_for_ever() -> None:
    bench = Bench(("a", 0.5, 0, 1), ("b", 0.5, 0, 1))
    for number, name in ((0, "b"), (1, "a")):  # each is ahead of what it is owed where the other waits
        bench.node.machines[number].seats[name].clock += 1 << 60
    bench.ask(1, 0)
    bench.at(1).ask(2, 1)
    bench.at(2).back(1, 0)
    assert bench.node.machines[1].holder is not None
    bench.back(2, 1, more=True)
    bench.at(3).ask(1, 0)
    assert any(machine.holder is not None for machine in bench.node.machines)


def test_a_gpu_that_it_wants_again_by_a_late_return_is_one_that_it_uses() -> None:
    bench = Bench(("s", 0.3, 1))
    bench.do(ev.TenantAdded(TenantSpec("g", 300_000, 1_000_000, 0, False, (0, 1))))
    s, g = 1, 2
    bench.ask(s, 1)
    bench.back(s, 1)
    bench.do(ev.ClientJoined("g", g, (0, 1), ((1, bench.epochs[s, 1]),)))  # of before a restart
    assert ("Grant", g, 1) in told(bench.do(ev.TokenReturned(g, 1, bench.epochs[s, 1], True)))
    bench.do(ev.ClientsKnown((("s", 9),), 300 * MS))
    assert ("Revoke", g, 1) in bench.ask(g, 0), "it may not hold one and wait for the other"
