"""A bucket gives what is in it, fills at its rate, and never holds more than its burst."""

from __future__ import annotations

from scheduler_backend.allowance import Allowance, Allowances, Commons

SECOND = 1_000_000_000


def test_the_burst_is_there_at_once_and_then_only_the_rate() -> None:
    allowance = Allowance(10, 3)
    assert [allowance.spend(SECOND) for _ in range(4)] == [True, True, True, False]
    assert not allowance.spend(SECOND + SECOND // 20)
    assert allowance.spend(SECOND + SECOND // 10 + 1)


def test_rest_earns_no_more_than_the_burst() -> None:
    allowance = Allowance(10, 3)
    assert allowance.whole(SECOND) == 3
    allowance.take(3)
    assert allowance.whole(100 * SECOND) == 3


def test_a_new_rate_holds_from_now_on() -> None:
    allowance = Allowance(1, 10)
    allowance.whole(SECOND)
    allowance.take(10)
    allowance.rate = 100
    assert allowance.whole(SECOND + SECOND // 20) == 5


def test_whoever_asks_for_more_waits_and_nobody_else_does() -> None:
    turns = Allowances(10, 2)
    assert [turns.wait_seconds("a", SECOND) for _ in range(4)] == [0, 0, 0.1, 0.2]
    assert turns.wait_seconds("b", SECOND) == 0
    turns.give_back("a")
    assert turns.wait_seconds("a", SECOND) == 0.2


def test_more_than_one_may_be_taken_at_once() -> None:
    turns = Allowances(50, 250)
    assert turns.wait_seconds("a", SECOND, 200) == 0
    assert turns.wait_seconds("a", SECOND, 75) == 0.5
    assert turns.wait_seconds("a", 2 * SECOND, 0) == 0


def test_whoever_owes_is_remembered_longest() -> None:
    turns = Allowances(1, 1, most=2)
    assert [turns.wait_seconds("a", SECOND) for _ in range(3)] == [0, 1, 2]
    assert [turns.wait_seconds(key, SECOND) for key in "bcd"] == [0, 0, 0]
    assert turns.wait_seconds("a", SECOND) == 3


def test_no_more_are_remembered_than_there_is_room_for() -> None:
    turns = Allowances(1, 1, most=2)
    assert [turns.wait_seconds(key, SECOND) for key in ("a", "a", "b", "c", "b")] == [0, 1, 0, 0, 0]


def test_of_what_all_have_together_each_surely_has_its_part() -> None:
    commons = Commons(100, 100)
    for name in ("loud", "quiet", "late"):
        commons.join(name)
    now_ns = SECOND
    taken = 0
    while commons.has("loud", now_ns):
        commons.take("loud")
        taken += 1
    assert taken == 100, "what the others leave is anybody's"
    assert commons.has("quiet", now_ns)
    for _ in range(33):
        assert commons.has("quiet", now_ns)
        commons.take("quiet")
    assert not commons.has("quiet", now_ns)
    commons.leave("late")
    assert commons.has("quiet", now_ns + SECOND // 10)


def test_those_of_one_key_have_one_part() -> None:
    commons = Commons(100, 100)
    for key in (1, 1, 1, "other"):
        commons.join(key)
    now_ns = SECOND
    while commons.has(1, now_ns):
        commons.take(1)
    later_ns = now_ns + 10 * SECOND
    commons.has("other", later_ns)
    for _ in range(100):
        commons.take("other")
    shares = []
    for key in (1, "other"):
        count = 0
        while commons.has(key, later_ns):
            commons.take(key)
            count += 1
        shares.append(count)
    assert shares[0] == 50
    commons.leave(1)
    commons.leave(1)
    assert commons.has(1, later_ns + SECOND)
