"""The quota follows the bursts."""

import pytest

from scheduler_backend.core.quota import Bursts, contended_quota


def test_the_burst_is_smoothed_with_rate_one_half_and_unknown_changes_nothing():
    bursts = Bursts()
    bursts.observe(8, 0)
    bursts.observe(4, 3)
    bursts.observe(0, 0)
    assert (bursts.burst_ns, bursts.gap_ns) == (6, 3)


@pytest.mark.parametrize(("burst", "quota"), [(0, 100), (1, 20), (40, 50), (1000, 100)])
def test_a_quarter_is_added_within_bounds(burst: int, quota: int):
    assert contended_quota(burst, 20, 100) == quota
