"""What turns say of a tenant's duty."""

from __future__ import annotations

import pytest

from scheduler_backend.core.duty import (
    AGREED_MOST,
    BLOCK_NS,
    BLOCK_TURNS,
    BLOCKS,
    DOUBT_NS,
    FREE_LEAST_NS,
    FREE_MOST_NS,
    FREE_PENDING_NS,
    MOMENTS,
    MOMENTS_LEAST,
    SHORT_GAP_NS,
    Duty,
    Free,
)
from scheduler_backend.core.tenant import WHOLE_PPM

TURN_NS = BLOCK_NS + 1_000_000


def after(*shares: float) -> Duty:
    duty = Duty()
    for number, share in enumerate(shares, start=1):
        duty.observe(round(TURN_NS * share), TURN_NS, number * TURN_NS)
    return duty


def test_a_few_blocks_in_a_row_make_a_tenant_host_bound():
    assert not after(*[0.5] * (BLOCKS - 1)).host_bound
    assert after(*[0.5] * BLOCKS).host_bound
    assert not after(0.5, 0.5, 0.9, 0.5, 0.5).host_bound


def test_it_stays_so_whatever_turns_say_until_it_is_seen_busy_alone():
    duty = after(0.5, 0.5, 0.5, 1.0, 1.0, 1.0)
    assert duty.host_bound
    duty.observe_alone(6 * WHOLE_PPM // 10, 1)
    assert duty.ppm == 600_000  # turns show it slower than it is
    duty.observe_alone(WHOLE_PPM, 2)
    assert duty.ppm == 800_000  # the mean of both
    duty.observe_alone(WHOLE_PPM, 3)
    assert duty.host_bound
    for moment in range(4, MOMENTS_LEAST + 1):
        assert duty.host_bound
        duty.observe_alone(WHOLE_PPM, moment)
    assert not duty.host_bound


def test_moments_of_a_step_with_phases_are_taken_together():
    duty = after(0.5, 0.5, 0.5)
    for moment in range(400):
        duty.observe_alone(WHOLE_PPM if moment % 4 else 400_000, moment)
    assert duty.host_bound
    assert abs(duty.ppm - 850_000) < 30_000


def test_old_moments_count_less_and_less():
    duty = after(0.5, 0.5, 0.5)
    for moment in range(100):
        duty.observe_alone(700_000, moment)
    for moment in range(2 * MOMENTS):
        duty.observe_alone(300_000, 100 + moment)
    assert duty.ppm < 350_000


def test_it_is_at_least_what_it_uses_of_the_time_in_which_it_does_not_wait():
    duty = after(0.5, 0.5, 0.5)
    duty.observe_alone(600_000, 1)
    duty.observe_free(500_000)  # of its waits some are not seen
    assert duty.ppm == 600_000
    duty.observe_free(800_000)
    assert duty.ppm == 800_000
    duty.observe_free(WHOLE_PPM + 1)
    assert duty.ppm == WHOLE_PPM
    for moment in range(2, 2 * MOMENTS):
        duty.observe_alone(960_000, moment)
    assert duty.host_bound  # turns would cost it more than they show of it
    for moment in range(2 * MOMENTS, 8 * MOMENTS):
        duty.observe_alone(980_000, moment)
    assert not duty.host_bound
    duty.observe_free(100_000)
    assert duty.ppm == WHOLE_PPM  # said too late


def test_what_is_used_of_free_time_is_known_after_a_while_and_forgotten_later():
    free = Free()
    free.observe(FREE_LEAST_NS // 2, FREE_LEAST_NS - 1)
    assert free.ppm == -1
    free.observe(0, 10 * FREE_LEAST_NS)  # it did nothing; a moment of that may have been a kernel
    free.observe(0, 1 - FREE_PENDING_NS)
    free.observe(1, 0)
    assert free.ppm == (FREE_LEAST_NS // 2 + 1) * WHOLE_PPM // FREE_LEAST_NS
    free.observe(FREE_MOST_NS, FREE_MOST_NS)
    assert free.free_ns <= FREE_MOST_NS
    for _ in range(10):
        free.observe(FREE_MOST_NS // 4, FREE_MOST_NS)
    assert free.ppm == pytest.approx(250_000, rel=0.01)
    free.observe(1, -FREE_MOST_NS)  # it had waited
    assert free.ppm == -1


def test_when_it_is_to_be_measured_again():
    assert Duty().turns_until_ns(10) == 0
    assert after(0.5).turns_until_ns(10) == 0  # undecided
    assert after(1.0).turns_until_ns(10) == TURN_NS + 10
    duty = after(0.5, 0.5, 0.5)
    assert duty.turns_until_ns(10) == 3 * TURN_NS + 40
    assert duty.alone_until_ns(10) == 0
    duty.observe_alone(6 * WHOLE_PPM // 10, 7)
    assert duty.alone_until_ns(10) == 17


def test_measures_that_agree_come_seldomer():
    duty = after(0.5, 0.5, 0.5)
    duty.observe_alone(600_000, 0)
    for count, share_ppm in enumerate([590_000, 600_000, 610_000, 600_000]):
        duty.observe_alone(share_ppm, 0)
        assert duty.alone_until_ns(10) == 10 << min(AGREED_MOST, count + 1)
    assert duty.turns_until_ns(10) == 3 * TURN_NS + (40 << AGREED_MOST)
    duty.observe_alone(800_000, 0)
    assert duty.alone_until_ns(10) == 10


def test_short_turns_make_a_block_together():
    duty = Duty()
    for turn in range(BLOCK_TURNS):
        assert duty.ppm == 0
        duty.observe(50_000, 300_000, turn)
    assert duty.ppm == 166_666
    assert duty.turned_ns == BLOCK_TURNS - 1


def test_a_short_gap_between_turns_is_its_hosts_time_and_a_long_one_is_not():
    duty = Duty()
    duty.observe(1_000_000, 1_000_000, 1)
    duty.rest(SHORT_GAP_NS - 1)
    assert duty.held_ns == 1_000_000 + SHORT_GAP_NS - 1
    duty.rest(SHORT_GAP_NS)
    assert duty.held_ns == 1_000_000 + SHORT_GAP_NS - 1


def test_what_took_no_time_says_nothing_and_no_more_is_believed_than_was_held():
    duty = Duty()
    duty.observe(5, 0, 1)
    assert duty.ppm == 0
    duty.observe(1 << 62, TURN_NS, 1)
    assert duty.ppm == 1_000_000


@pytest.mark.parametrize("begun_ns", [0, BLOCK_NS // 2])
def test_turns_that_say_nothing_make_nobody_undecided_for_ever(begun_ns: int):
    duty = after(0.5)
    duty.observe(0, begun_ns, TURN_NS)  # part of a block
    assert duty.turns_until_ns(10) == 0
    for turn in range(BLOCK_TURNS - 1):
        duty.observe(0, 0, TURN_NS + turn)
    assert duty.turns_until_ns(10) == TURN_NS + BLOCK_TURNS - 2 + 10


def test_used_time_is_told_as_time_alone():
    assert after(0.5, 0.5, 0.5).alone_ns(100) == 200
    assert Duty().alone_ns(100) == 2000  # unknown: bounded


def test_who_says_too_little_has_turns_from_then_on():
    duty = after(0.5, 0.5, 0.5)
    duty.weigh(DOUBT_NS, 0, DOUBT_NS)
    assert duty.host_bound
    duty.weigh(DOUBT_NS // 5, DOUBT_NS // 8, DOUBT_NS)  # coarse samples may say so
    duty.weigh(DOUBT_NS, 0, DOUBT_NS)
    assert not duty.host_bound
    for turn in range(2 * BLOCKS):
        duty.observe(TURN_NS // 2, TURN_NS, turn)
        duty.weigh(0, DOUBT_NS, DOUBT_NS)
    assert not duty.host_bound
    assert not duty.believed
    assert duty.turns_until_ns(10) > 0  # all is known of it


@pytest.mark.parametrize("good", [1, 2, 5])
def test_a_lie_now_and_then_is_found_out_too(good: int):
    duty = after(0.5, 0.5, 0.5)
    for _ in range(10):
        duty.weigh(DOUBT_NS, 0, DOUBT_NS)
        for _ in range(good):
            duty.weigh(0, 0, DOUBT_NS)
    assert not duty.believed


def test_a_span_of_no_length_says_nothing():
    duty = after(0.5, 0.5, 0.5)
    for _ in range(3):
        duty.weigh(DOUBT_NS, 0, 0)
    assert duty.host_bound
