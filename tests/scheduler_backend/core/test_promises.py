"""What each got of its promise beside others, by itself. test_sharing.py and test_company.py play whole programs."""

from __future__ import annotations

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.duty import DOUBT_NS
from scheduler_backend.core.policy import MS
from scheduler_backend.core.promises import QUIET_NS, STALL_NS
from scheduler_backend.core.seat import Seat, Standing
from scheduler_backend.core.tenant import WHOLE_PPM
from tests.scheduler_backend.core.parts import HALF, Parts, returned


def used(seat: Seat, busy_ms: float, waited_ms: float = 0) -> ev.Used:
    """The word of its first process."""
    member = next(iter(seat.members.values()))
    return ev.Used(member.client, 0, member.epoch, round(busy_ms * MS), round(waited_ms * MS))


def test_each_is_owed_its_part_of_the_time_while_they_run_beside_each_other() -> None:
    parts = Parts()
    a, b = parts.add("a", 600_000), parts.add("b", 200_000)
    parts.share(a, b)
    parts.at(4)
    assert (a.ahead_ns, b.ahead_ns) == (-3 * MS, -MS)


def test_in_turns_nobody_is_owed_anything_here() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.want(b)
    parts.hold(a)
    parts.at(5)
    assert (a.ahead_ns, b.ahead_ns, parts.promises.busy_lag_ns()) == (0, 0, 0)


def test_one_that_runs_alone_gets_the_time_itself() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a)
    parts.want(b)
    parts.shared.pause(b)
    parts.at(4)
    assert (a.ahead_ns, b.ahead_ns, a.metered_ns) == (2 * MS, -2 * MS, 4 * MS)


def test_of_a_time_without_events_not_much_counts() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    parts.promises.meter(10_000 * MS)
    assert a.ahead_ns == max(-STALL_NS // 2, -8 * parts.policy.shared_lag_ns)


def test_to_see_one_alone_is_nobodys_time() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    parts.beside.favour("a", 50 * MS, seeing=True)
    parts.at(4)
    assert (a.ahead_ns, b.ahead_ns) == (0, 0)


def test_what_one_says_that_it_used_is_what_it_would_have_held_alone() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    parts.promises.hear(a, used(a, 100))  # from where to count
    assert parts.promises.speaks(a)
    parts.at(10)
    parts.promises.hear(a, used(a, 103, waited_ms=10))
    assert a.used_ns == 3 * MS
    assert a.ahead_ns == -5 * MS + 6 * MS  # its duty is a half


def test_while_others_go_slowly_for_one_all_got_what_they_used_and_not_what_they_say_that_they_did_not_wait() -> None:
    """Who has one launch in flight waits for its own work, and does not call that waiting for the card."""
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    parts.beside.favour("a", 50 * MS, gently=True)
    for one in (a, b):
        parts.promises.hear(one, used(one, 100))
    parts.at(10)
    for one in (a, b):
        parts.promises.hear(one, used(one, 101))
    assert (a.ahead_ns, b.ahead_ns) == (-5 * MS + 2 * MS, -5 * MS + 2 * MS)


def test_of_a_word_that_comes_after_it_the_time_in_which_one_went_slowly_does_not_count() -> None:
    """Nor does the time before that count less, where a word comes within it."""
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    parts.promises.hear(b, used(b, 100))
    parts.at(3)
    parts.beside.favour("a", 50 * MS, gently=True)
    parts.at(7)
    parts.promises.hear(b, used(b, 100.5))
    assert b.ahead_ns == -3.5 * MS + 3 * MS
    parts.at(10)
    parts.beside.favour_nobody()
    parts.at(17)
    parts.promises.hear(b, used(b, 101))
    assert b.ahead_ns == -8.5 * MS + 3 * MS + 7 * MS


def test_a_holder_that_goes_slowly_for_another_got_what_it_used_as_well() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a)
    parts.want(b)
    parts.hold(b)
    parts.beside.favour("a", 50 * MS, gently=True)
    parts.promises.hear_held(b, used(b, 100))
    parts.at(10)
    parts.promises.hear_held(b, used(b, 103))
    assert parts.promises.busy_ahead_ns == -5 * MS + 3 * MS


def test_it_used_no_more_than_the_gpu_could_give_it() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    parts.promises.hear(a, used(a, 0))
    parts.at(10)
    parts.promises.hear(a, used(a, 1000))
    assert a.used_ns == 10 * MS


def test_one_that_used_nothing_for_a_while_rests() -> None:
    parts = Parts()
    a, b = parts.add("a"), parts.add("b")
    parts.share(a, b)
    parts.at(QUIET_NS / MS + 1)
    assert not parts.promises.rests(a)  # it may not know how to say so
    parts.promises.hear(a, used(a, 0))
    assert parts.promises.rests(a)


def test_a_limit_is_a_part_of_what_is_used() -> None:
    parts = Parts()
    a, b = parts.add("a", HALF // 2, HALF // 2), parts.add("b")
    parts.share(a, b)
    a.credit, a.filled_ns = MS * WHOLE_PPM, 0
    assert parts.promises.spent_at_ns(a) == 4 * MS  # it uses a half and has a quarter
    parts.promises.hear(a, used(a, 0))
    parts.at(20)
    parts.promises.hear(a, used(a, 20))
    assert a.credit < 0
    at_ns = parts.promises.rested_at_ns(a)
    assert at_ns > 20 * MS
    parts.at(at_ns / MS + 1)
    assert parts.promises.rested_at_ns(a) == 0


@pytest.mark.parametrize("company", [False, True])
def test_a_turn_tells_of_a_duty_only_where_nobody_ran_beside_it(company: bool) -> None:
    parts = Parts()
    a = parts.add("a")
    for _ in range(40):
        member = parts.hold(a)
        if company:
            a.alone_epoch = 0
        parts.promises.measure(a, returned(member, busy_ns=5 * MS, held_ns=10 * MS), 10 * MS)
    assert a.duty.host_bound is not company
    assert ("a" in parts.beside.host_bound) is not company
    assert (parts.charges.weigh_until_ns > 0) is not company


def test_one_whose_word_the_gpu_does_not_bear_out_is_host_bound_no_more() -> None:
    parts = Parts()
    a = parts.add("a")
    parts.share(a)
    parts.promises.weigh(ev.Weighed("a", 0, 10 * DOUBT_NS, 10 * DOUBT_NS))
    assert not a.duty.believed
    assert parts.beside.host_bound == set()
    parts.promises.weigh(ev.Weighed("gone", 0, 1, 1))


@pytest.mark.parametrize("strayed", [False, True])
def test_one_whose_drain_was_given_up_owes_what_the_gpu_says_and_is_believed(strayed: bool) -> None:
    parts = Parts()
    a, b = parts.add("a", limit_ppm=HALF), parts.add("b")
    member = parts.hold(a)
    parts.at(10)
    if strayed:
        a.stray(member, since_ns=10 * MS)
    else:
        member.standing = Standing.QUIET
    parts.grants.after_hold(a)
    parts.at(1000)
    parts.promises.weigh(ev.Weighed("a", 0, 0, 0))
    assert a.stray_ns == (990 * MS if strayed else 0)
    member.standing = Standing.QUIET
    parts.want(a)
    parts.hold(b)
    parts.at(3000)
    parts.promises.weigh(ev.Weighed("a", 0, 2 * DOUBT_NS, 2 * DOUBT_NS))
    assert a.duty.believed is strayed
    assert a.stray_ns == (990 * MS + 2 * DOUBT_NS * 19 // 20 if strayed else 0)
    assert a.throttled is strayed
