"""The token machine of one GPU: events, times and the actions that are to come of them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.grants import JOINS_MOST
from scheduler_backend.core.line import grant_of
from scheduler_backend.core.machine import TokenMachine
from scheduler_backend.core.moves import Epochs, InvalidTransition, Take
from scheduler_backend.core.policy import MS, Policy, virtual
from scheduler_backend.core.rows import TRANSITIONS
from scheduler_backend.core.seat import Standing, State
from scheduler_backend.core.tenant import TenantSpec


class Bench:
    """A machine and a clock that the test moves; clients are numbered by tenant: a is 1, b is 2, a's second is 11."""

    def __init__(self, *tenants: tuple[Any, ...], policy: Policy | None = None) -> None:
        self.machine = TokenMachine(0, policy or Policy(), Epochs())
        self.now_ns = 0
        self.wake_ns = 0
        for number, (name, request, *more) in enumerate(tenants, start=1):
            limit = more[0] if more else 1.0
            latency = bool(more[1]) if len(more) > 1 else False
            self.do(ev.TenantAdded(TenantSpec(name, round(request * 1e6), round(limit * 1e6), 0, latency)))
            self.do(ev.ClientJoined(name, number, (0,)))

    def do(self, event: ev.Event) -> list[ev.Action]:
        actions = self.machine.handle(event, self.now_ns)
        wake = actions.pop()
        assert isinstance(wake, ev.WakeAt)
        self.wake_ns = wake.at_ns
        self.machine.check()
        return actions

    def at(self, now_ms: float) -> Bench:
        """Move on, with a Tick at every wake on the way; what came of these is in `ticked`."""
        until_ns = round(now_ms * MS)
        self.ticked: list[ev.Action] = []
        while self.wake_ns and self.wake_ns <= until_ns:
            self.now_ns = max(self.now_ns, self.wake_ns)
            self.ticked += self.do(ev.Tick())
        self.now_ns = until_ns
        return self

    def ask(self, client: int, burst_ms: float = 0) -> list[ev.Action]:
        return self.do(ev.TokenAsked(client, 0, round(burst_ms * MS), MS if burst_ms else 0))

    def back(self, client: int, *, more: bool = False, epoch: int = 0) -> list[ev.Action]:
        return self.do(ev.TokenReturned(client, 0, epoch or self.machine.epoch, more))

    @property
    def holder(self) -> str | None:
        return self.machine.holder.name if self.machine.holder else None


def of(actions: list[ev.Action], kind: type) -> list[Any]:
    return [action for action in actions if type(action) is kind]


def test_a_grant_opens_the_page_before_the_client_hears_of_it():
    bench = Bench(("a", 0.5))
    actions = bench.ask(1)
    assert [type(action) for action in actions] == [ev.Page, ev.Grant, ev.Handed]
    assert actions[0] == ev.Page("a", 0, 1)
    assert actions[1] == ev.Grant(1, 0, 1, 50 * MS, 250 * MS, 20 * MS, False, False)


def test_a_return_closes_the_page_charges_and_hands_on_in_one_step():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.at(2).ask(2)
    actions = bench.at(10).back(1, more=True)
    assert [type(a) for a in actions] == [ev.Page, ev.Charged, ev.Page, ev.Grant, ev.Handed, ev.Prepare]
    assert actions[1] == ev.Charged("a", 0, 1, 10 * MS, MS, 0, 0)
    assert actions[2] == ev.Page("b", 0, 3)  # 2 was prepared for b, and not carried out
    assert (actions[4].wait_ns, actions[4].gap_ns) == (8 * MS, 0)


def test_contended_turns_leave_a_tenth_of_the_quota_for_overuse_and_have_a_short_lease_and_cap():
    bench = Bench(("a", 0.5), ("b", 0.5))
    (grant,) = of(bench.ask(1), ev.Grant)
    assert (grant.quota_ns, grant.lease_ns, grant.cap_ns, grant.contended) == (9 * MS, 39 * MS, MS, True)


@pytest.mark.parametrize(("burst_ms", "quota_ms"), [(0, 9), (0.5, 2), (4, 5), (7.2, 9), (8, 10), (9.5, 10), (11, 9)])
def test_the_quota_follows_the_burst_within_bounds(burst_ms: float, quota_ms: float):
    bench = Bench(("a", 0.5), ("b", 0.5))
    (grant,) = of(bench.ask(1, burst_ms), ev.Grant)
    assert grant.quota_ns == round(quota_ms * MS)


def test_the_cap_is_short_while_a_latency_tenant_or_one_of_short_bursts_is_there():
    bench = Bench(("a", 0.5), ("b", 0.5, 1, True))
    assert of(bench.ask(1), ev.Grant)[0].cap_ns == 200_000
    bench = Bench(("a", 0.5, 1, True), ("b", 0.5, 1, True))
    assert of(bench.ask(1), ev.Grant)[0].cap_ns == 300_000
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(2, 1)
    bench.at(1).back(2)
    assert of(bench.ask(1), ev.Grant)[0].cap_ns == 300_000


