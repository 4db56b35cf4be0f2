"""The C that reads node names where they stand: what are names, which are found, that it keeps to its room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libhook.core import ffi, lib

KEY = ffi.new("uint64_t[2]", [0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93])
NAMES = st.lists(st.text("ab-.,", max_size=40), min_size=1, max_size=40)
GUARD = 77


def text_of(names: list[str]) -> bytes:
    return ('"' + '","'.join(names) + '"').encode()


def split(text: bytes) -> list[int] | None:
    count = lib.names_count(text, len(text))
    ends = ffi.new("int32_t[]", count + 1)
    ends[count] = GUARD
    plain = lib.names_split(text, len(text), ends, count)
    assert ends[count] == GUARD
    return [ends[i] for i in range(count)] if plain else None


def table(names: list[str], size: int) -> Any:
    text = text_of(names)
    slots = ffi.new("struct names_slot[]", [{"number": -1}] * size)
    ends = split(text)
    return slots if lib.names_enter(slots, size - 1, KEY, text, ends, len(names), list(range(len(names)))) else None


@settings(max_examples=300, deadline=None)
@given(NAMES)
def test_each_name_ends_where_it_does(names: list[str]) -> None:
    text, ends = text_of(names), split(text_of(names))
    assert ends is not None
    begins = [1, *(end + 3 for end in ends)]
    assert [text[begin:end].decode() for begin, end in zip(begins, ends, strict=False)] == names


@settings(max_examples=500, deadline=None)
@given(st.text('"a,', max_size=24))
def test_what_is_split_is_nothing_but_names(text: str) -> None:
    ends = split(text.encode())
    if ends is not None:
        begins = [1, *(end + 3 for end in ends)]
        names = [text[begin:end] for begin, end in zip(begins, ends, strict=False)]
        assert text_of(names).decode() == text
        assert '"' not in "".join(names)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 255, 256, 1000])
@pytest.mark.parametrize("odd", [0x1F, 0x80, 0xFF, ord("\\")])
def test_one_odd_byte_anywhere_is_seen(length: int, odd: int) -> None:
    plain = b'"' + b"x" * length + b'"'
    assert lib.names_count(plain, len(plain)) == 1
    assert lib.names_count(plain[1:], len(plain) - 1) == 0, "one quote"
    for at in range(1, length + 1, 50):
        text = plain[:at] + bytes([odd]) + plain[at + 1 :]
        assert lib.names_count(text, len(text)) == 0


def test_a_block_of_quotes_is_counted_whole() -> None:
    for length in range(250, 262, 2):
        assert lib.names_count(b'"' * length, length) == length // 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("ab", max_size=40), unique=True, min_size=1, max_size=40), NAMES)
def test_a_crowded_table_finds_what_a_dictionary_finds(known: list[str], asked: list[str]) -> None:
    slots = table(known, 64)
    numbers = ffi.new("int64_t[]", len(asked))
    lib.names_find(slots, 63, KEY, text_of(asked), split(text_of(asked)), len(asked), numbers)
    said = {name: i for i, name in enumerate(known)}
    assert list(numbers) == [said.get(name, -1) for name in asked]


def test_a_name_that_is_there_twice_is_refused() -> None:
    assert table(["a", "b", "a"], 8) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.text("ab-", max_size=20), st.integers(0, 3)), min_size=1, max_size=40))
def test_parts_are_names_again_and_stay_in_their_room(marked: list[tuple[str, int]]) -> None:
    names, text = [name for name, _ in marked], text_of([name for name, _ in marked])
    room, count = len(text) + 1, len(names)
    to, part_ends, counts = ffi.new("char[]", 4 * room), ffi.new("int32_t[]", 4 * count), ffi.new("size_t[]", 4)
    marks = np.array([mark for _, mark in marked], dtype=np.int8)
    lib.names_part(text, split(text), count, ffi.from_buffer("int8_t[]", marks), 4, to, room, part_ends, counts)
    for part in range(4):
        kept = [name for name, mark in marked if mark == part]
        assert counts[part] == len(kept)
        ends = [part_ends[part * count + i] for i in range(len(kept))]
        made = bytes(ffi.buffer(to, 4 * room)[part * room : part * room + room])
        assert not kept or (made[: ends[-1] + 1], ends) == (text_of(kept), split(text_of(kept)))
        assert not made[len(text_of(kept)) + 1 if kept else 0 :].strip(b"\0")


def test_joined_names_have_what_was_asked_for_around_each() -> None:
    text = text_of(["a", "bcd"])
    to = ffi.new("char[]", len(text) + 2 * 5 + 1)
    length = lib.names_join(text, split(text), 2, b"{", 1, b":1}", 3, to)
    assert bytes(ffi.buffer(to, length)) == b'{"a":1},{"bcd":1}'
