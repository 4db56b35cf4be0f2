"""The model of an ideal scheduler gives what can be computed by hand, and native slicing what the card measures."""

from __future__ import annotations

import pytest

from bench.ideal import Card, Program, alone, fair, ideal, native

BUSY = Program(100, 2, 0)


def test_a_program_alone_is_slowed_by_its_host_only() -> None:
    assert alone(BUSY) == pytest.approx(1, abs=1e-3)
    assert alone(Program(50, 150, 0)) == pytest.approx(1 / 3, abs=1e-3)  # the host goes on meanwhile
    assert alone(Program(50, 100, 1)) == pytest.approx(50 / 160, abs=1e-3)  # it wakes up for 10 us
    assert alone(Program(20, 20, 0, 0.5, 15_000, 5_000)) == pytest.approx(0.75, abs=0.01)


def test_a_server_works_as_often_as_requests_come() -> None:
    assert alone(Program(50, 20, 20, 0.5, period_us=8_000)) == pytest.approx(1 / 8, abs=1e-2)


def test_native_slicing_divides_a_full_card_equally_and_pays_for_each_slice() -> None:
    assert native([BUSY, BUSY]) == pytest.approx([1024 / 1074 / 2] * 2, abs=5e-3)
    assert native([BUSY._replace(request=0.7), BUSY._replace(request=0.3)]) == pytest.approx([0.477] * 2, abs=5e-3)


@pytest.mark.parametrize("requests", [(0.7, 0.3), (0.5, 0.5), (0.5, 0.3, 0.2)])
def test_the_ideal_scheduler_divides_a_full_card_by_request(requests: tuple[float, ...]) -> None:
    shares, _ = ideal([BUSY._replace(request=request) for request in requests])
    assert [share / sum(shares) for share in shares] == pytest.approx(requests, abs=5e-3)
    assert sum(shares) > 0.98


def test_hosts_that_fit_beside_each_other_lose_nothing() -> None:
    program = Program(20, 140, 0)
    shares, _ = ideal([program, program], card=Card(dry_us=0))
    assert shares == pytest.approx([alone(program)] * 2, rel=0.02)


def test_a_switch_costs_the_card() -> None:
    program = Program(50, 100, 1)
    free, _ = ideal([program, program], card=Card(dry_us=0))
    paid, _ = ideal([program, program])
    assert sum(free) > sum(paid) + 0.05


def test_a_short_stretch_serves_who_waits_often_and_a_long_one_the_busy() -> None:
    programs = [Program(50, 100, 1), BUSY]
    short, long = fair(programs, 60), fair(programs, 1000)
    assert short[0] > 2 * long[0]
    assert short[1] < long[1]


def test_no_schedule_gives_more_than_the_card_has() -> None:
    for stretch_us in (60.0, 1000.0):
        assert sum(fair([Program(20, 5, 20)] * 4, stretch_us, 0.5)) <= 1
