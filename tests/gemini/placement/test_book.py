"""The book: exact, order-independent, and never promising a device twice."""

from __future__ import annotations

import random

import pytest

from gemini.placement.book import Book, Overbooked
from gemini.placement.model import Device, Grant, Node, Placement, Role
from gemini.placement.written import Written


def a_node(name: str, count: int, memory: int = 1000) -> Node:
    return Node(name, tuple(Device(m, uuid=f"{name}-{m}", memory=memory) for m in range(count)))


def hold(pod: str, node: str, minor: int, core: int, memory: int = 0, role: Role = Role.ALWAYS) -> Placement:
    return Placement(pod, node, (Grant("gpu", minor, core, memory, 0, role),))


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (hold("b", "n1", 0, 51), "gpu 0 of n1: 51 core wanted, 50 free"),
        (hold("b", "n1", 0, 1, 501), "gpu 0 of n1: 501 bytes of memory wanted, 500 free"),
        (hold("b", "n1", 7, 1), "node n1 has no gpu 7"),
        (hold("b", "n9", 0, 1), "there is no node n9"),
        (hold("a", "n1", 1, 1), "pod a is placed already, on n1"),
    ],
)
def test_nothing_is_promised_twice_and_a_refusal_leaves_no_trace(placement: Placement, text: str) -> None:
    book = Book([a_node("n1", 2)])
    book.place(hold("a", "n1", 0, 50, 500))
    before = book.snapshot()
    with pytest.raises(Overbooked, match=text):
        book.place(placement)
    assert book.snapshot() == before
    book.check()


def test_names_as_they_are_written_are_the_nodes_that_they_name() -> None:
    book = Book([a_node(f"n{i}", 1) for i in range(20)])
    asked = ["n19", "n2", "nowhere", "n-new", "n2"]
    for change in (lambda: None, lambda: book.put_node(a_node("n-new", 1)), lambda: book.drop_node("n2")):
        change()
        written = Written.of(asked)
        assert written is not None
        assert book.ordinals(written).tolist() == book.ordinals(asked).tolist()


def test_records_of_what_runs_are_taken_as_they_are() -> None:
    book = Book([a_node("n1", 1)])
    for pod in "abc":
        book.place(hold(pod, "n1", 0, 50), strict=False)
    assert book.snapshot()["n1", "gpu", 0][0] == 150
    for pod in "abc":
        book.release(pod)
    assert book.snapshot()["n1", "gpu", 0] == (0, 0, 0, 0)


def test_a_book_bears_what_is_in_it_as_long_as_no_more_is_promised_than_there_is() -> None:
    book = Book([a_node("n1", 2)])
    mine = hold("a", "n1", 0, 60, 500)
    book.place(mine)
    assert book.bears(mine)
    for more in (hold("b", "n1", 0, 41), hold("b", "n1", 0, 0, 501)):
        book.place(more, strict=False)
        assert not book.bears(mine)
        book.release("b")
    book.place(hold("b", "n1", 1, 101), strict=False)
    assert book.bears(mine)
    for node in (a_node("n1", 0), Node("n1", (Device(0, memory=1000, cordoned=True),))):
        book.put_node(node)
        assert not book.bears(mine)
    book.drop_node("n1")
    assert not book.bears(mine)


def test_init_containers_give_back_when_they_have_ended() -> None:
    book = Book([a_node("n1", 1)])
    grants = (Grant("gpu", 0, 60, 600, 0, Role.INIT), Grant("gpu", 0, 20, 200, 1, Role.APP))
    book.place(Placement("p", "n1", grants))
    assert book.snapshot()["n1", "gpu", 0] == (60, 600, 1, 1)
    assert book.initialized("p")
    assert not book.initialized("p")
    assert book.snapshot()["n1", "gpu", 0] == (20, 200, 1, 1)
    assert book.release("p")
    assert not book.release("p")


def test_holdings_wait_for_their_node_and_survive_its_changes() -> None:
    book = Book()
    book.place(hold("p", "n1", 1, 30), strict=False)
    book.put_node(a_node("n0", 2))
    book.put_node(a_node("n1", 1))
    assert book.snapshot()["n1", "gpu", 0] == (0, 0, 0, 0)
    book.put_node(a_node("n1", 2))
    assert book.snapshot()["n1", "gpu", 1] == (30, 0, 1, 1)
    book.drop_node("n0")
    book.drop_node("n1")
    assert book.snapshot() == {}
    book.put_node(a_node("n1", 2))
    assert book.snapshot()["n1", "gpu", 1] == (30, 0, 1, 1)
    book.check()


def test_a_node_is_there_once() -> None:
    with pytest.raises(ValueError, match="n1 is there twice"):
        Book([a_node("n1", 1), a_node("n1", 2)])


@pytest.mark.parametrize("seed", range(8))
def test_after_any_events_a_rebuilt_book_equals_the_one_that_lived(seed: int) -> None:
    rng = random.Random(seed)
    book = Book()
    for step in range(400):
        name = f"n{rng.randrange(5)}"
        event = rng.randrange(6)
        if event == 0:
            book.put_node(a_node(name, rng.randint(1, 4), rng.choice([1000, 1600])))
        elif event == 1:
            book.drop_node(name)
        elif event == 2 and book.holdings:
            book.release(rng.choice(list(book.holdings)))
        elif event == 3 and book.holdings:
            book.initialized(rng.choice(list(book.holdings)))
        else:
            grants = tuple(
                Grant("gpu", rng.randrange(4), rng.randrange(60), rng.randrange(600), i, rng.choice(list(Role)))
                for i in range(rng.randint(1, 3))
            )
            try:
                book.place(Placement(f"p{step}", name, grants), strict=rng.random() < 0.8)
            except Overbooked:
                assert f"p{step}" not in book.holdings
        book.check()
    rebuilt = Book(sorted(book.nodes(), key=lambda n: n.name, reverse=True))
    for holding in sorted(book.holdings.values(), key=lambda h: h.placement.pod):
        rebuilt.place(holding.placement, strict=False, initialized=holding.initialized)
    assert rebuilt.snapshot() == book.snapshot()
    for pod in list(book.holdings):
        book.release(pod)
    assert all(amounts == (0, 0, 0, 0) for amounts in book.snapshot().values())


def test_a_copy_says_the_same_and_goes_on_by_itself() -> None:
    book = Book([a_node("n1", 2), a_node("n2", 2), a_node("n3", 4)])
    book.drop_node("n2")
    book.place(hold("a", "n1", 0, 50, 500))
    twin = book.copy()
    assert (twin.snapshot(), twin.holdings) == (book.snapshot(), book.holdings)
    assert [node.name for node in twin.nodes()] == ["n1", "n3"]
    assert twin.ordinals(["n3", "n2", "n1"]).tolist() == book.ordinals(["n3", "n2", "n1"]).tolist()
    before = book.snapshot()
    twin.place(hold("b", "n3", 3, 100))
    twin.release("a")
    twin.put_node(a_node("n4", 1))
    twin.check()
    book.check()
    assert book.snapshot() == before
    book.place(hold("b", "n3", 3, 100))
    assert twin.snapshot()["n1", "gpu", 0] == (0, 0, 0, 0)
