"""Held time inside the sliding window."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_backend.core.window import Window


def test_what_slid_out_does_not_count():
    window = Window(100)
    window.add(0, 50)
    assert window.used_ns(50) == 50
    assert window.used_ns(120) == 30
    assert window.used_ns(200) == 0
    assert window.total_ns == 50


def test_a_segment_longer_than_the_window_counts_as_the_window():
    window = Window(100)
    window.add(0, 500)
    assert window.used_ns(500) == 100


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=40))
def test_it_equals_counting_by_hand(steps: list[tuple[int, int]]):
    window, now, held = Window(100), 0, []
    for gap, length in steps:
        now += gap
        window.add(now, now + length)
        held += range(now, now + length)
        now += length
        assert window.used_ns(now) == sum(1 for at in held if at >= now - 100)