@pytest.mark.parametrize("latency", [False, True])
def test_one_that_is_promised_nothing_shortens_nobodys_cap(latency: bool):
    bench = Bench(("a", 1.0), ("b", 0, 0.1, latency))
    bench.ask(2, 1)
    bench.at(1).back(2)
    assert of(bench.ask(1), ev.Grant)[0].cap_ns == 1 * MS


def test_a_latency_tenant_may_queue_more_and_is_prolonged_before_that_fills_its_quota():
    """Nobody takes the token from it, so a launching thread that is not run a while need not stretch its service."""
    bench = Bench(("a", 0.5, 1, True), ("b", 0.5))
    (grant,) = of(bench.ask(1), ev.Grant)
    assert (grant.quota_ns, grant.cap_ns) == (9 * MS, 3 * MS)
    assert not of(bench.at(4.9).ticked, ev.Extend)
    assert of(bench.at(5).ticked, ev.Extend)


def test_the_cap_is_long_for_a_limited_tenant_alone_and_the_contended_one_beside_others():
    """Nobody waits behind its queue, and a launching thread that is not run meanwhile does not cost it its step."""
    bench = Bench(("a", 0.2, 0.5))
    (grant,) = of(bench.ask(1), ev.Grant)
    assert grant.cap_ns == bench.machine.policy.cap_alone_ns
    bench = Bench(("a", 0.2, 0.5), ("b", 0.5))
    bench.ask(2)
    bench.at(1).back(2)
    assert of(bench.ask(1), ev.Grant)[0].cap_ns in (300_000, 1 * MS)


def test_overuse_is_charged_in_full_and_once():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    (charged,) = of(bench.at(13).back(1), ev.Charged)
    assert (charged.held_ns, charged.overuse_ns) == (13 * MS, 4 * MS)
    bench.back(1, epoch=1)  # the message came twice
    assert bench.machine.seats["a"].window.total_ns == 13 * MS


def test_alone_what_messages_take_is_not_charged_to_the_limit():
    bench = Bench(("a", 0.2, 0.5))
    bench.ask(1)
    assert bench.holder == "a", "the bucket holds a step from the start"
    began_ms = bench.now_ns / MS
    quota_ms = (bench.machine.grant.quota_until_ns - bench.now_ns) / MS
    end_ms = began_ms + quota_ms + 0.2  # 0.2 ms on the way
    (charged,) = of(bench.at(end_ms).do(ev.TokenReturned(1, 0, 1, True, held_ns=round(quota_ms * MS))), ev.Charged)
    assert charged.held_ns == pytest.approx((quota_ms + 0.2) * MS, abs=2)  # not known yet
    start_ms = bench.wake_ns / MS
    bench.at(start_ms)
    quota_ms = (bench.machine.grant.quota_until_ns - bench.now_ns) / MS
    bench.at(start_ms + quota_ms + 0.2)
    (charged,) = of(bench.do(ev.TokenReturned(1, 0, 2, True, held_ns=1)), ev.Charged)  # a lie gains little
    assert charged.held_ns == pytest.approx(quota_ms * MS, abs=2)
    assert charged.overuse_ns <= 2


@pytest.mark.parametrize("limit", [0.05, 0.1, 0.25, 0.5, 0.8])
def test_alone_a_client_that_lies_about_its_messages_passes_its_limit_by_little(limit: float):
    bench = Bench(("a", limit, limit))
    bench.ask(1)
    while bench.machine.holder is None:
        bench.at(bench.wake_ns / MS)
    began_ns, held_ns = bench.now_ns, 0
    while bench.now_ns < began_ns + 4_000 * MS:
        start_ns = bench.now_ns
        bench.at(bench.machine.grant.quota_until_ns / MS + 1.5)
        held_ns += bench.now_ns - start_ns
        bench.do(ev.TokenReturned(1, 0, bench.machine.epoch, True, busy_ns=bench.now_ns - start_ns, held_ns=1))
        while bench.machine.holder is None:
            bench.at(bench.wake_ns / MS)
    assert held_ns / (bench.now_ns - began_ns) <= limit * 1.3


@pytest.mark.parametrize(("judged", "most"), [(True, 0.2 / 0.85), (False, 0.2)])
def test_alone_a_limit_is_charged_what_was_used_where_the_card_can_bear_that_out(judged: bool, most: float):
    bench = Bench(("a", 0.2, 0.2), policy=Policy(shared_limits=judged))
    bench.ask(1)
    held_ns = 0
    for _ in range(400):
        for _ in range(9):
            if bench.machine.holder is None:
                bench.at(bench.wake_ns / MS)
        start_ns = bench.now_ns
        bench.at(bench.machine.grant.quota_until_ns / MS)
        held_ns += bench.now_ns - start_ns
        said_ns = (bench.now_ns - start_ns) * 85 // 100
        bench.do(ev.TokenReturned(1, 0, bench.machine.epoch, True, busy_ns=said_ns, launches=9))
    assert held_ns / bench.now_ns == pytest.approx(most, rel=0.03)
    assert (bench.machine.charges.weigh_until_ns > bench.now_ns) == judged  # the card is asked


