"""Reservations: they count like placed pods, and come back whole."""

from __future__ import annotations

import pytest

from gemini.extender.reserve import Reservations
from gemini.placement.book import Book, Overbooked
from gemini.placement.model import Grant, Placement
from tests.gemini.extender.world import cards


def placement(pod: str, core: int, minor: int = 0) -> Placement:
    return Placement(pod, "n1", (Grant("gpu", minor, core, 0),))


def test_reservation_takes_room_until_it_is_dropped() -> None:
    book = Book([cards("n1")])
    held = Reservations(book)
    held.put(placement("a", 60), 10)
    with pytest.raises(Overbooked):
        held.put(placement("b", 60), 10)
    assert "b" not in held
    assert held.drop("a")
    assert not held.drop("a")
    held.put(placement("b", 60), 10)
    book.check()


def test_group_is_reserved_whole_or_not_at_all() -> None:
    book = Book([cards("n1")])
    held = Reservations(book)
    with pytest.raises(Overbooked):
        held.put_all([placement("a", 60), placement("b", 60, 1), placement("c", 60)], 10, ("ns", "g"))
    assert len(held) == 0
    assert not book.holdings


def test_due_are_those_whose_time_is_up_and_one_may_become_the_pods_own() -> None:
    held = Reservations(Book([cards("n1")]))
    held.put_all([placement("a", 20), placement("b", 20)], 10, ("ns", "g"))
    held.extend("b", 50)
    bound = held.of("b")
    assert bound is not None
    assert bound.group == ("ns", "g")
    held.own("b")
    assert [r.placement.pod for r in held.due(10)] == ["a"]
    left = held.of("b")
    assert left is not None
    assert left.group is None


def test_what_another_replica_promised_counts_beside_our_own_and_is_replaced_as_a_whole() -> None:
    book = Book([cards("n1")])
    held = Reservations(book)
    held.put(placement("a", 60), 10)
    held.adopt("n1", [placement("a", 60), placement("a", 30, 1), placement("b", 70, 1)], 20)
    assert [book.snapshot()["n1", "gpu", minor][0] for minor in (0, 1)] == [60, 100]  # the very same counts once
    held.adopt("n1", [placement("b", 70, 1)], 20)
    assert book.snapshot()["n1", "gpu", 1][0] == 70
    assert [r.placement.pod for r in held.due_adopted(20)] == ["b"]
    held.settle("b")
    held.settle("a")
    assert not book.holdings


def test_promise_taken_over_is_ours_and_counts_once() -> None:
    book = Book([cards("n1")])
    held = Reservations(book)
    held.adopt("n1", [placement("a", 60)], 20)
    held.take_over(placement("a", 60), 30)
    assert book.snapshot()["n1", "gpu", 0][0] == 60
    assert "a" in held


def test_binding_that_is_seen_as_it_was_reserved_changes_nothing_in_the_book() -> None:
    book = Book([cards("n1")])
    held = Reservations(book)
    held.put(placement("a", 60), 10)
    version = book.version
    held.settle("a", placement("a", 60))
    assert (book.version, len(held)) == (version, 0)
    assert book.holdings["a"].placement == placement("a", 60)
    held.put(placement("b", 30), 10)
    held.settle("b", placement("b", 20))  # the record says something else: its owner enters that
    assert "b" not in book.holdings
