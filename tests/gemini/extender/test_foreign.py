"""What other device plugins gave out: whole cards, any card until it is reported, and never what our record says."""

from __future__ import annotations

from dataclasses import replace

from gemini.extender.foreign import PREFIX, ForeignCards, discard
from gemini.extender.podview import PodView
from gemini.kube.device import Reported
from gemini.placement.book import Book
from gemini.placement.model import Device, Grant, Node, Placement

NODE = Node("n", tuple(Device(m, uuid=f"GPU-{m}", memory=8) for m in range(3)))
BOUND = PodView("v", "default", "v", "n", False, False, False, None, None, None, {}, frozenset({"main"}))
WHOLE = tuple(Grant("gpu", m, 100, 8) for m in range(3))


def cluster() -> tuple[ForeignCards, Book, dict[str, Reported], dict[str, PodView]]:
    book, devices, pods = Book([NODE]), {"n": Reported(NODE)}, dict[str, PodView]()
    return ForeignCards(book, devices, pods), book, devices, pods


def test_a_pod_that_another_plugin_serves_holds_all_cards_until_its_own_are_reported() -> None:
    cards, book, devices, pods = cluster()
    pods["v"] = BOUND
    cards.settle("n", "v")
    assert book.holdings[f"{PREFIX}n/v"].placement.grants == WHOLE
    assert cards.open_cards("n") == ()
    devices["n"] = Reported(NODE, (("v", "GPU-1"), ("v", "GPU-unknown")), frozenset({("v", "main")}))
    cards.report("n")
    assert book.holdings[f"{PREFIX}n/v"].placement.grants == WHOLE[1:2]
    assert cards.open_cards("n") == (WHOLE[0], WHOLE[2])
    assert [cards.taken(Placement("p", "n", (grant,))) for grant in WHOLE] == [False, True, False]
    assert (set(cards.keys()), cards.sharers("n"), cards.releases) == ({f"{PREFIX}n/v"}, [], 1)


def test_what_was_reported_counts_until_it_is_taken_back() -> None:
    cards, book, devices, pods = cluster()
    devices["n"] = Reported(NODE, (("v", "GPU-0"),), frozenset({("v", "main")}))
    cards.report("n")
    pods["v"] = replace(BOUND, node=None)
    cards.settle("n", "v")
    assert book.holdings[f"{PREFIX}n/v"].placement.grants == WHOLE[:1]
    del devices["n"]
    cards.report("n")
    assert (book.holdings, list(cards.keys()), cards.releases) == ({}, [], 1)


def test_what_a_pods_own_record_says_is_not_held_twice_and_makes_it_a_sharer() -> None:
    cards, book, devices, pods = cluster()
    own = Placement("v", "n", (Grant("gpu", 0, 30, 1),))
    pods["v"] = replace(BOUND, placement=own, vendor=frozenset())
    book.place(own)
    devices["n"] = Reported(NODE, (("v", "GPU-0"), ("v", "GPU-2")))
    cards.report("n")
    assert book.holdings[f"{PREFIX}n/v"].placement.grants == WHOLE[2:]
    assert cards.sharers("n") == ["v"]


def test_a_set_goes_with_its_last_member() -> None:
    index = {"n": {"a", "b"}}
    discard(index, "n", "a")
    assert index == {"n": {"b"}}
    discard(index, "n", "b")
    assert index == {}
