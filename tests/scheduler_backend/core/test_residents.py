"""Tenants and processes that come and go, without a machine."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.core.residents import Residents
from scheduler_backend.core.seat import Standing, State
from scheduler_backend.core.tenant import WHOLE_PPM, TenantSpec
from tests.scheduler_backend.core.parts import HALF, Parts, returned


def made() -> tuple[Residents, Parts]:
    """It, and its parts."""
    parts = Parts()
    residents = Residents(
        parts.context,
        parts.tenants,
        parts.clock,
        parts.grant,
        parts.delay,
        parts.restart,
        parts.limits,
        parts.charges,
        parts.grants,
        parts.beside,
        parts.shared,
        parts.rows,
    )
    return residents, parts


def test_one_that_comes_is_owed_nothing_and_owes_nothing() -> None:
    residents, parts = made()
    parts.clock.jump_to(77)
    residents.take(ev.TenantAdded(TenantSpec("a", HALF)))
    residents.take(ev.ClientJoined("a", 1, (0,)))
    a = parts.tenants.seats["a"]
    assert (a.clock, list(a.members), a.state) == (77, [1], State.IDLE)
    assert parts.clock.resident_ppm == HALF


def test_best_effort_shares_what_is_promised_to_nobody() -> None:
    residents, parts = made()
    residents.take(ev.TenantAdded(TenantSpec("x")))
    residents.take(ev.TenantAdded(TenantSpec("y")))
    residents.take(ev.TenantAdded(TenantSpec("a", WHOLE_PPM - 30_000)))
    x, y = parts.tenants.seats["x"], parts.tenants.seats["y"]
    assert x.request_ppm == y.request_ppm == 15_000


def test_a_limit_that_is_new_ends_a_grant_without_end() -> None:
    residents, parts = made()
    a = parts.add("a")
    parts.hold(a, contended=False)
    residents.take(ev.TenantChanged(TenantSpec("a", HALF, HALF)))
    assert parts.done(ev.Revoke) == [ev.Revoke(1, 0, 1, ev.LIMIT)]
    assert (a.limit_ppm, a.state) == (HALF, State.CLOSING)


def test_a_newcomer_shortens_a_grant_without_end() -> None:
    residents, parts = made()
    parts.hold(parts.add("a"), quota_ns=50 * MS, contended=False)
    parts.add("b", processes=0)
    residents.take(ev.ClientJoined("b", 2, (0,)))
    (told,) = parts.done(ev.Extend)
    assert (told.client, told.quota_ns, told.cap_ns, told.contended) == (1, 10 * MS, MS, True)


def test_one_that_is_removed_loses_all_of_its_processes() -> None:
    residents, parts = made()
    a = parts.add("a", processes=2)
    parts.hold(a)
    parts.delay.observe("a", 5, 0, True)
    residents.take(ev.TenantRemoved("a"))
    assert [told.client for told in parts.done(ev.Revoke)] == [1, 11]
    assert (parts.grant.holder, parts.tenants.by_client, parts.delay.smoothed_ns) == (None, {}, {})


def test_a_process_that_joins_again_with_its_grant_goes_on() -> None:
    residents, parts = made()
    member = parts.hold(parts.add("a"))
    residents.take(ev.ClientJoined("a", 1, (0,), ((0, member.epoch),)))
    assert len(parts.done(ev.Extend)) == 1
    assert member.standing is Standing.HOLDS


def test_a_process_that_joins_with_a_grant_of_before_a_restart_strays() -> None:
    residents, parts = made()
    a = parts.add("a", processes=0)
    residents.take(ev.ClientsKnown((("a", 1), ("a", 2)), 1000 * MS))
    residents.take(ev.ClientJoined("a", 1, (0,), ((0, 9),)))
    residents.take(ev.ClientJoined("a", 2, (0,)))
    assert parts.done(ev.Revoke) == [ev.Revoke(1, 0, 9, ev.LEASE)]
    assert (a.members[1].standing, parts.restart.unheard) == (Standing.STRAY, {1})
    parts.rows.move(a, returned(a.members[1]))
    assert parts.restart.unheard == set()


def test_a_process_that_dies_gives_back_what_it_held() -> None:
    residents, parts = made()
    a = parts.add("a")
    parts.hold(a)
    residents.take(ev.ClientDied(1))
    assert (parts.grant.holder, a.members, a.state) == (None, {}, State.IDLE)
    residents.take(ev.ClientDied(99))  # nobody's
