"""The tenant's side of the token: tables of messages, observations and times, and what is to be done."""

from __future__ import annotations

import random
from typing import Any

import pytest

from libhook.core import ffi, lib

MS = 1_000_000
T0 = 1000 * MS
REQUEST, RENEW, OPEN, CLOSE, ADMIT, RETURN, VOID = (
    lib.TOKEN_SEND_REQUEST,
    lib.TOKEN_SEND_RENEW,
    lib.TOKEN_OPEN_GATE,
    lib.TOKEN_CLOSE_GATE,
    lib.TOKEN_ADMIT,
    lib.TOKEN_SEND_RETURN,
    lib.TOKEN_VOID,
)


class Seat:
    """A token and the world around it; the fields of the view are attributes."""

    def __init__(self) -> None:
        self.token = ffi.new("struct token *")
        self.view = ffi.new("struct token_view *", {"connected": True, "page_agrees": True})
        lib.token_init(self.token)

    def step(self, now: int, **seen: Any) -> int:
        for name, value in seen.items():
            setattr(self.view, name, value)
        return int(lib.token_step(self.token, self.view, now))

    def grant(self, now: int, quota: int = 10 * MS, contended: bool = True, epoch: int = 7) -> bool:
        lease = quota + 20 * MS if contended else 250 * MS
        return bool(lib.token_on_grant(self.token, epoch, quota, lease, MS, contended, now))

    @property
    def state(self) -> str:
        return ffi.string(lib.token_state_name(self.token.state)).decode()

    def opened(self, **how: Any) -> Seat:
        assert self.step(T0, waiting=1) == REQUEST
        assert self.grant(T0, **how)
        assert self.step(T0, waiting=0, inflight_ns=MS) & OPEN
        return self

    def returned(self) -> Any:
        out = ffi.new("struct token_return *")
        lib.token_returned(self.token, self.view, out)
        return out


def test_nothing_is_asked_before_somebody_waits_or_while_nobody_listens() -> None:
    seat = Seat()
    assert seat.step(T0) == 0
    assert seat.step(T0, waiting=1, connected=False) == 0
    assert seat.step(T0, connected=True) == REQUEST
    assert seat.step(T0 + MS) == 0  # asked once
    assert seat.state == "requested"


def test_the_gate_closes_when_what_is_in_flight_fills_the_quota() -> None:
    seat = Seat().opened()
    assert seat.step(T0 + 8 * MS, inflight_ns=MS) == 0
    assert seat.token.deadline_ns <= T0 + 9 * MS
    assert seat.step(T0 + 9 * MS, inflight_ns=MS) == CLOSE
    assert seat.step(T0 + 9 * MS, inside=True) == 0
    assert seat.state == "closing"
    assert seat.step(T0 + 9 * MS, inside=False) == 0
    assert seat.state == "draining"
    assert seat.step(T0 + 10 * MS, drained=True, idle_since_ns=T0 + 10 * MS, waiting=2) == RETURN
    out = seat.returned()
    assert (out.epoch, out.held_ns, out.overuse_ns, out.flags) == (7, 10 * MS, 0, lib.TOKEN_RETURN_WANT_MORE)
    assert seat.state == "requested"  # the Return was the request


def test_work_past_the_quota_is_overuse() -> None:
    seat = Seat().opened()
    assert seat.step(T0 + 10 * MS) == CLOSE
    seat.step(T0 + 10 * MS)
    assert seat.step(T0 + 40 * MS, drained=True, idle_since_ns=T0 + 39 * MS) == RETURN
    assert seat.returned().overuse_ns == 29 * MS
    assert seat.state == "closed"


@pytest.mark.parametrize(("patience", "since", "closes_at"), [(0, 3, 3.0), (400_000, 3, 3.4)])
def test_an_idle_token_is_given_back_after_the_patience(patience: int, since: int, closes_at: float) -> None:
    seat = Seat().opened()
    idle = T0 + since * MS
    if patience:
        assert seat.step(idle, idle_since_ns=idle, patience_ns=patience, inflight_ns=0) == 0
        assert seat.token.deadline_ns == idle + patience
    close = T0 + int(closes_at * MS)
    assert seat.step(close, idle_since_ns=idle, patience_ns=patience, inflight_ns=0) == CLOSE
    seat.step(close)
    assert seat.step(close, drained=True) == RETURN
    assert seat.returned().flags == lib.TOKEN_RETURN_IDLE


