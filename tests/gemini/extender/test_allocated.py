"""Claims with devices of ours, and what of the book is theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemini.extender.allocated import Allocated
from gemini.extender.reserve import Reservations
from gemini.kube.claim import Claim, Share
from gemini.kube.device import Reported, read_device, write_device
from gemini.placement.book import Book
from tests.gemini.extender.world import cards

CLAIM = Claim("c", "ns", "c", "n1", "claim/c/1", (Share("gpu-n1-0", 30, 1 << 30),), True, False, {})


class Bench:
    """A node of two cards that is in the book, and the claims of a cluster."""

    def __init__(self) -> None:
        self.book = Book()
        self.book.put_node(cards("n1"))
        self.devices: dict[str, Reported] = {}
        self.allocated = Allocated(self.book, Reservations(self.book), self.devices)

    def report(self) -> int:
        """The node's Device comes."""
        self.devices["n1"] = read_device(write_device(cards("n1")))
        return self.allocated.look_again("n1")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_promised_claim_holds_its_cards_as_soon_as_their_minors_are_known(bench: Bench) -> None:
    assert bench.allocated.put("c", CLAIM) == (None, 0)
    assert not bench.book.holdings
    assert bench.report() == 0
    assert bench.book.holdings["claim/c/1"].placement.node == "n1"


def test_a_claim_that_waits_for_our_word_holds_nothing(bench: Bench) -> None:
    bench.report()
    bench.allocated.put("c", replace(CLAIM, promised=False))
    assert (bench.allocated.unanswered, dict(bench.book.holdings)) == ({"c"}, {})
    bench.allocated.put("c", replace(CLAIM, promised=False, refused=True))
    assert (bench.allocated.unanswered, dict(bench.book.holdings)) == (set(), {})
    bench.allocated.put("c", CLAIM)
    assert list(bench.book.holdings) == ["claim/c/1"]


def test_another_allocation_of_the_claim_ends_the_one_before(bench: Bench) -> None:
    bench.report()
    bench.allocated.put("c", CLAIM)
    assert bench.allocated.put("c", replace(CLAIM, key="claim/c/2")) == ("claim/c/1", 1)
    assert list(bench.book.holdings) == ["claim/c/2"]
    assert bench.allocated.put("c", None) == ("claim/c/2", 1)
    assert (dict(bench.allocated.claims), dict(bench.book.holdings)) == ({}, {})


def test_of_a_claim_with_a_card_that_is_gone_the_others_stay_held(bench: Bench) -> None:
    """A reporter that begins anew tells of no card that has gone: the claim's other cards then counted as free, and
    were promised to pods, while its programs ran there."""
    bench.report()
    both = tuple(Share(f"gpu-n1-{i}", 60, 1 << 30) for i in range(2))
    bench.allocated.put("c", replace(CLAIM, shares=both))
    left = replace(cards("n1"), devices=cards("n1").devices[1:])
    bench.book.put_node(left)
    bench.devices["n1"] = read_device(write_device(left))
    bench.allocated.look_again("n1")
    assert bench.book.used_on("n1")["gpu", 1][:2] == (60, 1 << 30)
    bench.book.put_node(cards("n1"))
    bench.report()
    assert [bench.book.used_on("n1")["gpu", i][0] for i in range(2)] == [60, 60]
    bench.book.check()
