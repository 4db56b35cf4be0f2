"""The longest that a kind of launch took lately."""

from __future__ import annotations

from typing import Any

from libhook.core import ffi, lib

SIZE = 64
WINDOW = lib.EXTREMES_WINDOW_NS
START = 1000 * WINDOW  # of a window


def table() -> Any:
    return ffi.new("struct extremes[]", SIZE)


def test_nothing_is_known_of_an_unknown_key() -> None:
    entries = table()
    lib.extremes_learn(entries, SIZE, 7, 1000, START)
    assert lib.extremes_most(entries, SIZE, 7 + SIZE, START) == 0
    assert lib.extremes_most(entries, SIZE, 7, START) == 1000


def test_the_longest_is_kept_whatever_comes_after_it() -> None:
    entries = table()
    for ns in (20_000, 5_000_000, 20_000):
        lib.extremes_learn(entries, SIZE, 5, ns, START)
    assert lib.extremes_most(entries, SIZE, 5, START) == 5_000_000


def test_it_is_forgotten_after_one_to_two_windows() -> None:
    entries = table()
    lib.extremes_learn(entries, SIZE, 5, 5_000_000, START)
    lib.extremes_learn(entries, SIZE, 5, 20_000, START + WINDOW)
    assert lib.extremes_most(entries, SIZE, 5, START + 2 * WINDOW - 1) == 5_000_000
    assert lib.extremes_most(entries, SIZE, 5, START + 2 * WINDOW) == 20_000


def test_what_was_not_seen_for_long_is_not_known() -> None:
    entries = table()
    lib.extremes_learn(entries, SIZE, 5, 5_000_000, START)
    assert lib.extremes_most(entries, SIZE, 5, START + 2 * WINDOW) == 0
    lib.extremes_learn(entries, SIZE, 5, 1000, START + 3 * WINDOW)
    assert lib.extremes_most(entries, SIZE, 5, START + 3 * WINDOW) == 1000


def test_what_was_over_in_the_window_before_takes_no_memory_away() -> None:
    """Streams are looked at one after the other: of the second it may be learned later, and have been over before."""
    entries = table()
    for ns, at_ns in ((5_000_000, START), (20_000, START + WINDOW), (20_000, START + WINDOW - 1)):
        lib.extremes_learn(entries, SIZE, 5, ns, at_ns)
    assert lib.extremes_most(entries, SIZE, 5, START + WINDOW) == 5_000_000
    assert lib.extremes_most(entries, SIZE, 5, START + WINDOW - 1) == 5_000_000
    assert lib.extremes_most(entries, SIZE, 5, START + 2 * WINDOW) == 20_000


def test_the_newcomer_takes_the_place() -> None:
    entries = table()
    lib.extremes_learn(entries, SIZE, 3, 5_000_000, START)
    lib.extremes_learn(entries, SIZE, 3 + SIZE, 20, START)
    assert lib.extremes_most(entries, SIZE, 3, START) == 0
    assert lib.extremes_most(entries, SIZE, 3 + SIZE, START) == 20


def test_a_length_beyond_the_field_is_the_longest() -> None:
    entries = table()
    lib.extremes_learn(entries, SIZE, 1, 10**12, START)
    assert lib.extremes_most(entries, SIZE, 1, START) == 2**32 - 1