def test_the_gate_is_closed_by_the_time_the_last_work_of_a_burst_ends() -> None:
    seat = Seat().opened()
    seat.step(T0 + MS, ending=True, inflight_ns=MS)
    assert seat.state == "open"
    assert T0 + MS < seat.token.deadline_ns < T0 + 2 * MS
    assert seat.step(T0 + 2 * MS - 50_000, inflight_ns=50_000) == CLOSE
    seat.step(T0 + 2 * MS - 50_000)
    assert seat.step(T0 + 2 * MS, drained=True, inflight_ns=0) == RETURN
    assert seat.returned().flags == lib.TOKEN_RETURN_IDLE


def test_a_thread_at_the_gate_means_that_no_burst_is_ending() -> None:
    seat = Seat().opened()
    seat.step(T0 + MS, ending=True, inflight_ns=50_000, waiting=1)
    assert seat.state == "open"


def test_who_waits_for_room_under_the_cap_wants_more() -> None:
    seat = Seat().opened()
    lib.token_on_revoke(seat.token, 7)
    assert seat.step(T0 + MS, pending=1) == CLOSE
    seat.step(T0 + MS)
    assert seat.step(T0 + MS, drained=True, inflight_ns=0) == RETURN
    assert seat.state == "requested"
    assert seat.returned().flags == lib.TOKEN_RETURN_WANT_MORE


def test_an_idle_holder_with_a_thread_at_the_gate_is_not_idle() -> None:
    seat = Seat().opened()
    assert seat.step(T0 + MS, idle_since_ns=T0, waiting=1, inflight_ns=0) == OPEN  # it missed the opening
    assert seat.state == "open"


@pytest.mark.parametrize(
    "why", [{"revoke": 7}, {"page_agrees": False}, {"shut": True}, {"now": T0 + 30 * MS, "contended": False}]
)
def test_what_closes_the_gate_early(why: dict[str, Any]) -> None:
    seat = Seat().opened()
    now = why.get("now", T0 + MS)
    if "revoke" in why:
        assert not lib.token_on_revoke(seat.token, 6)
        assert seat.step(now) == 0
        assert lib.token_on_revoke(seat.token, 7)
        assert seat.step(now) == CLOSE
    elif "now" in why:
        assert seat.step(now) == CLOSE
    else:
        assert seat.step(now, **why) == CLOSE


def test_alone_the_end_of_the_quota_closes_nothing_and_more_is_asked_in_time() -> None:
    seat = Seat().opened(quota=50 * MS, contended=False)
    renewals = 0
    for tick in range(1, 400):
        now = T0 + tick * MS
        actions = seat.step(now, inflight_ns=20 * MS)
        assert not actions & CLOSE
        if actions & RENEW:
            renewals += 1
            assert lib.token_on_extend(seat.token, 7, 50 * MS, 250 * MS, MS, False, now)
            assert seat.step(now) == OPEN  # new figures
    assert 8 <= renewals <= 12  # not one per burst


def test_alone_the_lease_closes_the_gate_where_nobody_answers() -> None:
    seat = Seat().opened(quota=50 * MS, contended=False)
    assert seat.step(T0 + 249 * MS) == RENEW
    assert seat.step(T0 + 250 * MS) == CLOSE


def test_a_renewal_that_nobody_answers_is_sent_again_each_quarter_of_the_lease() -> None:
    alone = Seat().opened(quota=50 * MS, contended=False)
    assert [ms for ms in range(1, 250) if alone.step(T0 + ms * MS) & RENEW] == [38, 101, 164, 227]
    drains = Seat().opened()
    drains.step(T0 + 10 * MS)
    drains.step(T0 + 10 * MS, inflight_ns=60 * MS)
    assert drains.step(T0 + 15 * MS) == RENEW
    assert drains.step(T0 + 22 * MS) == 0
    assert drains.step(T0 + 23 * MS) == RENEW
    assert lib.token_on_extend(drains.token, 7, 0, 41 * MS, MS, True, T0 + 24 * MS)
    assert drains.step(T0 + 25 * MS) == 0


def test_alone_and_long_idle_the_token_goes_back_instead_of_being_renewed() -> None:
    seat = Seat().opened(quota=50 * MS, contended=False)
    assert seat.step(T0 + 100 * MS, idle_since_ns=T0 + 10 * MS, inflight_ns=0) == CLOSE


def test_a_newcomer_makes_the_end_of_the_quota_count() -> None:
    seat = Seat().opened(quota=50 * MS, contended=False)
    lib.token_on_extend(seat.token, 7, 5 * MS, 25 * MS, MS, True, T0 + 20 * MS)
    assert seat.step(T0 + 20 * MS) == OPEN
    assert seat.step(T0 + 24 * MS, inflight_ns=MS) == CLOSE


