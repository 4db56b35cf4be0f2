"""Splits of cards into sets: as a search through all of them finds them, and in time whichever cards are left."""

from __future__ import annotations

import random
import time
from itertools import combinations

import pytest

from gemini.placement.book import Book
from gemini.placement.model import Device, Link, Node
from gemini.placement.policies import best_of_split
from gemini.placement.shape import Shape

KINDS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def shape(count: int, models: int, rng: random.Random) -> Shape:
    cards = tuple(Device(m, uuid=f"GPU-{m}", memory=8, model=f"m{rng.randrange(models)}") for m in range(count))
    links = tuple(Link(a, b, rng.choice(KINDS)) for a, b in combinations(range(count), 2))
    pairs = (sorted(rng.sample(range(count), 2)) for _ in range(count // 2))
    nvlinks = (Link(low, high, "NVLINK", rng.randint(1, 3)) for low, high in pairs)
    book = Book([Node("n", cards, (*links, *dict.fromkeys(nvlinks)))])
    (block,) = book.blocks["gpu"].values()
    return block.shape


def every_split(left: tuple[int, ...], sets: dict[tuple[int, ...], int]) -> list[list[tuple[int, ...]]]:
    """All ways to take sets out of these columns, one after another by their lowest."""
    if not left:
        return [[]]
    first, rest = left[0], left[1:]
    found = every_split(rest, sets)
    for chosen in sets:
        if chosen[0] == first and set(chosen) <= set(left):
            found = found + [[chosen, *more] for more in every_split(tuple(c for c in rest if c not in chosen), sets)]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_best_splits_are_those_that_a_search_through_all_finds(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(4, 9)
    made = shape(count, rng.choice([1, 1, 2]), rng)
    for size in range(2, min(5, count) + 1):
        table = made.sets(size)
        assert table is not None
        members = [tuple(row) for row in table.members.tolist()]
        scores = table.pair_sum.tolist()
        alike = {one: s for one, s, ok in zip(members, scores, table.one_model.tolist(), strict=True) if ok}
        for _ in range(4):
            free = rng.sample(range(count), rng.randint(0, count))
            splits = every_split(tuple(sorted(free)), alike)
            most = max(map(len, splits))

            def good(split: list[tuple[int, ...]], alike: dict[tuple[int, ...], int] = alike) -> tuple[int, int]:
                return sum(alike[one] for one in split), min((alike[one] for one in split), default=0)

            full = [split for split in splits if len(split) == most]
            top = max(map(good, full))
            taken = {one for split in full if good(split) == top for one in split}
            best = max((alike[one] for one in taken), default=0)
            sets, score = best_of_split(made, sum(1 << c for c in free), size)
            assert {members[i] for i in sets.tolist()} == {one for one in taken if alike[one] == best}
            assert score == best


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_each_subset_of_sixteen_cards_is_split_in_time(size: int) -> None:
    """A pod may say by uuid which cards of each node will do, so each node may have another subset left: one took up
    to a second, while all others waited."""
    rng = random.Random(size)
    made = shape(16, 1, rng)
    subsets = [sum(1 << c for c in rng.sample(range(16), rng.randint(12, 16))) for _ in range(20)]
    began = time.process_time()
    for subset in subsets:
        assert len(best_of_split(made, subset, size)[0])
    assert time.process_time() - began < 2
