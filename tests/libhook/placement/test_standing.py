"""The C that looks at the cards of nodes, and at nodes by what policies say of them, against the same in Python."""

from __future__ import annotations

import random

import pytest

from libhook.core import ffi, lib


@pytest.mark.parametrize("sign", [-1, 0, 1])
@pytest.mark.parametrize("columns", [1, 3, 8])
def test_the_first_card_with_room_and_the_least_score_is_found(columns: int, sign: int) -> None:
    rng, rows = random.Random(columns), 40
    cards = [
        ([rng.randrange(5) for _ in range(3)], [rng.randrange(3) for _ in range(3)], rng.randrange(3))
        for _ in range(columns)
    ]
    used = [[rng.randrange(6) for _ in range(rows * columns)] for _ in range(3)]
    usable = [rng.random() < 0.8 for _ in range(rows * columns)]
    found, scores = ffi.new("int64_t[]", rows), ffi.new("int64_t[]", rows)
    flat = [amount for plane in used for amount in plane]
    lib.standing_look(
        ffi.new("struct standing_card[]", cards), columns, usable, flat, rows * columns, rows, sign, found, scores
    )
    expected = []
    for row in range(rows):
        able = []
        for column, (most, weights, of_need) in enumerate(cards):
            held = [plane[row * columns + column] for plane in used]
            if usable[row * columns + column] and all(h <= m for h, m in zip(held, most, strict=True)):
                score = of_need + sum(h * w for h, w in zip(held, weights, strict=True))
                able.append((sign * score, column, score))
        expected.append(min(able)[1:] if able else (-1, 0))
    assert list(zip(found, scores, strict=True)) == expected
    assert {column < 0 for column, _ in expected} == {True, False}


@pytest.mark.parametrize("policies", [0, 1, 3])
def test_the_best_node_is_that_of_the_least_numbers_then_the_first_known(policies: int) -> None:
    rng, nodes = random.Random(policies), 30
    for _ in range(200):
        possible = [rng.random() < 0.5 for _ in range(nodes)]
        numbers = [[float(rng.randrange(3)) for _ in range(nodes)] for _ in range(policies)]
        asked = [rng.randrange(-1, nodes) for _ in range(rng.randrange(12))]
        best = ffi.new("int64_t *", -7)
        flat = [number for policy in numbers for number in policy]
        fit = lib.standing_best(possible, flat, policies, nodes, asked, len(asked), best)
        able = [i for i in asked if i >= 0 and possible[i]]
        assert fit == len(able)
        assert best[0] == (min(able, key=lambda i: (*(of[i] for of in numbers), i)) if able else -7)
