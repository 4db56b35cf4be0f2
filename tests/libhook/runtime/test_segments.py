"""What the device holds is let go in the order of its numbers, below the cap and within the quota."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pytest

from tests.libhook.runtime.seams import Seams

MS, US = 1_000_000, 1_000
NEVER = (1 << 64) - 1
APART, DONE_AT, BYTES = 128, 64, 4096  # of segments.h
PER_THREAD = 2  # CU_STREAM_PER_THREAD
U32, U64, P = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p


class Look(ctypes.Structure):
    """struct segments_look."""

    _fields_ = (("drained", ctypes.c_bool), ("end_ns", U64), ("inflight_ns", U64))


class Book:
    """The segments of one gate, and the device that looks at its words."""

    def __init__(self, seams: Seams, ordinal: int = 0) -> None:
        self.seams, self.ordinal = seams, ordinal
        self.page = ctypes.create_string_buffer(BYTES)
        seams.function("segments_reset_after_fork", None)()
        seams.function("visit_reset_after_fork", None)()
        P.from_address(seams.address("segments_words")).value = ctypes.addressof(self.page)
        self.gate = seams.function("gate_at", P, ctypes.c_int)(ordinal)
        self.set_gate(open_=False)

    def set_gate(self, *, open_: bool, cap_ns: int = MS, close_by_ns: int = NEVER, shared: bool = False) -> None:
        kinds = (ctypes.c_int, ctypes.c_bool, U64, U64, ctypes.c_bool)
        self.seams.function("set_gate", None, *kinds)(self.ordinal, open_, cap_ns, close_by_ns, shared)

    def call(self, name: str, result: Any, *arguments: tuple[Any, Any]) -> Any:
        kinds = [kind for kind, _ in arguments]
        return self.seams.function(f"segments_{name}", result, P, *kinds)(self.gate, *(one for _, one in arguments))

    def word(self, at: int = 0) -> int:
        return U32.from_buffer(self.page, self.ordinal * APART + at).value

    def device_is_at(self, number: int) -> None:
        U32.from_buffer(self.page, self.ordinal * APART + DONE_AT).value = number

    def begin(self, ns: int, now_ns: int = 0, *, first: bool = False, inflight_ns: int = 0, stream: int = 7) -> int:
        if first:
            assert self.seams.function("visit_try_to_keep_agent_out", ctypes.c_bool)()
        words = ((P, stream), (P, None), (ctypes.c_bool, first), (U64, inflight_ns), (U64, now_ns))
        number = int(self.call("begin", U32, *words))
        if number:
            self.call("add", None, (U32, number), (U64, ns))
        return number

    def pump(self, now_ns: int) -> int:
        return int(self.call("pump", U64, (U64, now_ns)))

    def released(self) -> int:
        """The number up to which the device may go on."""
        return self.word()

    @property
    def held(self) -> bool:
        return bool(self.call("held", ctypes.c_bool))

    def look(self, now_ns: int) -> Look:
        found = Look()
        self.call("look", None, (U64, now_ns), (P, ctypes.addressof(found)))
        return found

    def released_ns(self, number: int) -> int:
        return int(self.seams.function("segments_released_ns", U64, ctypes.c_int, U32)(self.ordinal, number))


@pytest.fixture
def book(seams: Seams) -> Book:
    return Book(seams)


def six(book: Book, inflight_ns: int = 0) -> list[int]:
    """Six segments of a quarter of a millisecond."""
    return [book.begin(250 * US, first=not number, inflight_ns=inflight_ns) for number in range(6)]


def test_what_was_in_flight_is_a_segment_that_was_let_go(book: Book) -> None:
    assert not book.held
    number = book.begin(100 * US, 5, first=True, inflight_ns=300 * US)
    assert number == 2
    assert book.held
    assert book.released() == number - 1
    assert book.released_ns(number - 1) == 5
    assert book.released_ns(number) == NEVER
    assert book.released_ns(number + 1) == 0
    assert book.look(5).inflight_ns == 300 * US
    assert not book.look(5).drained


def test_nothing_goes_while_the_gate_is_closed(book: Book) -> None:
    numbers = six(book)
    assert book.pump(1) == NEVER
    assert book.released() == numbers[0] - 1


def test_as_many_go_as_stay_below_the_cap_and_more_as_the_device_goes_on(book: Book) -> None:
    numbers = six(book)
    book.set_gate(open_=True, cap_ns=MS)
    assert book.pump(0) == 250 * US  # then the first should be over
    assert book.released() == numbers[3]
    book.device_is_at(numbers[0])
    assert book.pump(100 * US) == 250 * US
    assert book.released() == numbers[4]
    book.device_is_at(numbers[4])
    assert book.pump(800 * US) == NEVER
    assert book.released() == numbers[5]
    assert not book.held


def test_the_time_that_the_first_has_run_counts_where_the_device_has_not_said_more(book: Book) -> None:
    numbers = six(book)
    book.set_gate(open_=True, cap_ns=MS)
    book.pump(0)
    assert book.look(100 * US).inflight_ns == 900 * US
    assert book.look(10 * MS).inflight_ns == 750 * US  # one that is late is not over
    assert book.pump(10 * MS) == 250 * US  # what was let go last, counted from now
    assert book.released() == numbers[4]


def test_one_that_nobody_saw_end_ended_as_is_believed_and_the_next_is_as_far(book: Book) -> None:
    """Each is as long as the cap, and one more goes at its half: late by as much as the look, the card would idle."""
    numbers = [book.begin(MS, first=not number) for number in range(6)]
    book.set_gate(open_=True, cap_ns=MS)
    assert book.pump(0) == 500 * US
    assert book.pump(550 * US) == 950 * US
    book.device_is_at(numbers[0])  # at 1 ms
    assert book.pump(1500 * US) == MS
    assert book.released() == numbers[2]


def test_one_ended_no_sooner_than_it_was_seen_to_go_on(book: Book) -> None:
    numbers = [book.begin(MS, first=not number) for number in range(6)]
    book.set_gate(open_=True, cap_ns=MS)
    book.pump(0)
    book.pump(550 * US)
    book.look(1400 * US)  # it takes longer than is believed
    book.device_is_at(numbers[0])
    assert book.pump(1500 * US) == 400 * US
    assert book.released() == numbers[1]


def test_the_quota_closes_the_gate_where_the_next_would_pass_it(book: Book) -> None:
    numbers = six(book)
    book.set_gate(open_=True, cap_ns=10 * MS, close_by_ns=600 * US)
    kicks = U32.from_address(book.seams.address("agent_kicks"))
    before = kicks.value
    book.pump(0)
    assert book.released() == numbers[1]  # the third would end at 750, its middle lies behind the end
    assert kicks.value == before + 1
    assert book.pump(0) == NEVER  # it is closed
    assert book.held


def test_beside_others_all_of_it_goes_at_once(book: Book) -> None:
    numbers = six(book)
    book.set_gate(open_=True, cap_ns=1, close_by_ns=1, shared=True)
    assert book.pump(5 * MS) == NEVER
    assert book.released() == numbers[5]


def test_a_release_asks_no_gate_and_the_agent_may_call_the_driver_again(book: Book) -> None:
    numbers = six(book)
    enters = book.seams.function("visit_agent_enters", ctypes.c_bool)
    assert not enters()
    book.call("release", None)
    assert book.released() == numbers[5]
    assert enters()
    book.seams.function("visit_agent_leaves", None)()


def test_a_segment_goes_when_the_device_is_told_whatever_time_its_thread_had_before(book: Book) -> None:
    """A thread may stand still in between, and all that is measured from there on would end too early."""
    numbers = six(book)
    book.set_gate(open_=True, cap_ns=10 * MS)
    before_ns = time.monotonic_ns()
    book.pump(before_ns - 5 * MS)
    assert book.released_ns(numbers[0]) >= before_ns


def test_a_closed_gate_keeps_what_is_held_while_what_was_let_go_is_at_work(book: Book) -> None:
    numbers = six(book, inflight_ns=US)
    for stuck in (False, True):
        book.call("release_due", None, (ctypes.c_bool, stuck), (U64, 1_999 * MS))
        assert book.released() == numbers[0] - 1


def test_one_by_one_goes_to_a_thread_that_stands_in_the_driver_for_it(book: Book) -> None:
    numbers = six(book, inflight_ns=US)
    book.device_is_at(numbers[0] - 1)
    book.call("release_due", None, (ctypes.c_bool, False), (U64, 50 * MS))
    assert book.released() == numbers[0] - 1
    for number in numbers[:2]:
        for _ in range(2):
            book.call("release_due", None, (ctypes.c_bool, True), (U64, 50 * MS))
            assert book.released() == number
        book.device_is_at(number)


def test_a_closed_gate_lets_all_go_where_what_was_let_go_stands_still(book: Book) -> None:
    """The context may be broken: nothing in it ends."""
    numbers = six(book, inflight_ns=US)
    book.call("release_due", None, (ctypes.c_bool, False), (U64, 2_000 * MS))
    assert book.released() == numbers[5]
    assert not book.held


def test_none_begins_behind_one_that_was_let_go_meanwhile(book: Book) -> None:
    book.begin(US, first=True)
    book.call("release", None)
    assert book.begin(US) == 0
    assert book.begin(US, first=True) > 0


def test_a_store_that_comes_late_takes_nothing_back(book: Book) -> None:
    numbers = six(book)
    book.set_gate(open_=True, cap_ns=10 * MS)
    book.pump(0)
    book.device_is_at(numbers[5])
    assert book.look(MS).drained
    book.device_is_at(numbers[0])
    assert book.look(2 * MS).drained
    assert book.look(2 * MS).end_ns == MS


def test_a_device_that_says_what_was_never_let_go_is_not_believed(book: Book) -> None:
    numbers = six(book)
    book.device_is_at(numbers[5])
    assert book.look(MS).drained  # what was let go is over, as before
    assert book.released() == numbers[0] - 1
    book.set_gate(open_=True, cap_ns=MS)
    book.pump(MS)
    assert book.released() == numbers[3]


def test_a_segment_takes_so_many_launches_and_so_much_time(book: Book) -> None:
    number = book.begin(100 * US, first=True)

    def takes(ns: int, most_ns: int = 250 * US, most: int = 3) -> bool:
        return bool(book.call("take", ctypes.c_bool, (U32, number), (U64, ns), (U64, most_ns), (U32, most)))

    assert takes(150 * US)
    assert not takes(151 * US)
    assert not takes(US, most=1)
    book.call("take_back", None, (U32, number), (U64, 100 * US))
    assert takes(MS, most=1)  # the first launch always fits
    book.begin(US)
    assert not takes(US)  # it is not the newest any more


def test_room_is_what_is_not_known_to_be_over(book: Book) -> None:
    numbers = six(book)

    def room(most_ns: int, launches: int, most: int) -> bool:
        return bool(book.call("have_room", ctypes.c_bool, (U64, most_ns), (U32, launches), (U32, most)))

    assert room(NEVER, 7, 7)
    assert not room(NEVER, 6, 7)
    assert not room(NEVER, 7, 6)
    assert not room(1500 * US, 7, 7)
    book.set_gate(open_=True, cap_ns=10 * MS)
    book.pump(0)
    book.device_is_at(numbers[2])
    book.look(0)
    assert room(NEVER, 4, 4)


def test_of_the_threads_own_streams_only_the_one_of_who_began(book: Book) -> None:
    words = ((P, PER_THREAD), (P, 77), (ctypes.c_bool, True), (U64, 0), (U64, 0))
    book.seams.function("visit_try_to_keep_agent_out", ctypes.c_bool)()
    book.call("begin", U32, *words)
    assert book.call("in_stream", ctypes.c_bool, (P, 77), (P, PER_THREAD))
    assert not book.call("in_stream", ctypes.c_bool, (P, 78), (P, PER_THREAD))
    assert not book.call("in_stream", ctypes.c_bool, (P, 77), (P, 7))


def test_what_was_held_beside_others_is_worked_off_in_four_times_its_length(book: Book) -> None:
    six(book)
    book.set_gate(open_=True, cap_ns=MS, shared=True)
    book.call("opened", None, (U64, 10 * MS))

    def over(now_ns: int) -> int:
        return int(book.call("over_cap_ns", U64, (U64, now_ns)))

    assert over(10 * MS) == 1500 * US
    assert over(12 * MS) == 1000 * US
    assert over(16 * MS) == 0
    book.set_gate(open_=True, cap_ns=MS)
    assert over(10 * MS) == 0  # in turns the cap is the cap


def test_the_books_of_two_gates_are_apart(seams: Seams) -> None:
    first, second = Book(seams), Book(seams, 3)
    second.page = first.page
    P.from_address(seams.address("segments_words")).value = ctypes.addressof(first.page)
    number = first.begin(US, first=True)
    assert not second.held
    seams.function("visit_let_agent_in", None)()
    assert second.begin(US, first=True) == number
    first.call("release", None)
    assert second.held
    assert second.released() == number - 1


def test_what_stands_still_is_let_go_at_last_whatever_the_cap(book: Book) -> None:
    """The host may let it go only after the next launch, for which there is no room."""
    numbers = six(book)
    book.set_gate(open_=True, cap_ns=MS)
    book.pump(0)
    book.pump(1_999 * MS)
    assert book.released() == numbers[4]  # the first of them should be over
    assert book.pump(2_000 * MS) == NEVER
    assert book.released() == numbers[5]


def test_so_it_is_soon_where_the_program_made_a_stream_stand_still(book: Book) -> None:
    book.seams.function("behind_paused", None, ctypes.c_int)(book.ordinal)
    now_ns = time.monotonic_ns()
    after = book.seams.function("behind_after", U64, P, U64, U64)
    assert after(book.gate, 19 * MS, now_ns) == 0
    assert after(book.gate, 24 * MS, now_ns) == 3 * MS
    assert after(book.gate, 24 * MS, now_ns + 11_000 * MS) == 0  # that is long ago


def test_what_was_held_in_turns_keeps_others_waiting_no_longer_than_what_is_held_beside_them(book: Book) -> None:
    """In turns far more is held, and the next grant may be beside one that needs the card soon."""
    numbers = [*six(book), *(book.begin(250 * US) for _ in range(6))]
    book.set_gate(open_=True, cap_ns=MS, shared=True)
    book.call("opened", None, (U64, 0))
    assert book.released() == numbers[5]  # 1.5 ms
    book.device_is_at(numbers[1])
    assert book.pump(500 * US) < MS
    assert book.released() == numbers[7]
    assert int(book.call("over_cap_ns", U64, (U64, 0))) == 1500 * US
