"""What closed_loop says of a mix that falls short: the most that can be had, or who has it instead."""

from __future__ import annotations

import numpy as np
import pytest

from bench.closed_loop import MIXES, floor, fluid, served_first


def test_who_keeps_the_token_over_its_pauses_can_work_no_more_than_between_them() -> None:
    mix = MIXES["1/0.1 at 0.5 beside busy at 0.5"]
    reference = fluid(mix)
    why, most = floor(mix, reference, [0.25, 0.0])
    assert "0.25 ms" in why
    assert most == pytest.approx(0.5 / 1.25 / reference[0])


def test_a_mix_whose_pauses_are_worth_a_hand_over_has_no_floor() -> None:
    mix = MIXES["2/2 at 0.4 beside busy at 0.6"]
    assert floor(mix, fluid(mix), [2.1, 0.0]) == ("", None)


def test_who_is_served_at_once_within_its_request_is_named_and_nobody_who_has_more_than_that() -> None:
    mix = MIXES["50/20 at 0.5 beside 5/5 at 0.5"]
    reference = fluid(mix)
    assert "5/5" in served_first(mix, reference, np.array([0.442, 0.441]))
    assert served_first(mix, reference, np.array([0.40, 0.48])) == ""  # more than its half: that would be a fault
    assert served_first(mix, reference, np.array(reference)) == ""
