"""The memory that a process holds of its tenant: reserved before it is used, credit first, given back after."""

from __future__ import annotations

import ctypes
import errno
from ctypes import POINTER, c_bool, c_int, c_uint32, c_uint64, c_void_p
from typing import Any

import pytest

from libhook.core import ffi, lib
from tests.libhook.runtime.seams import Seams

GPU, MIB = 0, 1 << 20
KEPT = 32 * MIB  # of account.c: what may be kept as credit
NOBODY = 16  # WIRE_MAX_DEVICES: no such card


class Books:
    """A process's books, and a daemon that gives up to `left` bytes, with `spare` of credit where some is asked for."""

    def __init__(self, seams: Seams, left: int | None = 1 << 30, spare: int = 0) -> None:
        self._seams, self.left, self.spare = seams, left, spare
        self.asked: list[int] = []
        self.released: list[int] = []
        self.settled_while_asked: list[bool] = []
        if left is not None:
            seams.set_pointer("ledger.reserve", self._reserve, c_int, c_uint64, POINTER(c_uint64))
        seams.set_pointer("ledger.release", self._release, c_int, c_uint64)

    def _reserve(self, device: int, bytes_: int, credit: Any) -> int:
        self.asked.append(bytes_)
        self.settled_while_asked.append(self.settled()[0])
        assert self.left is not None
        if bytes_ > self.left:
            return -errno.ENOMEM
        spare = self.spare if credit else 0
        if credit:
            credit[0] = spare
        self.left -= bytes_ + spare
        self.call("granted", None, (c_int, device), (c_uint64, bytes_ + spare))
        return 0

    def _release(self, device: int, bytes_: int) -> int:
        self.released.append(bytes_)
        return 0

    def call(self, name: str, result: Any, *arguments: tuple[Any, Any]) -> Any:
        types = [kind for kind, _ in arguments]
        return self._seams.function(f"account_{name}", result, *types)(*(value for _, value in arguments))

    def reserve(self, bytes_: int, spare: bool = False, device: int = GPU) -> int:
        return int(self.call("reserve", c_int, (c_int, device), (c_uint64, bytes_), (c_bool, spare)))

    def give_back(self, bytes_: int, keep: bool = False, device: int = GPU) -> None:
        self.call("return", None, (c_int, device), (c_uint64, bytes_), (c_bool, keep))

    def held(self) -> int:
        return int(self.call("held", c_uint64, (c_int, GPU)))

    def credit(self) -> int:
        return int(self.call("credit", c_uint64, (c_int, GPU)))

    def settled(self) -> tuple[bool, int, int]:
        """Whether nothing is under way, what is held, and how many moves there were."""
        held, moves = c_uint64(), c_uint64()
        place = POINTER(c_uint64)
        is_settled = self.call(
            "settled", c_bool, (c_int, GPU), (place, ctypes.pointer(held)), (place, ctypes.pointer(moves))
        )
        return bool(is_settled), held.value, moves.value

    def enter(self, key: int, bytes_: int, owner: int) -> None:
        fields = {"key": key, "bytes": bytes_, "owner": owner, "kind": lib.LEDGER_POINTER, "device": GPU}
        entry = ffi.new("struct ledger_entry *", fields)
        self.call("enter", None, (c_void_p, int(ffi.cast("uintptr_t", entry))))

    def take(self, key: int) -> int | None:
        """The bytes of an entry, which is gone then."""
        entry = ffi.new("struct ledger_entry *")
        place = (c_void_p, int(ffi.cast("uintptr_t", entry)))
        found = self.call("take", c_bool, (c_uint32, lib.LEDGER_POINTER), (c_uint64, key), place)
        return int(entry.bytes) if found else None


def test_what_the_daemon_grants_is_held_until_it_is_given_back(seams: Seams) -> None:
    books = Books(seams)
    assert books.reserve(5 * MIB) == 0
    assert (books.held(), books.credit(), books.asked) == (5 * MIB, 0, [5 * MIB])
    books.give_back(5 * MIB)
    assert (books.held(), books.released) == (0, [5 * MIB])


def test_a_refusal_leaves_the_books_as_they_were(seams: Seams) -> None:
    books = Books(seams, left=MIB, spare=0)
    assert books.reserve(MIB) == 0
    books.give_back(MIB, keep=True)
    assert books.reserve(3 * MIB) == -errno.ENOMEM
    assert (books.held(), books.credit(), books.asked) == (MIB, MIB, [MIB, 2 * MIB])


def test_without_a_daemon_all_is_allowed_and_counted_for_the_day_that_one_comes(seams: Seams) -> None:
    books = Books(seams, left=None)
    assert books.reserve(7 * MIB) == 0
    assert books.held() == 7 * MIB


def test_credit_is_taken_first_and_costs_no_message(seams: Seams) -> None:
    books = Books(seams, spare=4 * MIB)
    assert books.reserve(MIB, spare=True) == 0
    assert (books.held(), books.credit()) == (5 * MIB, 4 * MIB)
    assert books.reserve(3 * MIB) == 0
    assert books.reserve(2 * MIB) == 0
    assert (books.asked, books.credit(), books.held()) == ([MIB, MIB], 0, 6 * MIB)


def test_what_is_kept_as_credit_has_a_bound(seams: Seams) -> None:
    books = Books(seams)
    assert books.reserve(KEPT + 3 * MIB) == 0
    books.give_back(KEPT + 3 * MIB, keep=True)
    assert (books.credit(), books.held(), books.released) == (KEPT, KEPT, [3 * MIB])
    assert books.call("take_credit", c_uint64, (c_int, GPU), (c_uint64, KEPT + 1)) == KEPT
    assert (books.credit(), books.held()) == (0, 0)


def test_while_a_reservation_is_under_way_nothing_is_settled(seams: Seams) -> None:
    books = Books(seams)
    assert books.settled() == (True, 0, 0)
    books.reserve(MIB)
    assert books.settled_while_asked == [False]
    assert books.settled() == (True, MIB, 1)
    books.give_back(MIB)
    assert books.settled() == (True, 0, 2)


def test_what_an_owner_holds_is_given_back_with_it(seams: Seams) -> None:
    books = Books(seams)
    books.reserve(6 * MIB)
    for key, part, owner in ((1, MIB, 11), (2, 2 * MIB, 11), (3, 3 * MIB, 12)):
        books.enter(key, part, owner)
    books.call("owner_ended", None, (c_uint64, 11))
    assert (books.held(), books.released) == (3 * MIB, [3 * MIB])
    assert [books.take(key) for key in (1, 2, 3, 3)] == [None, None, 3 * MIB, None]


@pytest.mark.parametrize("device", [-1, NOBODY])
def test_a_card_that_is_in_no_list_has_no_books(seams: Seams, device: int) -> None:
    books = Books(seams)
    assert books.reserve(MIB, device=device) == 0
    books.give_back(MIB, device=device)
    assert (books.asked, books.released) == ([], [])