def test_a_long_drain_renews_its_lease() -> None:
    seat = Seat().opened()
    seat.step(T0 + 10 * MS)
    seat.step(T0 + 10 * MS, inflight_ns=60 * MS)
    assert seat.step(T0 + 14 * MS) == 0
    assert seat.step(T0 + 16 * MS) == RENEW
    assert seat.step(T0 + 17 * MS) == 0  # under way
    assert lib.token_on_extend(seat.token, 7, 10 * MS, 30 * MS, MS, True, T0 + 17 * MS)
    assert seat.step(T0 + 18 * MS) == 0
    assert seat.state == "draining"
    assert seat.step(T0 + 33 * MS) == RENEW
    assert lib.token_drain_foreseen(seat.token, T0 + 33 * MS)  # 60 ms were in flight
    assert lib.token_drain_foreseen(seat.token, T0 + 129 * MS)
    assert not lib.token_drain_foreseen(seat.token, T0 + 130 * MS)


def test_a_drain_that_goes_on_after_the_valve_is_not_foreseen_any_more() -> None:
    seat = Seat().opened()
    seat.step(T0 + 10 * MS, waiting=1)
    seat.step(T0 + 10 * MS, inflight_ns=0)
    assert seat.step(T0 + 12 * MS, needed=True) == 0
    assert lib.token_drain_foreseen(seat.token, T0 + 12 * MS)
    assert seat.step(T0 + 15 * MS) == ADMIT
    seat.step(T0 + 16 * MS)
    seat.step(T0 + 16 * MS)
    assert seat.state == "draining"
    assert not lib.token_drain_foreseen(seat.token, T0 + 17 * MS)


def test_what_stands_still_is_given_up_and_the_token_with_it() -> None:
    seat = Seat().opened()
    seat.step(T0 + 10 * MS, waiting=1)
    seat.step(T0 + 10 * MS, inflight_ns=MS)
    assert seat.step(T0 + 12 * MS, page_agrees=False) == 0
    assert seat.step(T0 + 13 * MS, stands=True) == RETURN
    assert seat.returned().flags == lib.TOKEN_RETURN_UNCONFIRMED | lib.TOKEN_RETURN_WANT_MORE
    assert seat.state == "requested"


def test_no_drain_is_foreseen_for_longer_than_a_quarter_of_a_second() -> None:
    seat = Seat().opened()
    seat.step(T0 + 10 * MS)
    seat.step(T0 + 10 * MS, inflight_ns=800 * MS)
    assert lib.token_drain_foreseen(seat.token, T0 + 259 * MS)
    assert not lib.token_drain_foreseen(seat.token, T0 + 260 * MS)


def test_the_valve_lets_needed_threads_in_and_closes_again() -> None:
    seat = Seat().opened()
    seat.step(T0 + 10 * MS, waiting=1)
    seat.step(T0 + 10 * MS, inflight_ns=0)
    assert seat.step(T0 + 14 * MS, needed=True) == 0
    assert not seat.step(T0 + 15 * MS, needed=False) & ADMIT  # nobody whose launch could help
    assert seat.step(T0 + 15 * MS, needed=True) == ADMIT
    assert seat.state == "valve"
    assert seat.step(T0 + 15 * MS + 500_000) == 0
    assert seat.step(T0 + 16 * MS) & CLOSE
    assert seat.state == "closing"


def test_a_drain_that_nobody_here_can_help_is_told_every_5_ms() -> None:
    seat = Seat().opened()
    assert seat.step(T0 + 10 * MS, inflight_ns=0) == CLOSE
    assert seat.step(T0 + 10 * MS) == 0
    assert seat.step(T0 + 14 * MS) == 0
    assert seat.step(T0 + 15 * MS) == RENEW
    assert seat.step(T0 + 21 * MS) == 0  # it was not answered yet
    assert lib.token_on_extend(seat.token, 7, 0, 21 * MS, MS, True, T0 + 21 * MS)
    assert seat.step(T0 + 24 * MS) == 0
    assert seat.step(T0 + 26 * MS) == RENEW
    assert seat.step(T0 + 27 * MS, drained=True) == RETURN


def test_the_valve_waits_twice_the_prediction() -> None:
    seat = Seat().opened()
    seat.step(T0 + 10 * MS, waiting=1)
    seat.step(T0 + 10 * MS, inflight_ns=30 * MS)
    assert not seat.step(T0 + 69 * MS, needed=True) & ADMIT
    assert seat.step(T0 + 71 * MS, needed=True) & ADMIT


def test_a_drain_after_the_connection_was_lost_tells_nobody() -> None:
    seat = Seat().opened()
    seat.step(T0 + 10 * MS, connected=False)
    seat.step(T0 + 10 * MS)
    assert lib.token_held(seat.token) == 7
    assert seat.step(T0 + 11 * MS, drained=True, waiting=1) == VOID
    assert lib.token_held(seat.token) == 0
    assert seat.step(T0 + 12 * MS, connected=True) == REQUEST


