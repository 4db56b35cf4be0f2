"""The tenants of a GPU by themselves: who waits, who may come, how long turns are."""

from __future__ import annotations

import pytest

from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.seat import Seat, State
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from scheduler_backend.core.tenants import Tenants

POLICY = Policy()
LONG_AGO_NS = 1 + POLICY.company_ns  # after which who was seen at 0 is no company


def made(*tenants: tuple[str, int], limit_ppm: int = WHOLE_PPM, latency: bool = False) -> Tenants:
    """Tenants of one process each; their names and requests in ppm are given."""
    found = Tenants(POLICY)
    for client, (name, request_ppm) in enumerate(tenants, start=1):
        found.add(Seat(TenantSpec(name, request_ppm, limit_ppm, 0, latency), POLICY, 0))
        found.join(found.seats[name], client)
    return found


def test_who_waits_stands_behind_all_that_wait() -> None:
    tenants = made(("a", 500_000), ("b", 500_000))
    a, b = tenants.seats.values()
    tenants.wait(b, 5)
    tenants.wait(a, 7)
    assert list(tenants.waiting) == ["b", "a"]
    assert (b.arrived, a.arrived, a.waiting_since_ns, a.state) == (1, 2, 7, State.WAITING)


def test_who_rests_waits_no_more_and_may_never_have_waited() -> None:
    tenants = made(("a", 500_000), ("b", 500_000))
    a, b = tenants.seats.values()
    tenants.wait(a, 5)
    tenants.rest(a, 9)
    tenants.rest(b, 9)
    assert tenants.waiting == {}
    assert (a.state, a.rested_ns, b.state) == (State.IDLE, 9, State.IDLE)


def test_who_rests_at_its_limit_is_not_ready() -> None:
    tenants = made(("a", 500_000), ("b", 500_000))
    for seat in tenants.seats.values():
        tenants.wait(seat, 0)
    tenants.seats["a"].throttled = True
    assert [seat.name for seat in tenants.ready()] == ["b"]


def test_a_process_is_of_one_tenant_until_it_leaves() -> None:
    tenants = made(("a", 500_000))
    a = tenants.seats["a"]
    assert tenants.by_client == {1: a}
    assert tenants.leave(1) is a
    assert tenants.leave(1) is None
    assert 1 in a.members  # what is to become of it depends on what it held


def test_a_tenant_that_is_removed_is_returned_with_its_processes() -> None:
    tenants = made(("a", 500_000))
    assert list(tenants.remove("a").members) == [1]
    with pytest.raises(KeyError):
        tenants.remove("a")


def test_only_tenants_with_processes_are_others() -> None:
    tenants = made(("a", 400_000), ("b", 300_000), ("c", 300_000))
    assert tenants.others == 2
    tenants.seats["c"].members.clear()
    assert tenants.others == 1


def test_a_gpu_is_full_where_limits_let_its_tenants_fill_it() -> None:
    assert made(("a", 500_000), ("b", 500_000), limit_ppm=500_000).is_full()
    assert not made(("a", 400_000), ("b", 400_000), limit_ppm=499_999).is_full()


def test_company_are_those_that_want_the_gpu_or_were_seen_lately() -> None:
    tenants = made(("a", 500_000), ("b", 500_000))
    a, b = tenants.seats.values()
    assert tenants.company(a, POLICY.company_ns).others == 1
    assert tenants.company(a, LONG_AGO_NS) == (0, False, POLICY.cap_alone_ns)
    tenants.wait(b, LONG_AGO_NS)
    assert tenants.company(a, LONG_AGO_NS) == (1, True, POLICY.cap_ns)


def test_the_cap_grows_while_all_others_rest() -> None:
    tenants = made(("a", 400_000), ("b", 300_000), ("c", 300_000))
    a, b, c = tenants.seats.values()
    rests = [tenants.company(a, POLICY.company_ns * part // 4).cap_ns for part in range(5)]
    added_ns = (POLICY.cap_alone_ns - POLICY.cap_ns) // 4
    assert rests == [POLICY.cap_ns + part * added_ns for part in range(5)]
    half_ns = POLICY.company_ns // 2
    tenants.rest(b, half_ns)  # it wanted nothing any more, though the last word of it is older
    assert tenants.company(a, half_ns) == (2, True, POLICY.cap_ns)
    c.seen_ns = POLICY.company_ns
    assert tenants.company(a, POLICY.company_ns) == (2, True, POLICY.cap_ns)  # it was heard of last
    tenants.wait(c, POLICY.company_ns)
    assert tenants.company(a, POLICY.company_ns * 2) == (1, True, POLICY.cap_ns)
    assert tenants.company(a, -1) == (2, True, POLICY.cap_ns)  # a word that came after `now`


def test_grants_end_no_more_once_all_others_have_rested_for_long_enough() -> None:
    tenants = made(("a", 400_000), ("b", 300_000), ("c", 300_000))
    a, b, c = tenants.seats.values()
    assert tenants.company(a, POLICY.alone_after_ns - 1).ends
    assert not tenants.company(a, POLICY.alone_after_ns).ends
    assert tenants.company(a, POLICY.alone_after_ns).others == 2  # they may come any moment
    tenants.rest(b, 1)
    assert tenants.company(a, POLICY.alone_after_ns).ends
    tenants.rest(b, 0)
    tenants.wait(c, POLICY.alone_after_ns)
    assert tenants.company(a, POLICY.alone_after_ns * 3).ends
    c.latency = True
    tenants.rest(c, POLICY.alone_after_ns)
    assert tenants.company(a, POLICY.alone_after_ns * 3).ends  # it will not be kept waiting


def test_the_cap_is_small_where_the_company_has_short_bursts() -> None:
    tenants = made(("a", 500_000), ("b", 500_000))
    a, b = tenants.seats.values()
    b.burst_ns = POLICY.short_burst_ns - 1
    assert tenants.company(a, 0) == (1, True, POLICY.cap_short_ns)
    assert tenants.company(b, 0) == (1, True, POLICY.cap_ns)
    assert tenants.company(a, POLICY.company_ns) == (1, False, POLICY.cap_alone_ns)


def test_the_cap_is_smallest_where_one_of_class_latency_may_come() -> None:
    tenants = made(("a", 500_000), ("b", 500_000))
    a, b = tenants.seats.values()
    b.latency = True
    assert tenants.company(a, 0) == (1, True, POLICY.cap_prompt_ns)
    assert tenants.company(a, POLICY.company_ns) == (1, True, POLICY.cap_prompt_ns)  # and stays so
    assert tenants.company(b, 0) == (1, True, POLICY.cap_latency_ns)
    assert tenants.latency(POLICY.company_ns)
    assert not tenants.latency(LONG_AGO_NS)


def test_turns_follow_the_requests_of_tenants_with_processes() -> None:
    tenants = made(("a", 600_000), ("b", 300_000), ("c", 100_000))
    tenants.seats["c"].members.clear()
    assert tenants.share_turns() == 900_000
    a, b, c = tenants.seats.values()
    assert a.turn_ns == POLICY.quota_ns * 9 // 10
    assert a.turn_ns // 2 <= b.turn_ns < a.turn_ns
    assert c.turn_ns >= 1 * MS  # as it was


def test_where_nothing_is_promised_the_whole_is_the_sum() -> None:
    assert Tenants(POLICY).share_turns() == WHOLE_PPM
    assert made(("a", 0)).share_turns() == WHOLE_PPM
