"""Whatever small tenants do, the others have what they are promised."""

from __future__ import annotations

import pytest

from tests.scheduler_backend.core.attackers import play


@pytest.mark.parametrize("seed", [38, 40, 114, 118])  # two that found a hole, and two that come nearest to one since
def test_random_attackers_take_no_promise(seed: int) -> None:
    worst = play(seed, 3000)[0]
    assert worst.lost < 0.02, worst


def test_what_turns_owe_is_not_lost_by_a_moment_beside_others() -> None:
    """An overrun keeps two waiting alike; then they run beside each other for a moment, and turns come again. One of
    them was owed nothing any more, again and again: 0.9 points of the card over a minute."""
    worst = play(25, 60000)[0]
    assert worst.lost < 0.005, worst


def test_what_an_overrun_costs_two_unlike_promises_is_owed_to_both_by_what_they_are() -> None:
    """An overrun of 400 ms, once a second: both lags were at their ends after it, and the busy one's of 0.4 lay further
    than the host-bound one's of 0.5, which had 0.9 points less than its 0.25 over a minute."""
    worst = play(3001, 20000)[0]
    assert worst.lost < 0.005, worst


def test_who_comes_and_goes_has_nobody_seen_alone_again_and_again() -> None:
    """It took the token beside two host-bound ones and gave it back at once. So one of them was taken for slower than
    it is, as if it had been alone in between, and the moment to see the other began anew each time that it came."""
    worst = play(16, 12000, (("a", 0.8, 0.6), ("h", 0.1, 0.5)))[0]
    assert worst.lost < 0.005, worst
