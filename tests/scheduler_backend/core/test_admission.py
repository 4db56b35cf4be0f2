"""Who runs beside others, without a machine. test_company.py plays whole programs."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.beside import BUSY, FAVOUR_NS
from scheduler_backend.core.company import PROCESSES_MOST, Company
from scheduler_backend.core.duty import ROOM_PPM
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.seat import Seat, State
from tests.scheduler_backend.core.parts import HALF, Parts


def made(policy: Policy | None = None) -> tuple[Company, Parts]:
    """It, and its parts."""
    parts = Parts(policy)
    company = Company(
        parts.context,
        parts.tenants,
        parts.grant,
        parts.restart,
        parts.reservation,
        parts.beside,
        parts.promises,
        parts.shared,
        parts.rows,
    )
    return company, parts


def known(parts: Parts, *seats: Seat) -> None:
    """Their duties are known, and low."""
    for seat in seats:
        seat.duty.host_bound, seat.duty.ppm = True, HALF
        seat.duty.turned_ns = seat.duty.measured_ns = parts.context.now_ns
        parts.beside.sort(seat)


def two_beside_a_holder() -> tuple[Company, Parts, tuple[Seat, Seat, Seat]]:
    """Two that are host-bound and run beside others; the third has the token for 10 ms."""
    company, parts = made()
    a, b, c = parts.add("a"), parts.add("b"), parts.add("c")
    known(parts, a, b)
    parts.share(a, b)
    c.duty.turned_ns = 0
    parts.want(c)
    parts.hold(c, 10 * MS)
    return company, parts, (a, b, c)


def test_nothing_is_to_be_done_where_nobody_is_host_bound() -> None:
    company, parts = made()
    parts.want(parts.add("a"))
    assert company.share() == 0
    assert (parts.done(), parts.beside.measuring) == ([], False)


def test_those_that_are_host_bound_are_admitted_at_once() -> None:
    company, parts = made()
    a, b = parts.add("a"), parts.add("b")
    known(parts, a, b)
    parts.want(a, b)
    assert company.share() > 0
    assert (a.state, b.state) == (State.SHARED, State.SHARED)


def test_all_have_turns_while_a_duty_is_not_known() -> None:
    company, parts = made()
    a, b = parts.add("a"), parts.add("b")
    known(parts, a)
    parts.share(a)
    parts.want(b)
    company.share()
    assert (parts.beside.measuring, a.state) == (True, State.LEAVING)
    assert parts.done(ev.Revoke)[0].reason == ev.NEWCOMER


def test_nobody_is_admitted_where_it_is_off_or_a_tenant_has_too_many_processes() -> None:
    for policy, processes in ((Policy(shared=False), 1), (Policy(), PROCESSES_MOST + 1)):
        company, parts = made(policy)
        a = parts.add("a", processes=processes)
        parts.add("b")
        known(parts, a)
        parts.want(a)
        company.share()
        assert a.state is State.WAITING


def test_one_that_lags_runs_alone_until_it_has_caught_up() -> None:
    company, parts = made()
    a, b = parts.add("a"), parts.add("b")
    known(parts, a, b)
    parts.share(a, b)
    a.duty.ppm = ROOM_PPM + 1
    a.ahead_ns = -parts.policy.shared_lag_ns - 1
    company.share()
    assert (parts.beside.favoured, parts.beside.favoured_until_ns) == ("a", FAVOUR_NS)
    assert (a.state, b.state) == (State.SHARED, State.LEAVING)
    a.ahead_ns = 0
    company.share()
    assert parts.beside.favoured == ""


def test_beside_one_that_lags_and_would_leave_the_card_idle_the_others_go_on_slowly() -> None:
    """Whether they have turns or not; each is told, and told again when it is over."""
    company, parts, (a, b, c) = two_beside_a_holder()
    a.ahead_ns = -parts.policy.shared_lag_ns - 1
    company.share()
    assert parts.beside.favoured == "a"
    assert (a.state, b.state, c.state) == (State.SHARED, State.SHARED, State.HOLDING)
    gentle_ns, told = parts.policy.cap_lag_ns, parts.done(ev.Extend)
    assert {one.client: one.cap_ns == gentle_ns for one in told} == {1: False, 2: True, 3: True}
    parts.context.begin()
    company.share()
    assert parts.done(ev.Extend) == []
    a.ahead_ns = 0
    company.share()
    assert parts.beside.favoured == ""
    assert [one.cap_ns > gentle_ns for one in parts.done(ev.Extend)] == [True] * 3


def test_one_of_class_latency_goes_on_as_it_does_beside_one_that_lags() -> None:
    """Its kernels would wait for one another, and it for each of them, in every request."""
    company, parts = made()
    a, b, server = parts.add("a"), parts.add("b", 0), parts.add("server")
    server.latency = True
    known(parts, a, b, server)
    parts.share(a, b, server)
    a.ahead_ns = -parts.policy.shared_lag_ns - 1
    company.share()
    assert (parts.beside.favoured, parts.beside.gently) == ("a", True)
    gentle_ns, told = parts.policy.cap_lag_ns, parts.done(ev.Extend)
    assert {one.client: one.cap_ns == gentle_ns for one in told} == {1: False, 2: True, 3: False}


def test_who_is_told_to_go_slowly_has_no_longer_lease_for_that() -> None:
    """One that is frozen would have kept the token, or its place beside others, for as long as some come and go so."""
    company, parts, (a, b, c) = two_beside_a_holder()
    until_ns = {seat.name: member.lease_until_ns for seat in (a, b, c) for member in seat.members.values()}
    for at_ms in (5, 20):
        parts.at(at_ms)
        a.ahead_ns = -parts.policy.shared_lag_ns - 1
        company.share()
        assert (parts.beside.favoured, parts.beside.gently) == ("a", True)
        told = {one.client: parts.context.now_ns + one.lease_ns for one in parts.done(ev.Extend)}
        assert told == {1: until_ns["a"], 2: until_ns["b"]} | ({3: until_ns["c"]} if at_ms == 5 else {})
        for seat in (a, b, c):
            assert [member.lease_until_ns for member in seat.members.values()] == [until_ns[seat.name]]
        a.ahead_ns = 0
        company.share()


def test_one_that_lags_all_the_same_has_the_card_alone() -> None:
    company, parts = made()
    a, b = parts.add("a"), parts.add("b")
    known(parts, a, b)
    parts.share(a, b)
    a.ahead_ns = -parts.policy.shared_lag_ns - 1
    company.share()
    assert (parts.beside.favoured, parts.beside.gently, b.state) == ("a", True, State.SHARED)
    a.ahead_ns = -parts.policy.shared_lag_ns * 3 // 2 - 1
    company.share()
    assert (parts.beside.favoured, parts.beside.gently, b.state) == ("a", False, State.LEAVING)


def test_those_that_are_not_host_bound_lag_together() -> None:
    company, parts = made()
    a, b = parts.add("a"), parts.add("b")
    known(parts, a)
    b.duty.turned_ns = 0
    parts.share(a)
    known(parts, a)
    parts.want(b)
    parts.hold(b)
    parts.promises.busy_ahead_ns = -parts.policy.shared_lag_ns - 1
    company.share()
    assert (parts.beside.favoured, a.state, b.state) == (BUSY, State.LEAVING, State.HOLDING)


def test_one_whose_bucket_is_empty_stops_and_pauses() -> None:
    company, parts = made()
    a = parts.add("a", HALF // 2, HALF // 2)
    parts.add("b")
    known(parts, a)
    parts.share(a)
    parts.at(1)
    a.credit, a.filled_ns = -5 * MS * 1_000_000, MS
    company.share()
    assert (a.state, a.spent) == (State.LEAVING, True)
    parts.context.begin()
    parts.rows.move(a, ev.TokenReturned(1, 0, a.shared_epoch, True))
    assert a.state is State.WAITING
    assert company.share() > 0
    assert a.state is State.PAUSED
