"""The delay of messages by itself: what is measured, and what of a grant is charged to no tenant."""

from __future__ import annotations

import pytest

from scheduler_backend.core.message_delay import HOP_DIVISOR, MessageDelay, excess_ns
from scheduler_backend.core.policy import MS, Policy

POLICY = Policy()
MOST_NS = POLICY.hop_most_ns
LONG_NS = 1000 * MS  # a grant of which a part is more than any delay


def measured(**delays_ns: int) -> MessageDelay:
    delay = MessageDelay(POLICY)
    for tenant, delay_ns in delays_ns.items():
        delay.observe(tenant, 10 * MS + delay_ns, 10 * MS, contended=True)
    return delay


def test_the_first_measure_counts_whole_and_each_other_a_quarter() -> None:
    delay = measured(a=100_000)
    assert delay.uncharged_ns("a", 10 * MS, LONG_NS, contended=True) == 100_000
    delay.observe("a", 10 * MS + 200_000, 10 * MS, contended=True)
    assert delay.uncharged_ns("a", 10 * MS, LONG_NS, contended=True) == 125_000


def test_one_that_holds_for_longer_than_we_saw_has_no_delay() -> None:
    delay = MessageDelay(POLICY)
    delay.observe("a", 5 * MS, 6 * MS, contended=True)
    assert delay.uncharged_ns("a", 10 * MS, LONG_NS, contended=True) == 0


def test_no_more_is_uncharged_than_the_policy_allows() -> None:
    delay = measured(a=50 * MS)
    assert delay.uncharged_ns("a", 10 * MS, LONG_NS, contended=True) == MOST_NS
    delay.observe("b", 60 * MS, 10 * MS, contended=False)
    assert delay.uncharged_ns("b", 1000 * MS, 0, contended=False) == POLICY.hop_alone_most_ns
    assert delay.uncharged_ns("b", 5 * MOST_NS + 500, 0, contended=False) == MOST_NS + 100
    assert delay.uncharged_ns("b", MS, 0, contended=False) == MOST_NS


def test_a_grant_given_back_at_once_costs_something() -> None:
    held_ns = HOP_DIVISOR * 10_000
    delay = measured(a=100_000)
    delay.observe("b", 10 * MS, 10 * MS, contended=True)
    assert delay.uncharged_ns("a", 10 * MS, held_ns, contended=True) == 10_000


def test_what_the_quickest_tenant_needs_is_granted_to_all() -> None:
    delay = measured(a=100_000, b=40_000)
    assert delay.uncharged_ns("a", 10 * MS, 0, contended=True) == 40_000
    delay.forget("b")
    assert delay.uncharged_ns("a", 10 * MS, 0, contended=True) == 100_000


def test_a_tenant_that_was_never_heard_of_has_none_and_may_be_forgotten() -> None:
    delay = MessageDelay(POLICY)
    delay.forget("a")
    assert delay.uncharged_ns("a", 10 * MS, LONG_NS, contended=True) == 0


@pytest.mark.parametrize(("delay_ns", "held_ns", "excess"), [(100, 0, 200), (100, HOP_DIVISOR * 50, 150), (1, MS, 0)])
def test_what_two_hand_overs_take_beyond_a_part_of_the_grant(delay_ns: int, held_ns: int, excess: int) -> None:
    assert excess_ns(delay_ns, held_ns) == excess
