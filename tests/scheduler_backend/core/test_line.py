"""The row of orders as who carries them out keeps it."""

from __future__ import annotations

from scheduler_backend.core.events import Prepare, Unprepare
from scheduler_backend.core.line import Line


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