def test_alone_the_messages_of_those_who_idle_make_no_difference():
    def uncharged_ns(*more: tuple[str, float]) -> int:
        bench = Bench(("a", 0.2, 0.5), *more)
        if more:
            bench.ask(2)
            bench.at(1)
            bench.do(ev.TokenReturned(2, 0, bench.machine.epoch, False, held_ns=round(0.99 * MS)))
            bench.at(bench.machine.policy.company_ns / MS + 10)
        bench.ask(1)
        for _ in range(12):
            while bench.machine.holder is None:
                bench.at(bench.wake_ns / MS)
            granted_ns, quota_ns = bench.now_ns, bench.machine.grant.quota_until_ns - bench.now_ns
            bench.at((granted_ns + quota_ns) / MS + 0.7)
            done = bench.do(ev.TokenReturned(1, 0, bench.machine.epoch, True, held_ns=quota_ns))
        return quota_ns + round(0.7 * MS) - of(done, ev.Charged)[0].held_ns

    assert uncharged_ns() == pytest.approx(0.7 * MS, abs=0.02 * MS)
    assert uncharged_ns(("b", 0.5)) == pytest.approx(uncharged_ns(), abs=0.02 * MS)


def turns(bench: Bench, number: int) -> list[tuple[str, int]]:
    """So many grants, each of 9 ms by its client's own clock and 9.2 by ours: who had it, and what was charged."""
    found = []
    while len(found) < number:
        holder = bench.machine.holder
        assert holder is not None
        bench.at(max(bench.now_ns, bench.machine.grant.quota_until_ns) / MS + 0.2)
        held_ns = bench.now_ns - bench.machine.grant.granted_ns - 200_000
        (client,) = holder.members
        done = bench.do(ev.TokenReturned(client, 0, bench.machine.epoch, True, held_ns=held_ns))
        found.append((holder.name, of(done, ev.Charged)[0].held_ns - held_ns))
    return found


def test_beside_others_too_who_has_fewer_hand_overs_has_no_advantage():
    bench = Bench(("a", 0.7), ("b", 0.3))
    bench.ask(1)
    bench.ask(2)
    (_, first_ns), *then = turns(bench, 9)
    assert first_ns == 200_000  # not known yet
    assert {name for name, _ in then} == {"a", "b"}
    assert [extra_ns for _, extra_ns in then] == [0] * 8


