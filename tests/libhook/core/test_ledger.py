"""The ledger of device memory against a dictionary."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from libhook.core import ffi, lib

KINDS = st.sampled_from([lib.LEDGER_POINTER, lib.LEDGER_ARRAY, lib.LEDGER_MAPPING])
KEYS = st.integers(0, 40).map(lambda n: 0x7F0000000000 + n * 0x200000)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "take", "find"]), KINDS, KEYS, st.integers(0, 2**40)), max_size=300)


def entry(kind: int, key: int, size: int, **more: int) -> Any:
    return ffi.new("struct ledger_entry *", {"kind": kind, "key": key, "bytes": size, **more})


def walk(ledger: Any) -> dict[tuple[int, int], int]:
    cursor = ffi.new("size_t *")
    seen = {}
    while (found := lib.ledger_next(ledger, cursor)) != ffi.NULL:
        seen[found.kind, found.key] = found.bytes
    return seen


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_it_remembers_like_a_dictionary(steps: list[tuple[str, int, int, int]]) -> None:
    ledger = ffi.new("struct ledger *")
    model: dict[tuple[int, int], int] = {}
    for step, kind, key, size in steps:
        if step == "put":
            assert lib.ledger_put(ledger, entry(kind, key, size)) == 0
            model[kind, key] = size
        elif step == "take":
            out = ffi.new("struct ledger_entry *")
            assert lib.ledger_take(ledger, kind, key, out) == ((kind, key) in model)
            if (kind, key) in model:
                assert (out.kind, out.key, out.bytes) == (kind, key, model.pop((kind, key)))
        else:
            found = lib.ledger_find(ledger, kind, key)
            assert (None if found == ffi.NULL else found.bytes) == model.get((kind, key))
        assert ledger.live == len(model)
    assert walk(ledger) == model
    lib.ledger_clear(ledger)
    assert (ledger.live, ledger.capacity) == (0, 0)


def test_putting_and_taking_for_ever_does_not_grow_it() -> None:
    ledger = ffi.new("struct ledger *")
    out = ffi.new("struct ledger_entry *")
    for n in range(100_000):
        lib.ledger_put(ledger, entry(lib.LEDGER_POINTER, n * 512, 512))
        if n >= 10:
            assert lib.ledger_take(ledger, lib.LEDGER_POINTER, (n - 10) * 512, out)
    assert ledger.live == 10
    assert ledger.capacity <= 128
    lib.ledger_clear(ledger)


def test_what_an_owner_holds_can_be_taken_out_on_a_walk() -> None:
    ledger = ffi.new("struct ledger *")
    for n in range(1000):
        lib.ledger_put(ledger, entry(lib.LEDGER_POINTER, n, 10, owner=n % 3))
    cursor, out, freed = ffi.new("size_t *"), ffi.new("struct ledger_entry *"), 0
    while (found := lib.ledger_next(ledger, cursor)) != ffi.NULL:
        if found.owner == 2:
            assert lib.ledger_take(ledger, found.kind, found.key, out)
            freed += out.bytes
    assert freed == 3330
    assert ledger.live == 667
    lib.ledger_clear(ledger)
