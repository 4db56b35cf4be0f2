"""The row of orders as who carries them out keeps it, and how the machine is told of those that were carried out."""

from __future__ import annotations

from scheduler_backend.core.events import Action, Carried, Charged, Grant, Page, Prepare, Tick, TokenReturned, Unprepare
from scheduler_backend.core.line import CarriedOut, Line, grant_of, left_of, told


def order(epoch: int, after: int = 0, wanting_from_ns: int = 0) -> Prepare:
    return Prepare(0, 1, "a", epoch - 1, "b", (2,), epoch, 9, 29, 1, True, 0, wanting_from_ns, after)


def filled() -> Line:
    line = Line()
    assert all(line.put(each) for each in (order(2), order(3, after=2, wanting_from_ns=7), order(4, after=3)))
    return line


def epochs(line: Line) -> list[int]:
    return [each.epoch for each in line.orders]


def test_orders_stand_in_their_row():
    assert epochs(filled()) == [2, 3, 4]


def test_the_same_order_with_other_times_leaves_what_stands_behind():
    line = filled()
    assert not line.put(order(2, wanting_from_ns=5))
    assert not line.put(order(3, after=2, wanting_from_ns=8))
    assert epochs(line) == [2, 3, 4]
    assert [each.wanting_from_ns for each in line.orders] == [5, 8, 0]


def test_another_order_ends_what_stood_behind():
    line = filled()
    assert line.put(order(5, after=2))
    assert epochs(line) == [2, 5]
    assert line.put(order(6))
    assert epochs(line) == [6]


def test_dropping_one_drops_those_behind():
    line = filled()
    line.drop(Unprepare(0, 3))
    assert epochs(line) == [2]
    line.drop(Unprepare(0))
    assert epochs(line) == []


def test_after_the_first_the_second_comes_first_and_has_its_time():
    line = filled()
    assert line.carried(100).epoch == 2
    assert epochs(line) == [3, 4]
    assert (line.orders[0].after, line.orders[0].wanting_from_ns) == (0, 107)


def done(at_ns: int, epoch: int, *, gpu: int = 0, word: bool = True) -> CarriedOut:
    """Carried out then; word: the Return came with the word of the drain."""
    return CarriedOut(at_ns, order(epoch)._replace(gpu=gpu), returned(epoch - 1, gpu) if word else None)


def returned(epoch: int, gpu: int = 0, *, followed: bool = False) -> TokenReturned:
    return TokenReturned(1, gpu, epoch, True, followed=followed)


def test_an_order_says_what_its_clients_are_granted():
    assert grant_of(order(2), 7) == Grant(7, 0, 2, 9, 29, 1, True, False)


def test_an_order_for_several_clients_tells_each_of_its_part():
    several = order(2)._replace(clients=(2, 3, 4), quota_ns=900, cap_ns=100)
    assert [grant_of(several, 3).quota_ns, grant_of(several, 3).cap_ns] == [700, 100]
    endless = several._replace(contended=False)
    assert [grant_of(endless, 3).quota_ns, grant_of(endless, 3).cap_ns] == [900, 100]


def test_what_was_carried_out_is_told_in_its_order_and_only_the_last_return_is_heard_now():
    assert told([done(20, 3), done(10, 2)], None, False) == [
        (Carried(0, 1, 2, followed=True), 10, True),
        (returned(1, followed=True), 10, True),
        (Carried(0, 2, 3, followed=True), 20, False),
        (returned(2), 0, False),
    ]


def test_what_was_carried_out_on_another_card_does_not_stand_behind_it():
    assert told([done(10, 2), done(20, 8, gpu=1)], None, False) == [
        (Carried(0, 1, 2, followed=True), 10, False),
        (returned(1), 0, False),
        (Carried(1, 7, 8, followed=True), 20, False),
        (returned(7, 1), 0, False),
    ]


def test_a_return_that_comes_as_the_next_event_stands_behind_the_last():
    carried = [done(10, 2, word=False)]
    assert told(carried, returned(1), False) == [(Carried(0, 1, 2, followed=True), 10, False)]
    for other in (None, Tick(), returned(1, gpu=1)):
        assert told(carried, other, False) == [(Carried(0, 1, 2), 10, False)]


def test_beside_gangs_no_decision_waits_for_the_return():
    assert told([done(10, 2)], None, True)[0] == (Carried(0, 1, 2), 10, False)
    assert told([done(10, 2), done(20, 3)], None, True)[0] == (Carried(0, 1, 2, followed=True), 10, True)


def test_the_page_is_not_shown_again_and_of_a_grant_that_is_over_nobody_is_told():
    grant, charged = Grant(2, 0, 2, 9, 29, 1, True, False), Charged("a", 0, 1, 5, 0, 5, 1)
    actions: list[Action] = [charged, Page("b", 0, 2), grant]
    assert left_of(actions, False) == [charged, grant]
    assert left_of(actions, True) == [charged]
