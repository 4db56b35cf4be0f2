"""The quota follows the bursts."""

import pytest

from scheduler_backend.core.quota import Bursts, contended_quota, turn


def test_the_burst_is_smoothed_with_rate_one_half_and_unknown_changes_nothing():
    bursts = Bursts()
    bursts.observe(8, 0)
    bursts.observe(4, 3)
    bursts.observe(0, 0)
    assert (bursts.burst_ns, bursts.gap_ns) == (6, 3)


@pytest.mark.parametrize(("burst", "quota"), [(0, 70), (1, 20), (40, 50), (90, 100), (1000, 70)])
def test_a_quarter_is_added_within_bounds(burst: int, quota: int):
    assert contended_quota(burst, 20, 100, turn_ns=70) == quota


@pytest.mark.parametrize(
    ("request_ppm", "requests", "length"),
    [
        (500_000, [500_000, 500_000], 900),
        (700_000, [700_000, 300_000], 900),
        (300_000, [700_000, 300_000], 720),
        (250_000, [250_000, 750_000, 500_000], 675),
        (1, [999_999, 1], 450),
        (0, [500_000], 900),
        (0, [], 900),
    ],
)
def test_who_owns_less_than_an_equal_part_has_shorter_turns(request_ppm: int, requests: list[int], length: int):
    assert turn(1000, request_ppm, sum(requests), len(requests)) == length