def test_a_limit_pays_for_its_hand_overs_beside_others():
    """It is a part of the card's time: were they not in it, others would lose by them."""
    bench = Bench(("a", 0.5, 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    turns(bench, 4)
    a = bench.machine.seats["a"]
    while bench.machine.holder is a:
        turns(bench, 1)
    since_ns, a.credit, a.filled_ns = bench.now_ns, 0, bench.now_ns
    ended = 0
    while bench.machine.holder is not a:
        turns(bench, 1)
        ended += 1
    held_ns = -bench.now_ns
    turns(bench, 1)
    held_ns += bench.now_ns - 200_000
    hand_overs_ns = (ended + 1) * 200_000
    assert a.credit_ns == pytest.approx((bench.now_ns - since_ns - hand_overs_ns) // 2 - held_ns, abs=2)


@pytest.mark.parametrize(("rests_ms", "quota_ms"), [(1, 5), (4.9, 5), (7, 7), (8.9, 8.9), (30, 9)])
def test_a_grant_ends_when_somebody_has_rested_at_its_limit_but_half_a_quota_is_worth_a_hand_over(
    rests_ms: float, quota_ms: float
):
    bench = Bench(("a", 0.5, 0.5), ("b", 0))
    bench.ask(1)
    bench.ask(2)
    a = bench.machine.seats["a"]
    bench.at(9).do(ev.Tick())
    a.credit = bench.machine.limits.need_ns(a) * 1_000_000 - round(rests_ms * MS) * a.limit_ppm
    a.filled_ns = bench.now_ns
    (grant,) = of(bench.back(1, more=True), ev.Grant)
    assert bench.holder == "b"
    assert a.resume_ns == bench.now_ns + round(rests_ms * MS)
    assert grant.quota_ns == pytest.approx(quota_ms * MS, abs=2)


def test_a_sibling_joins_what_is_left_and_the_grant_is_over_when_both_are_back():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    (joined,) = of(bench.at(4).ask(11), ev.Grant)
    assert (joined.client, joined.epoch, joined.quota_ns, joined.joined) == (11, 1, 4 * MS, True)
    assert not of(bench.back(1), ev.Charged)
    assert bench.holder == "a"
    (charged,) = of(bench.at(10).back(11), ev.Charged)
    assert charged.held_ns == 10 * MS


def test_only_so_many_joins_are_worth_it_in_a_grant_that_ends_soon():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    for _ in range(2):
        for number in range(JOINS_MOST // 2):
            (joined,) = of(bench.ask(11), ev.Grant)
            assert joined.joined, number
            bench.back(11)
        assert not of(bench.ask(11), ev.Grant)
        assert {grant.client for grant in of(bench.back(1, more=True), ev.Grant)} == {1, 11}  # the next is both's
        bench.back(11)


def test_who_joins_again_and_again_leaves_its_siblings_their_part_of_the_joins():
    bench = Bench(("a", 0.5), ("b", 0.5))
    for number in (11, 12):
        bench.do(ev.ClientJoined("a", number, (0,)))
    bench.ask(1)
    bench.ask(12)
    while of(bench.ask(11), ev.Grant):
        bench.back(11)
    (again,) = of(bench.at(5).back(1, more=True), ev.Grant)  # its own quota is over before the tenant's
    assert (again.client, again.joined) == (1, True)


def test_one_that_is_always_busy_keeps_its_turns_beside_siblings_that_speak_of_short_bursts():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1, burst_ms=1000)
    bench.ask(2)
    for _ in range(20):
        bench.ask(11, burst_ms=0.05)
        bench.back(11)
    bench.at(9).back(1, more=True)
    assert bench.holder == "b"
    bench.back(2)
    assert (bench.holder, bench.machine.grant.quota_until_ns) == ("a", 18 * MS)
    forgotten_ms = 9 + Policy().company_ns / MS
    bench.at(20).back(1)
    bench.at(forgotten_ms + 20).ask(2)  # a's busy one has been silent for so long
    bench.ask(11, burst_ms=0.05)
    bench.back(2)
    assert (bench.holder, bench.machine.grant.quota_until_ns - bench.now_ns) == ("a", Policy().least_quota_ns)


def several(*, limit: float = 1.0, others: int = 1) -> Bench:
    """Tenant a with three processes, 1, 11 and 12, all of which wait behind b's grant."""
    bench = Bench(("a", 0.5, limit), *(("b", 0.5),) * others)
    for number in (11, 12):
        bench.do(ev.ClientJoined("a", number, (0,)))
    if others:
        bench.ask(2)
    for number in (1, 11, 12):
        bench.ask(number)
    return bench


def test_several_processes_are_told_so_much_less_that_all_their_caps_fit_into_the_quota():
    """Each closes with a cap in flight at the end of what it was told, and the card has three of them then."""
    bench = several()
    grants = of(bench.at(9).back(2, more=True), ev.Grant)
    assert [(grant.client, grant.quota_ns, grant.cap_ns) for grant in grants] == [
        (1, 7 * MS, MS), (11, 7 * MS, MS), (12, 7 * MS, MS)
    ]  # fmt: skip
    assert {grant.lease_ns for grant in grants} == {39 * MS}
    assert bench.machine.grant.quota_until_ns == 18 * MS


def test_siblings_with_brief_bursts_are_told_of_as_much_less_as_they_can_have_in_flight():
    bench = Bench(("a", 0.5), ("b", 0.5))
    for number in (11, 12):
        bench.do(ev.ClientJoined("a", number, (0,)))
    bench.ask(2)
    bench.ask(1, burst_ms=1000)
    for number in (11, 12):
        bench.ask(number, burst_ms=0.05)
    told = {1: 9 * MS - 2 * MS // 8, 11: 8 * MS - MS // 8, 12: 8 * MS - MS // 8}
    order = bench.machine.prepared
    assert order is not None
    assert {client: grant_of(order, client).quota_ns for client in order.clients} == told
    grants = of(bench.at(9).back(2, more=True), ev.Grant)
    assert {grant.client: grant.quota_ns for grant in grants} == told
    bench.back(11)
    (again,) = of(bench.at(17).back(1, more=True), ev.Grant)  # there is room left, as 12 cannot fill it
    assert (again.client, again.quota_ns, again.joined) == (1, MS - MS // 8, True)


def test_a_process_that_has_drained_does_not_come_again_into_what_its_siblings_have_in_flight():
    bench = several()
    bench.at(9).back(2, more=True)
    assert not of(bench.at(16.5).back(1, more=True), ev.Grant)
    assert not of(bench.at(17.2).back(11, more=True), ev.Grant)
    bench.at(18).back(12, more=True)
    assert bench.holder == "b"


def test_one_that_has_drained_early_comes_again():
    bench = several()
    bench.at(9).back(2, more=True)
    (again,) = of(bench.at(12).back(1, more=True), ev.Grant)
    assert (again.client, again.quota_ns, again.joined) == (1, 4 * MS, True)


def test_several_processes_that_would_be_picked_again_are_prolonged_before_they_close():
    bench = Bench(("a", 1), ("b", 0))
    for number in (11, 12):
        bench.do(ev.ClientJoined("a", number, (0,)))
    for number in (1, 11, 12):
        bench.ask(number)
    bench.ask(2)
    closes_ns = 9 * MS - 2 * MS - MS  # told of 7 ms, with a cap of 1 ms
    extended = of(bench.at(9 - 2 - 2 - 0.001).ticked, ev.Extend)
    assert not extended
    extended = of(bench.at(closes_ns / MS).ticked, ev.Extend)
    assert [each.client for each in extended] == [1, 11, 12]
    assert {each.quota_ns for each in extended} == {bench.machine.grant.quota_until_ns - 5 * MS - 2 * MS}


def test_a_limit_holds_for_several_processes_alone():
    bench = several(limit=0.5, others=0)
    held = of(bench.at(1).back(1, more=True), ev.Grant)
    assert held
    assert all(3 * grant.cap_ns <= grant.quota_ns for grant in held)


def test_several_processes_without_an_end_have_the_whole_of_it():
    bench = several(others=0)
    assert bench.machine.grant.quota_until_ns == 50 * MS
    bench.do(ev.ClientJoined("a", 13, (0,)))
    (grant,) = of(bench.ask(13), ev.Grant)
    assert (grant.quota_ns, grant.cap_ns) == (50 * MS, 20 * MS)


def test_a_sibling_that_comes_too_late_waits_for_the_next_grant():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    bench.ask(2)
    assert not of(bench.at(9.8).ask(11), ev.Grant)
    assert of(bench.at(10).back(1), ev.Grant)[0].client == 2
    assert of(bench.at(20).back(2), ev.Grant)[0].client == 11


def test_a_waiting_grant_is_fanned_out_to_all_who_wait():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(2)
    bench.ask(1)
    bench.ask(11)
    grants = of(bench.at(10).back(2), ev.Grant)
    assert [grant.client for grant in grants] == [1, 11]
    assert len({grant.epoch for grant in grants}) == 1


def test_alone_a_renewal_extends_quota_and_lease():
    bench = Bench(("a", 0.5))
    bench.ask(1)
    (extend,) = of(bench.at(25).do(ev.TokenRenewed(1, 0, 1)), ev.Extend)
    assert (extend.quota_ns, extend.lease_ns) == (50 * MS, 250 * MS)


def test_alone_a_renewal_that_comes_after_the_quota_extends_it_still():
    bench = Bench(("a", 0.5), policy=Policy(extend_silent=0))
    bench.ask(1)
    (extend,) = of(bench.at(80).do(ev.TokenRenewed(1, 0, 1)), ev.Extend)
    assert extend.quota_ns == 50 * MS
    for at_ms in range(130, 3000, 50):  # an hour of it would never overrun
        assert of(bench.at(at_ms).do(ev.TokenRenewed(1, 0, 1)), ev.Extend)


def test_the_holder_who_would_be_picked_again_is_prolonged_without_a_drain():
    bench = Bench(("a", 0.9), ("b", 0.1))
    bench.ask(2)
    bench.ask(1)
    bench.at(10).back(2, more=True)
    assert bench.holder == "a"
    bench.at(20)
    (extend,) = of(bench.ticked, ev.Extend)
    assert extend.client == 1
    assert extend.quota_ns == 11 * MS  # said 2 ms before the end of the first 9


def test_a_silent_holder_is_not_prolonged_for_ever():
    bench = Bench(("a", 0.98), ("b", 0.02))
    bench.ask(2)
    bench.ask(1)
    bench.at(10).back(2, more=True)
    bench.at(1000)
    assert 1 <= len([extend for extend in of(bench.ticked, ev.Extend) if extend.client == 1]) <= 4
    assert of(bench.ticked, ev.LeaseLost)[0].client == 1


def test_a_hello_makes_an_uncontended_grant_short_before_anybody_asks():
    bench = Bench(("a", 0.5))
    bench.ask(1)
    bench.at(20)
    bench.do(ev.TenantAdded(TenantSpec("b", 500_000)))
    (extend,) = of(bench.do(ev.ClientJoined("b", 2, (0,))), ev.Extend)
    assert (extend.quota_ns, extend.cap_ns, extend.contended) == (10 * MS, MS, True)


def test_a_newcomer_revokes_an_uncontended_lease():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.at(11_000).ask(1)  # b has not been seen for long: a is alone
    (revoke,) = of(bench.at(11_001).ask(2), ev.Revoke)
    assert revoke == ev.Revoke(1, 0, 1, ev.NEWCOMER)
    assert of(bench.at(11_001.5).back(1, more=True), ev.Grant)[0].client == 2


def test_who_comes_back_owed_takes_over_after_the_holder_had_one_millisecond():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.at(5).ask(2, 1)
    bench.at(5.5).back(1, more=True)
    bench.at(6.5).back(2)  # a holds again from here
    assert bench.holder == "a"
    assert not of(bench.at(6.6).ask(2, 1), ev.Revoke)
    bench.at(8)
    (revoke,) = of(bench.ticked, ev.Revoke)
    assert (revoke.client, revoke.reason) == (1, ev.PREEMPT)


def test_without_preemption_grants_run_to_their_end():
    bench = Bench(("a", 0.5), ("b", 0.5), policy=Policy(preemption=False))
    bench.ask(1)
    assert not of(bench.at(5).ask(2, 1), ev.Revoke)
    bench.at(9.9)
    assert not of(bench.ticked, ev.Revoke)


def test_a_latency_tenant_revokes_a_batch_holder_at_once():
    bench = Bench(("a", 0.5), ("b", 0.5, 1, True))
    bench.ask(1)
    (revoke,) = of(bench.at(0.1).ask(2), ev.Revoke)
    assert revoke == ev.Revoke(1, 0, 1, ev.PREEMPT)


def test_best_effort_runs_only_when_nobody_else_can():
    bench = Bench(("a", 0.5), ("c", 0))
    bench.ask(2)
    assert bench.holder == "c"
    (revoke,) = of(bench.at(3).ask(1), ev.Revoke)
    assert revoke.client == 2
    bench.at(4).back(2, more=True)
    assert bench.holder == "a"
    bench.at(14).back(1, more=True)
    assert bench.holder == "a"
    bench.at(24).back(1)
    assert bench.holder == "c"


def test_a_limit_throttles_and_the_bucket_brings_it_back():
    bench = Bench(("a", 0.2, 0.2))
    held = 0.0
    bench.ask(1)
    at_ms = 0.0
    while at_ms < 2000:
        quota_ms = (bench.machine.grant.quota_until_ns - bench.now_ns) / MS
        at_ms += quota_ms
        held += quota_ms
        bench.at(at_ms).back(1, more=True)
        assert bench.holder is None
        at_ms = bench.wake_ns / MS
        bench.at(at_ms)
        assert bench.holder == "a"
    assert held / at_ms == pytest.approx(0.2, abs=0.01)


def test_the_death_of_the_holder_frees_the_token_at_once():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    actions = bench.at(1).do(ev.ClientDied(1))
    assert [type(a) for a in actions] == [ev.Page, ev.Charged, ev.Page, ev.Grant, ev.Handed, ev.Unprepare]
    assert of(actions, ev.Grant)[0].client == 2


def test_a_lease_that_runs_out_frees_the_token_and_a_late_return_is_charged():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    bench.at(50.001)
    assert of(bench.ticked, ev.LeaseLost) == [ev.LeaseLost("a", 1, 0, 1)]
    assert of(bench.ticked, ev.Revoke) == [ev.Revoke(1, 0, 1, ev.LEASE)]
    assert bench.holder == "b"
    clock = bench.machine.seats["a"].clock
    bench.at(55).do(ev.TokenReturned(1, 0, 1, True, busy_ns=2 * MS))
    assert bench.machine.seats["a"].clock > clock
    assert bench.machine.seats["a"].state is State.WAITING


def test_a_stray_is_charged_for_what_it_ran_after_its_lease_and_not_again_for_what_it_ran_in_it():
    """Its Return came late, and not its drain: the whole turn was charged when the lease ran out."""
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    bench.at(50.001)
    seat = bench.machine.seats["a"]
    assert seat.with_standing(Standing.STRAY)
    clock = seat.clock
    bench.at(80).do(ev.TokenReturned(1, 0, 1, False, busy_ns=9 * MS, held_ns=10 * MS))
    assert seat.clock == clock


def test_a_stray_that_drained_after_its_lease_is_charged_for_what_it_ran_then():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    lease_ns = bench.machine.seats["a"].members[1].lease_until_ns
    bench.at(50.001)
    seat = bench.machine.seats["a"]
    clock = seat.clock
    bench.at(80).do(ev.TokenReturned(1, 0, 1, False, busy_ns=30 * MS, held_ns=lease_ns + 5 * MS))
    assert seat.clock == clock + virtual(5 * MS, 500_000)


def test_processes_of_a_tenant_that_stray_together_are_charged_for_that_time_once():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    for client in (1, 11, 2):
        bench.ask(client)
    seat = bench.machine.seats["a"]
    lease_ns = seat.members[1].lease_until_ns
    bench.at(50.001)
    clock = seat.clock
    for client in (1, 11):
        bench.at(80).do(ev.TokenReturned(client, 0, 1, False, busy_ns=30 * MS, held_ns=lease_ns + 20 * MS))
    assert seat.clock == clock + virtual(20 * MS, 500_000)


def test_a_stray_is_not_charged_for_what_its_tenant_held_meanwhile():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    bench.ask(2)
    seat = bench.machine.seats["a"]
    lease_ns = seat.members[1].lease_until_ns
    bench.at(50.001).ask(11)
    bench.at(60).back(2)
    assert bench.holder == "a"
    bench.at(65).back(11)
    clock = seat.clock
    bench.at(80).do(ev.TokenReturned(1, 0, 1, False, busy_ns=30 * MS, held_ns=lease_ns + 20 * MS))
    assert seat.clock == clock + virtual(15 * MS, 500_000)


def test_while_the_daemon_itself_stood_still_nobody_is_charged_and_nobody_earns_a_claim():
    """A stopped daemon finds its holder drained two seconds ago: its lease ended long before, and the card was idle."""
    bench = Bench(("a", 0.4), ("b", 0.6))
    bench.ask(1)
    bench.ask(2)
    lease_ns = bench.machine.seats["a"].members[1].lease_until_ns
    bench.now_ns = 2000 * MS  # and not one Tick
    (charged,) = of(bench.back(1, more=True), ev.Charged)
    assert charged.held_ns == lease_ns
    assert charged.overuse_ns == Policy().lease_margin_ns
    assert bench.machine.charges.usage_ns("a", bench.now_ns)[0] == lease_ns
    assert bench.machine.clock.virtual_now == virtual(lease_ns, 1_000_000)


def test_a_frozen_sibling_costs_the_tenant_only_that_process():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    bench.ask(11)
    bench.ask(2)
    bench.at(10).back(1, more=True)
    bench.at(51)
    assert of(bench.ticked, ev.LeaseLost)[0].client == 11
    bench.at(61).back(2)
    assert of(bench.machine.handle(ev.Tick(), bench.now_ns), ev.Revoke) == []
    assert bench.holder == "a"  # by its other process


def test_a_drain_that_renews_keeps_its_lease_until_it_overran():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    for at_ms in range(15, 1005, 15):
        bench.at(at_ms).do(ev.TokenRenewed(1, 0, 1, True))
        assert bench.holder == "a"
    bench.at(1011)
    assert of(bench.ticked, ev.Overran) == [ev.Overran("a", 1, 0, 1)]
    assert bench.holder == "b"
    clock = bench.machine.seats["a"].clock
    bench.at(1020).back(1, epoch=1)
    assert bench.machine.seats["a"].clock > clock  # charged on until it was back


def overran() -> Bench:
    """At 1011 ms; a's process overran at 1009 ms, and the token has moved on to b."""
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    for at_ms in range(15, 1005, 15):
        bench.at(at_ms).do(ev.TokenRenewed(1, 0, 1, True))
    bench.at(1011)
    assert of(bench.ticked, ev.Overran)
    return bench


@pytest.mark.parametrize(
    "events",
    [
        [ev.ClientJoined("a", 1, (0,))],
        [ev.ClientJoined("a", 1, (0,), ((0, 1),))],
        [ev.ClientDied(1), ev.ClientJoined("a", 1, (0,))],
        [ev.TokenAsked(1, 0)],
        [ev.TokenReturned(1, 0, 2, True)],
    ],
    ids=[
        "it says Hello and holds nothing",
        "it says Hello and holds it still",
        "it says Hello after its connection was taken for ended",
        "it only asks for the next",
        "it returns another epoch and asks for the next",
    ],
)
def test_who_overran_is_charged_until(events: list[ev.Event]) -> None:
    bench = overran()
    seat = bench.machine.seats["a"]
    clock, since_ns = seat.clock, seat.members[1].stray_since_ns
    bench.at(1111)
    for event in events:
        bench.do(event)
    assert seat.clock == clock + virtual(1111 * MS - since_ns, 500_000)


def test_who_overran_and_says_hello_while_it_drains_is_charged_on() -> None:
    bench = overran()
    seat = bench.machine.seats["a"]
    clock, since_ns = seat.clock, seat.members[1].stray_since_ns
    for at_ms in (1111, 1211):
        actions = bench.at(at_ms).do(ev.ClientJoined("a", 1, (0,), ((0, 1),)))
        assert of(actions, ev.Revoke) == [ev.Revoke(1, 0, 1, ev.LEASE)]
    bench.at(1311).back(1, epoch=1)
    assert abs(seat.clock - clock - virtual(1311 * MS - since_ns, 500_000)) <= 4  # in parts, each rounded
    assert seat.members[1].standing is Standing.QUIET


def test_who_lost_its_lease_and_says_hello_while_it_drains_is_charged_for_what_it_ran_since_its_lease() -> None:
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    lease_ns = bench.machine.seats["a"].members[1].lease_until_ns
    bench.at(50.001)
    seat = bench.machine.seats["a"]
    clock = seat.clock
    bench.at(70).do(ev.ClientJoined("a", 1, (0,), ((0, 1),)))
    bench.at(80).do(ev.TokenReturned(1, 0, 1, False, busy_ns=30 * MS, held_ns=lease_ns + 5 * MS))
    assert seat.clock == clock + virtual(5 * MS, 500_000)


def test_a_sibling_is_let_in_for_a_drain_that_may_wait_for_it():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    bench.ask(2)
    bench.at(9.9).ask(11)  # too late for what is left
    assert of(bench.at(15).do(ev.TokenRenewed(1, 0, 1)), ev.Grant) == []  # it does not drain
    (grant,) = of(bench.do(ev.TokenRenewed(1, 0, 1, True)), ev.Grant)
    assert (grant.client, grant.epoch, grant.quota_ns, grant.contended, grant.joined) == (11, 1, 2 * MS, True, True)
    bench.at(17).back(11, more=True)
    assert of(bench.do(ev.TokenRenewed(1, 0, 1, True, True)), ev.Grant) == []  # it drains as was foreseen
    (grant,) = of(bench.do(ev.TokenRenewed(1, 0, 1, True)), ev.Grant)
    assert grant.client == 11
    bench.at(18).back(1, more=True)
    assert bench.holder == "a"  # its sibling holds still
    actions = bench.at(19).back(11, more=True)
    assert of(actions, ev.Charged)[0].held_ns == 19 * MS  # once, and all of it
    assert bench.holder == "b"


def test_a_message_of_an_epoch_that_never_was_is_the_clients_fault():
    bench = Bench(("a", 0.5))
    with pytest.raises(ev.RemoteProtocolError, match="never granted"):
        bench.back(1, epoch=7)
    with pytest.raises(ev.RemoteProtocolError, match="Hello"):
        bench.ask(99)
    bench.machine.check()


def test_asking_twice_is_harmless_and_a_holder_is_told_again():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    (again,) = of(bench.at(1).ask(1), ev.Grant)
    assert (again.epoch, again.quota_ns, again.joined) == (1, 8 * MS, True)
    bench.ask(2)
    assert bench.ask(2) == []


def test_nothing_is_granted_before_the_clients_of_before_have_spoken():
    bench = Bench(("a", 0.5))
    bench.do(ev.ClientsKnown((("a", 77), ("a", 78)), 300 * MS))
    assert not of(bench.ask(1), ev.Grant)
    bench.do(ev.ClientJoined("a", 77, (0,)))
    assert bench.holder is None
    assert of(bench.do(ev.ClientDied(78)), ev.Grant)
    bench = Bench(("a", 0.5))
    bench.do(ev.ClientsKnown((("a", 77),), 300 * MS))
    bench.ask(1)
    assert bench.holder is None
    bench.at(300)
    assert bench.holder == "a"


def test_changing_a_share_keeps_what_is_owed_in_held_time():
    bench = Bench(("a", 0.2), ("b", 0.2))
    bench.ask(1)
    bench.ask(2)
    bench.at(10).back(1, more=True)
    machine = bench.machine
    seat = machine.seats["a"]
    ahead = (seat.clock - machine.clock.virtual_now) * seat.request_ppm
    bench.do(ev.TenantChanged(TenantSpec("a", 600_000)))
    assert (seat.clock - machine.clock.virtual_now) * seat.request_ppm == pytest.approx(ahead, rel=1e-9)


def test_a_limit_that_is_lifted_leaves_no_end_of_a_rest_to_wake_up_for():
    bench = Bench(("a", 0.3, 0.3), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    bench.at(10).back(1, more=True)
    seat = bench.machine.seats["a"]
    assert seat.throttled
    assert seat.resume_ns
    assert seat.ready_since_ns == seat.resume_ns
    bench.do(ev.TenantChanged(TenantSpec("a", 300_000)))
    assert not seat.throttled
    assert seat.ready_since_ns == bench.now_ns
    assert not seat.resume_ns, "of the past one day, it would hide every deadline to come"


def test_an_illegal_move_raises_with_the_tenants_story():
    bench = Bench(("a", 0.5))
    bench.ask(1)
    with pytest.raises(InvalidTransition, match=r"Take while holding: .*TokenAsked"):
        bench.machine.move(bench.machine.seats["a"], Take())


def test_every_state_knows_every_message_of_a_client():
    for state in State:
        for message in (ev.TokenAsked, ev.TokenRenewed, ev.TokenReturned, ev.ClientDied):
            assert (state, message) in TRANSITIONS


def test_a_stray_that_returns_something_older_and_wants_more_waits_again():
    """It never heard of the grant whose lease it lost: its wish must not be lost with it."""
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    bench.at(150)  # a's lease ran out, and b's, that nobody renewed
    assert bench.machine.seats["a"].state is not State.WAITING
    bench.do(ev.TokenReturned(1, 0, 1, True))
    bench.do(ev.TokenReturned(1, 0, 1, True))
    assert bench.holder == "a"


def test_who_comes_back_owed_takes_over_at_once_from_one_that_is_neither_ahead_nor_behind():
    bench = Bench(("a", 0.3), ("b", 0.7))
    bench.ask(2)
    for at_ms in range(5, 30, 5):  # with the GPU to itself: prolonged, and owed nothing any more
        bench.at(at_ms)
    assert bench.holder == "b"
    assert of(bench.ask(1, 5), ev.Revoke) == [ev.Revoke(2, 0, bench.machine.epoch, ev.PREEMPT)]