def test_a_request_dies_with_its_connection_and_is_made_again() -> None:
    seat = Seat()
    assert seat.step(T0, waiting=1) == REQUEST
    lib.token_on_connection(seat.token)
    assert seat.step(T0 + MS) == REQUEST


def test_messages_for_another_epoch_mean_nothing() -> None:
    seat = Seat().opened()
    assert not lib.token_on_extend(seat.token, 6, 10 * MS, 30 * MS, MS, True, T0)
    assert not seat.grant(T0, epoch=8)
    assert not seat.grant(T0, epoch=0)
    assert seat.grant(T0 + MS, epoch=7)  # after a reconnection: what is held already
    assert seat.token.quota_end_ns == T0 + 11 * MS


def test_random_events_keep_the_invariants() -> None:
    rng = random.Random(5)
    seat, now, epoch, open_gate = Seat(), T0, 0, False
    for _ in range(30_000):
        now += rng.randrange(0, 2 * MS)
        event = rng.randrange(10)
        if event == 0 and seat.state in ("requested", "closed"):
            epoch += 1
            assert seat.grant(now, epoch=epoch, contended=rng.random() < 0.7)
        elif event == 1:
            lib.token_on_extend(seat.token, epoch, 5 * MS, 30 * MS, MS, rng.random() < 0.5, now)
        elif event == 2 and rng.random() < 0.2:
            lib.token_on_revoke(seat.token, epoch)
        elif event == 3 and rng.random() < 0.2:
            lib.token_on_connection(seat.token)
        drained = rng.random() < 0.3
        actions = seat.step(
            now,
            connected=rng.random() < 0.95,
            waiting=rng.randrange(0, 2),
            needed=rng.random() < 0.5,
            inside=rng.random() < 0.3,
            drained=drained,
            inflight_ns=0 if drained else rng.randrange(0, 3 * MS),
            idle_since_ns=now if drained else 0,
            patience_ns=rng.randrange(0, MS),
            page_agrees=rng.random() < 0.98,
            shut=rng.random() < 0.02,
        )
        if actions & (OPEN | ADMIT):
            open_gate = True
        if actions & CLOSE:
            assert open_gate or seat.state in ("closing",)
            open_gate = False
        if actions & RETURN:
            assert not open_gate
            assert drained
        assert open_gate == (seat.state in ("open", "valve")) or seat.state == "open"  # granted, not yet opened
        assert seat.token.deadline_ns > 0
        if seat.state in ("open", "closing", "draining", "valve"):
            assert seat.token.deadline_ns < 2**63  # something is always due
            assert lib.token_held(seat.token) == epoch


def test_a_request_that_nobody_answers_is_made_again_after_half_a_second() -> None:
    seat = Seat()
    assert seat.step(T0, waiting=1) == REQUEST
    assert seat.step(T0 + 499 * MS) == 0
    assert seat.token.deadline_ns == T0 + 500 * MS
    assert seat.step(T0 + 500 * MS) == REQUEST
    assert seat.step(T0 + 2000 * MS, waiting=0) == 0
    assert seat.state == "closed"


def test_the_epoch_given_back_last_is_remembered_against_echoes() -> None:
    seat = Seat().opened(epoch=7)
    seat.step(T0 + 10 * MS, inflight_ns=0)
    seat.step(T0 + 10 * MS, drained=True)
    assert seat.step(T0 + 10 * MS) & RETURN or seat.state in ("closed", "requested")
    assert seat.token.returned == 7


def give_back(seat: Seat, now: int) -> None:
    assert seat.step(now, inflight_ns=0, drained=False) & CLOSE
    seat.step(now)
    assert seat.step(now, drained=True) == RETURN


def test_another_daemons_epochs_are_no_echoes_of_what_was_given_back_before() -> None:
    seat = Seat().opened(epoch=7)
    give_back(seat, T0 + 10 * MS)
    assert seat.token.returned == 7
    lib.token_on_daemon(seat.token)
    assert seat.token.returned == 0
    assert seat.grant(T0 + 20 * MS, epoch=3)
    give_back(seat, T0 + 30 * MS)
    assert seat.token.returned == 3


def test_what_is_still_held_of_a_daemon_of_before_is_returned_and_not_remembered() -> None:
    seat = Seat().opened(epoch=7)
    lib.token_on_daemon(seat.token)
    assert lib.token_held(seat.token) == 7
    give_back(seat, T0 + 10 * MS)
    assert seat.returned().epoch == 7
    assert seat.token.returned == 0
    assert seat.grant(T0 + 20 * MS, epoch=3)
    give_back(seat, T0 + 30 * MS)
    assert seat.token.returned == 3
