"""Counts for people."""

from scheduler_backend.tally import Counters, Series


def test_percentiles_are_of_recent_samples_and_sums_of_all():
    series = Series()
    assert series.ms(0.5) is None
    for value in range(1, 5001):
        series.add(value * 1_000_000)
    assert series.count == 5000
    assert series.ms(0.0) == 5000 - 2048 + 1
    assert series.ms(0.99) > 4970


def test_a_few_new_samples_among_many_put_nothing_in_order_anew():
    series = Series()
    for value in range(640):
        series.add(value * 1_000_000)
    assert series.ms(0.99) == 633
    for _ in range(9):
        series.add(10_000_000_000)
    assert series.ms(0.99) == 633, "fewer than one in 64"
    series.add(10_000_000_000)
    series.add(10_000_000_000)
    assert series.ms(0.99) == 10_000


def test_what_a_process_counted_stays_when_it_is_gone():
    counters = Counters()
    counters.update(1, 0, (1, 2, 3, 4, 5, 6))
    counters.update(1, 0, (2, 4, 6, 8, 10, 12))  # cumulative: the last word counts
    counters.update(2, 0, (1, 1, 1, 1, 1, 1))
    counters.forget(1)
    assert counters.total()["gate_waits"] == 3
    assert counters.total()["copies_d2h_bytes"] == 13
