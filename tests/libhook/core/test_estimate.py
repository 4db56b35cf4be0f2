"""What is learned of a launch's length."""

from __future__ import annotations

from typing import Any

from libhook.core import ffi, lib

SIZE = 64


def table() -> Any:
    return ffi.new("struct estimate[]", SIZE)


def test_an_unknown_key_has_no_estimate() -> None:
    entries = table()
    assert lib.estimate_find(entries, SIZE, 7) == ffi.NULL
    lib.estimate_learn(entries, SIZE, 7, 1000)
    assert lib.estimate_find(entries, SIZE, 7).ns == 1000
    assert lib.estimate_find(entries, SIZE, 7 + SIZE) == ffi.NULL


def test_a_guess_is_replaced_by_the_first_sample() -> None:
    entries = table()
    lib.estimate_put(entries, SIZE, 9, 50_000, 0)
    assert lib.estimate_learn(entries, SIZE, 9, 2000) == 2000


def test_shorter_samples_are_followed_fast_and_longer_ones_slowly() -> None:
    entries = table()
    for _ in range(8):
        lib.estimate_learn(entries, SIZE, 5, 100_000)
    assert lib.estimate_learn(entries, SIZE, 5, 200_000) == 112_500
    assert lib.estimate_learn(entries, SIZE, 5, 12_500) == 62_500


def test_one_sample_of_a_thread_that_was_stopped_says_little() -> None:
    """It measures the stop. 100 us that were taken for 100 ms would fill any quota: one launch a turn."""
    for samples in (1, 2, 8):
        entries = table()
        for _ in range(samples):
            lib.estimate_learn(entries, SIZE, 5, 100_000)
        assert lib.estimate_learn(entries, SIZE, 5, 800_000_000) <= 450_000


def test_a_kernel_that_has_become_a_hundred_times_longer_is_known_after_some_launches() -> None:
    entries = table()
    for _ in range(8):
        lib.estimate_learn(entries, SIZE, 5, 100_000)
    found = [lib.estimate_learn(entries, SIZE, 5, 10_000_000) for _ in range(12)]
    assert found[-1] > 5_000_000


def test_keys_of_one_group_are_all_known_and_one_more_takes_the_place_of_one() -> None:
    """A program that launches two of them in turn would else be learned anew each time, and never known."""
    entries, keys = table(), [3 + SIZE * number for number in range(lib.ESTIMATE_GROUP + 1)]
    for _ in range(8):
        for key in keys[:-1]:
            lib.estimate_learn(entries, SIZE, key, 1000)
    assert [lib.estimate_find(entries, SIZE, key).samples for key in keys[:-1]] == [8] * lib.ESTIMATE_GROUP
    lib.estimate_learn(entries, SIZE, keys[-1], 20)
    assert lib.estimate_find(entries, SIZE, keys[-1]).ns == 20
    assert [lib.estimate_find(entries, SIZE, key) == ffi.NULL for key in keys].count(True) == 1


def test_a_length_beyond_the_field_is_the_longest() -> None:
    entries = table()
    assert lib.estimate_learn(entries, SIZE, 1, 10**12) == 2**32 - 1
