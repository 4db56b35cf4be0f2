"""Each row of ORDERINGS, by what a machine does under it: each field of the row is seen, and who is next is told.

A new ordering has its row in NEXT below; its other behaviours are judged by the same tests as everybody's.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS, ORDERINGS, SCALE, Policy, pick, virtual
from scheduler_backend.reference import MEANINGS
from tests.scheduler_backend.core.test_ahead import busy
from tests.scheduler_backend.core.test_machine import Bench, of
from tests.scheduler_backend.core.test_sharing import World

WHOLE_PPM = 1_000_000


class Waits(NamedTuple):
    """A tenant that waits, as pick() sees it."""

    name: str
    request_ppm: int
    clock: int
    quota_ns: int
    arrived: int
    due_ns: int = 1 << 62
    latency: bool = False

    @property
    def finish(self) -> int:
        return self.clock + virtual(self.quota_ns, self.request_ppm)


def next_of(ordering: str, *waiting: Waits, now: int = 0, now_ns: int = 0, others: int = 1) -> str:
    first, _ = pick(waiting, now, Policy(ordering=ordering), now_ns, others)
    assert first is not None
    return first.name


# `early` asked first, `least` had the least for its request, `short` would have its quota first, `last` asked last.
CANDIDATES = (
    Waits("early", 200_000, -100 * MS * SCALE // WHOLE_PPM, 10 * MS, 1),
    Waits("least", 100_000, -900 * MS * SCALE // WHOLE_PPM, 10 * MS, 2),
    Waits("short", 500_000, -890 * MS * SCALE // WHOLE_PPM, 2 * MS, 3),
    Waits("last", 300_000, -200 * MS * SCALE // WHOLE_PPM, 10 * MS, 4),
)
NEXT = {"eevdf": "short", "finish": "short", "behind": "least", "fifo": "early"}


@pytest.mark.parametrize("name", sorted({*ORDERINGS, *NEXT}))
def test_who_is_next_is_told_for_each_ordering(name: str) -> None:
    assert name in ORDERINGS
    assert name in NEXT, f"NEXT of {__name__} does not say who is next under {name}"
    assert next_of(name, *CANDIDATES) == NEXT[name]


@pytest.mark.parametrize("name", sorted(ORDERINGS))
def test_where_only_the_owed_come_who_is_ahead_waits_for_them(name: str) -> None:
    """Among two the ordering would have either way round, one of them is ahead of now."""
    owed = Waits("owed", 300_000, -MS * SCALE // WHOLE_PPM, 10 * MS, 2)
    for arrived, quota_ns, clock in ((1, 1, 1), (3, 1, 1), (1, MS, 1)):
        ahead = Waits("ahead", 300_000, clock, quota_ns, arrived)
        if ORDERINGS[name].owed_only:
            assert next_of(name, owed, ahead) == "owed"
    free = {next_of(name, owed, Waits("ahead", 300_000, 1, 1, arrived)) for arrived in (1, 3)}
    if not ORDERINGS[name].owed_only and ORDERINGS[name].key(owed) != (owed.clock, owed.arrived):
        assert "ahead" in free


@pytest.mark.parametrize("name", sorted(ORDERINGS))
def test_where_waits_are_bounded_who_would_pass_its_bound_comes_first(name: str) -> None:
    """Each of the others would be next by the ordering; the one that is long overdue comes only by its bound."""
    for late in range(len(CANDIDATES)):
        waiting = [each._replace(due_ns=1 if at == late else 1 << 62) for at, each in enumerate(CANDIDATES)]
        expected = waiting[late].name if ORDERINGS[name].bounded else NEXT[name]
        assert next_of(name, *waiting, now_ns=10_000 * MS, others=4) == expected


@pytest.mark.parametrize("name", sorted(ORDERINGS))
def test_a_tenant_that_wakes_up_owed_takes_over_where_the_ordering_says_so(name: str) -> None:
    bench = Bench(("a", 0.5), ("b", 0.5), policy=Policy(ordering=name))
    bench.ask(1)
    bench.at(5).ask(2, 1)
    bench.at(5.5).back(1, more=True)
    if bench.holder != "b":  # a comes again first
        bench.at(5.6).back(1)
        bench.at(5.7).ask(1)
    bench.at(6.5).back(2)
    assert bench.holder == "a"
    bench.at(6.6).ask(2, 1)
    bench.at(8)
    revoked = [revoke.reason for revoke in of(bench.ticked, ev.Revoke)]
    assert revoked == ([ev.PREEMPT] if ORDERINGS[name].wakes_preempt else [])


@pytest.mark.parametrize("name", sorted(ORDERINGS))
def test_hand_overs_are_decided_in_a_row_where_the_ordering_says_so(name: str) -> None:
    bench = busy(6, policy=Policy(ordering=name))
    assert (len(bench.machine.behind) > 0) is ORDERINGS[name].plans_ahead


@pytest.mark.parametrize("name", sorted(ORDERINGS))
def test_host_bound_tenants_run_beside_each_other_where_the_ordering_says_so(name: str) -> None:
    world = World(("a", 0.5, 0.45), ("b", 0.5, 0.45), ordering=name)
    world.go(600)
    assert world.most_at_once == (2 if ORDERINGS[name].shares else 1)


def test_the_page_of_the_options_names_each_ordering() -> None:
    assert [name for name in ORDERINGS if f"`{name}`" not in MEANINGS["ordering"]] == []
