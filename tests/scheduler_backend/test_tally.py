"""Counts for people."""

from scheduler_backend.core import events as ev
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.tally import Counters, SeatTally, Series, Tallies, Work


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


def tallies(complaints: int = 100) -> Tallies:
    """Of a tenant on two cards that has so many lines of the log left."""
    left = iter([True] * complaints)
    made = Tallies(2, 1_000_000_000, lambda _tenant: next(left, False))
    made.add(TenantSpec("a", gpus=(0, 1)))
    return made


def test_a_tenant_that_waited_as_the_token_became_free_was_handed_it():
    made = tallies()
    made.hand(ev.Handed("a", 1, 7, wait_ns=900, gap_ns=100), 5000)
    made.end_event(30, carried=False)
    made.end_event(40, carried=False)
    assert (made.seats["a", 1].grants, made.seats["a", 1].wait.sum_ns) == (1, 900)
    assert [series.sum_ns for series in made.gaps] == [0, 130]
    assert (made.handle_ns.count, made.handle_ns.sum_ns) == (1, 30)


def test_what_was_free_or_was_carried_out_before_took_us_no_time():
    made = tallies()
    made.hand(ev.Handed("a", 0, 7, wait_ns=5, gap_ns=100), 5000)
    made.end_event(30, carried=False)
    made.hand(ev.Handed("a", 0, 8, wait_ns=900, gap_ns=100), 6000)
    made.end_event(30, carried=True)
    made.end_event(30, carried=False)
    assert (made.seats["a", 0].grants, made.handle_ns.count, made.gaps[0].count) == (2, 0, 0)


def test_what_the_node_says_for_the_record_is_counted_by_tenant_and_card(caplog):
    made = tallies(complaints=1)
    for action in (
        ev.Charged("a", 0, 7, 10, 3, 8, 2),
        ev.Charged("a", 0, 7, 0, 0, 5, 1),  # heard late
        ev.LeaseLost("a", 1, 0, 7),
        ev.Overran("a", 1, 0, 8),
        ev.Charged("gone", 0, 7, 10, 3, 8, 2),
        ev.LeaseLost("gone", 1, 0, 7),
        ev.Overran("gone", 1, 0, 7),
    ):
        made.performers[type(action)](action)
    made.revoke("a", 0)
    made.revoke("gone", 0)
    made.refuse_memory("a")
    seat = made.seats["a", 0]
    assert (seat.work, seat.overuse.count, seat.leases_lost, seat.overran, seat.revokes) == (Work(3, 13), 1, 1, 1, 1)
    assert made.mem_refusals == {"a": 1}
    assert [record.message.split()[0] for record in caplog.records] == ["lease-lost"]


def test_a_tenant_or_process_that_is_gone_is_forgotten():
    made = tallies()
    made.seats["a", 1].say(5, Work(1, 2), again=False)
    made.forget("a", 5)
    assert made.seats["a", 1].told == 0
    made.refuse_memory("a")
    made.remove("a")
    assert (made.seats, made.mem_refusals) == ({}, {})
