"""The quota follows the bursts."""

import pytest

from scheduler_backend.core.quota import Bursts, contended_quota, is_brief, of_several, turn, whole_turn


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
        (300_000, [700_000, 300_000], 540),
        (250_000, [250_000, 750_000, 500_000], 450),
        (400_000, [400_000, 750_000, 500_000], 654),
        (1, [999_999, 1], 450),
        (0, [500_000], 900),
        (0, [], 900),
    ],
)
def test_who_owns_less_than_an_equal_part_has_shorter_turns(request_ppm: int, requests: list[int], length: int):
    assert turn(900, request_ppm, sum(requests), len(requests)) == length


@pytest.mark.parametrize(
    ("requests", "bound", "length"),
    [
        ([], False, 900),
        ([300_000], False, 900),
        ([700_000, 300_000], False, 900),
        ([200_000] * 5, False, 900),
        ([400_000, 300_000, 300_000], False, 800),
        ([400_000, 300_000, 300_000], True, 900),
    ],
)
def test_three_that_own_unequal_parts_have_shorter_turns(requests: list[int], bound: bool, length: int):
    assert whole_turn(1000, requests, bound) == length


@pytest.mark.parametrize(
    ("count", "told", "cap"),
    [(0, 900, 100), (1, 900, 100), (2, 800, 100), (4, 600, 100), (5, 540, 90), (16, 480, 28), (400, 501, 1)],
)
def test_work_in_flight_of_all_fits_into_the_quota_and_takes_half_of_it_at_most(count: int, told: int, cap: int):
    assert of_several(900, 100, count) == (told, cap)
    assert told + max(0, count - 1) * cap <= 900
    assert told >= 450 or cap == 1


@pytest.mark.parametrize(
    ("count", "brief", "told", "cap"),
    [(2, 1, 888, 100), (4, 3, 864, 100), (4, 2, 776, 100), (2, 0, 800, 100), (16, 15, 720, 28), (400, 399, 501, 1)],
)
def test_others_with_brief_bursts_take_less_of_the_quota(count: int, brief: int, told: int, cap: int):
    assert of_several(900, 100, count, brief) == (told, cap)


@pytest.mark.parametrize(("burst", "brief"), [(0, False), (1, True), (80, True), (81, False), (10**9, False)])
def test_brief_bursts_are_an_eighth_of_the_cap_with_the_quarter_that_is_added(burst: int, brief: bool):
    assert is_brief(burst, 800) is brief


@pytest.mark.parametrize("quota_ns", [0, 1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_of_a_quota_that_is_over_nobody_is_told_of_less_than_nothing(quota_ns: int, count: int):
    told, cap = of_several(quota_ns, 100, count)
    assert 0 <= told <= quota_ns
    assert cap >= 1
