"""Counts for people."""

from scheduler_backend.tally import Counters, SeatTally, Series, Work


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


def test_work_is_the_later_word_of_returns_and_of_what_each_client_says_of_all_its_life():
    tally = SeatTally(1_000_000_000)
    tally.say(1, Work(100, 5_000), again=False)  # alone: it returns nothing
    assert tally.work == Work(100, 5_000)
    tally.charged = tally.charged.plus(Work(150, 7_000))
    assert tally.work == Work(150, 7_000)
    tally.say(1, Work(160, 7_500), again=False)
    tally.say(2, Work(1_000_000, 10**12), again=True)  # nearly all of it under an earlier daemon
    assert tally.work == Work(160, 7_500)
    tally.say(2, Work(1_000_040, 10**12 + 500), again=True)
    tally.forget(1)
    assert tally.work == Work(200, 8_000)
    tally.say(1, Work(1, 1), again=False)  # another process by the number of one that is gone
    assert tally.work == Work(201, 8_001)
