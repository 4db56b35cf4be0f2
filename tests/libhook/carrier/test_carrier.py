"""The carrier thread (libhook/carrier): it does what was ordered, once, and nothing that was taken back."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import select
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from libhook import core
from libhook.core import ffi, lib

DRAINED = struct.Struct("<IHHQ")
FAR_NS = (1 << 63) - 1
_FUTEX, _WAIT, _WAKE, _REQUEUE = 202, 0, 1, 3


class Bench:
    """A carrier, three pages in plain memory, and the clients' ends of the page connections of the first two."""

    def __init__(self) -> None:
        self.carrier = lib.carrier_start()
        assert self.carrier != ffi.NULL
        self.done = lib.carrier_done_fd(self.carrier)
        self.pages = [ffi.new("struct wire_page *") for _ in range(3)]
        self.client, self.number = self.listen()
        self.second, self.second_number = self.listen()
        lib.wire_page_store_epoch(self.pages[0], 3, 7)

    def listen(self, account: int = 7) -> tuple[socket.socket, int]:
        client, daemon = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with daemon:
            number = lib.carrier_listen(self.carrier, daemon.fileno(), account)
        assert number >= 0
        return client, number

    def prepare(
        self,
        holder_epoch: int = 7,
        epoch: int = 8,
        not_before_ns: int = 0,
        wanting_from_ns: int = 0,
        by_message: bool = False,
    ) -> int:
        holder, following, _ = self.pages
        more = not_before_ns, wanting_from_ns, by_message
        return lib.carrier_prepare(
            self.carrier, 0, False, self.number, holder, 3, holder_epoch, following, 3, epoch, *more
        )

    def prepare_behind(self, wanting_from_ns: int = 0, holder_epoch: int = 8) -> int:
        """When the second has drained its epoch 8, the third has 9."""
        _, holder, following = self.pages
        return lib.carrier_prepare(
            self.carrier,
            0,
            True,
            self.second_number,
            holder,
            3,
            holder_epoch,
            following,
            3,
            holder_epoch + 1,
            0,
            wanting_from_ns,
            False,
        )

    def take_back(self) -> list[Any]:
        done = ffi.new("struct carrier_done[]", lib.CARRIER_AHEAD)
        return [done[i] for i in range(lib.carrier_take_back(self.carrier, 0, done))]

    def say(self, epoch: int, magic: int = lib.WIRE_MAGIC, flags: int = 0, behind: bytes = b"") -> None:
        client = self.second if epoch == 8 else self.client
        client.send(DRAINED.pack(magic, 3, flags, epoch) + behind)

    def say_with_return(self, epoch: int, flags: int = 0) -> None:
        self.say(epoch, flags=flags | lib.WIRE_DRAINED_RETURN, behind=a_return(epoch, launches=epoch))

    def carried(self, seconds: float = 60) -> bool:
        return bool(select.select([self.done], [], [], seconds)[0])

    def shown(self) -> list[int]:
        """The first two."""
        return self.all_shown()[:2]

    def all_shown(self) -> list[int]:
        return [lib.wire_page_load_epoch(page, 3) for page in self.pages]

    def until_shown(self, epochs: list[int]) -> None:
        deadline = time.monotonic() + 60
        while self.all_shown() != epochs:
            assert time.monotonic() < deadline, self.all_shown()
            time.sleep(0.001)

    def until_heard(self) -> None:
        """All that was said has been taken out of the connection (so it was judged)."""
        deadline = time.monotonic() + 60
        unread = bytearray(4)
        for client in (self.client, self.second):
            while True:
                fcntl.ioctl(client, termios.TIOCOUTQ, unread)
                if not int.from_bytes(unread, "little"):
                    break
                assert time.monotonic() < deadline
                time.sleep(0.001)


def a_return(epoch: int, **fields: int) -> bytes:
    return core.encode(core.new(lib.WIRE_RETURN, 0, epoch=epoch, **fields))


@pytest.fixture
def bench() -> Iterator[Any]:
    bench = Bench()
    yield bench
    lib.carrier_stop(bench.carrier)
    bench.client.close()
    bench.second.close()


def test_an_order_is_carried_out_when_the_holder_says_that_it_has_drained(bench: Bench) -> None:
    before_ns = time.monotonic_ns()
    assert bench.prepare() == 0
    bench.say(7)
    assert bench.carried()
    assert bench.shown() == [0, 8]
    (done,) = bench.take_back()
    assert before_ns <= done.carried_ns <= time.monotonic_ns()
    assert done.epoch == 8
    assert bench.take_back() == [], "it is told once"


def test_who_asks_what_was_carried_out_is_not_told_of_it_again(bench: Bench) -> None:
    bench.prepare()
    bench.say(7)
    assert bench.carried(), "told late, for nobody asked"
    assert bench.take_back()
    assert not bench.carried(0)


def test_a_holder_that_was_quicker_than_its_order_is_heard(bench: Bench) -> None:
    bench.say(7)
    bench.until_heard()
    assert bench.prepare() == 0
    assert bench.carried()
    assert bench.shown() == [0, 8]


def test_an_order_that_was_taken_back_is_not_carried_out(bench: Bench) -> None:
    bench.prepare()
    assert bench.take_back() == []
    bench.say(7)
    bench.until_heard()
    assert bench.take_back() == []
    assert bench.shown() == [7, 0]


def test_a_holder_that_drains_too_early_hands_nothing_on(bench: Bench) -> None:
    bench.prepare(not_before_ns=time.monotonic_ns() + 3600 * 10**9)
    bench.say(7)
    bench.until_heard()
    assert bench.take_back() == []
    assert bench.shown() == [7, 0]


def test_an_order_for_an_idle_holder_is_not_for_one_that_wants_more(bench: Bench) -> None:
    bench.prepare(wanting_from_ns=FAR_NS)
    bench.say(7)
    bench.until_heard()
    assert bench.take_back() == []
    assert bench.shown() == [7, 0]


@pytest.mark.parametrize("quicker", [False, True])
def test_an_order_for_an_idle_holder_is_carried_out_when_it_wants_no_more(bench: Bench, quicker: bool) -> None:
    for step in ("say", "prepare") if quicker else ("prepare", "say"):
        if step == "say":
            bench.say(7, flags=lib.WIRE_DRAINED_IDLE)
            if quicker:
                bench.until_heard()
        else:
            bench.prepare(wanting_from_ns=FAR_NS)
    assert bench.carried()
    assert bench.shown() == [0, 8]


def test_a_return_behind_its_word_is_told_with_the_order(bench: Bench) -> None:
    bench.prepare()
    bench.say(7, flags=lib.WIRE_DRAINED_RETURN, behind=a_return(7, launches=5))
    assert bench.carried()
    assert bench.shown() == [0, 8]
    assert bench.pages[0].gpu[3].taken == 7, "the client need not send it again"
    (done,) = bench.take_back()
    assert (done.returned, done.said.launches) == (True, 5)


def test_the_words_of_one_read_are_heard_one_by_one(bench: Bench) -> None:
    bench.prepare()
    word = DRAINED.pack(lib.WIRE_MAGIC, 3, lib.WIRE_DRAINED_RETURN, 6) + a_return(6)
    bench.client.send(word + word[:8] + (7).to_bytes(8, "little") + a_return(7, launches=9))
    assert bench.carried()
    (done,) = bench.take_back()
    assert done.said.launches == 9


def test_a_return_that_was_quicker_than_the_order_is_left_to_its_message(bench: Bench) -> None:
    bench.say(7, flags=lib.WIRE_DRAINED_RETURN, behind=a_return(7))
    bench.until_heard()
    bench.prepare()
    assert bench.carried()
    assert bench.pages[0].gpu[3].taken == 0
    (done,) = bench.take_back()
    assert not done.returned


@pytest.mark.parametrize(
    "behind",
    [b"", a_return(7)[:-8], a_return(6), core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 0)) + b"\0" * 40, b"\0" * 112],
    ids=["nothing", "cut", "another epoch", "another message", "zeros"],
)
def test_what_is_no_return_costs_the_connection(bench: Bench, behind: bytes) -> None:
    bench.prepare()
    bench.say(7, flags=lib.WIRE_DRAINED_RETURN, behind=behind)
    with contextlib.suppress(ConnectionResetError):  # closed with something unread
        assert bench.client.recv(1) == b"", "nobody listens any more"
    assert bench.shown() == [7, 0]
    assert bench.prepare() < 0


def test_another_epoch_is_not_meant(bench: Bench) -> None:
    bench.prepare()
    bench.say(6)
    bench.until_heard()
    assert bench.shown() == [7, 0]
    bench.say(7)
    assert bench.carried()


def test_nonsense_costs_the_connection_and_its_order(bench: Bench) -> None:
    bench.prepare()
    bench.say(7, magic=0)
    assert bench.client.recv(1) == b"", "nobody listens any more"
    assert bench.shown() == [7, 0]
    assert bench.prepare() < 0


def test_a_flood_is_not_listened_to_for_ever(bench: Bench) -> None:
    def flood() -> None:
        for _ in range(200_000):
            bench.say(1)

    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        flood()


def test_the_end_of_the_connection_ends_the_order(bench: Bench) -> None:
    bench.prepare()
    bench.client.close()
    deadline = time.monotonic() + 60
    while bench.prepare() == 0:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert bench.shown() == [7, 0]


def ended(bench: Bench, account: int = 7) -> int:
    """The number of a connection that its client has ended, and the carrier has heard of it."""
    client, number = bench.listen(account)
    with client:
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b"", "the carrier's copy was the last"
    return number


def test_the_number_of_a_connection_that_ended_is_nobody_elses_until_it_is_given_back(bench: Bench) -> None:
    gone = ended(bench)
    client, number = bench.listen()
    client.close()
    assert number != gone, "who asks for the order of the one that is gone would mean the other"
    assert bench.prepare() == 0
    lib.carrier_forget(bench.carrier, gone)
    bench.say(7)
    assert bench.carried(), "nobody else was forgotten"
    client, number = bench.listen()
    client.close()
    assert number == gone


def test_numbers_that_are_given_back_never_run_out(bench: Bench) -> None:
    for _ in range(lib.CARRIER_CLIENTS + 2):
        lib.carrier_forget(bench.carrier, ended(bench))
    taken = [ended(bench, 8 + i // lib.CARRIER_OF_ACCOUNT) for i in range(lib.CARRIER_CLIENTS - 2)]
    assert len({*taken, bench.number, bench.second_number}) == lib.CARRIER_CLIENTS
    assert lib.carrier_listen(bench.carrier, bench.client.fileno(), 7) == -errno.EUSERS
    for number in taken[5], taken[9]:
        lib.carrier_forget(bench.carrier, number)
    assert [ended(bench), ended(bench)] == [taken[5], taken[9]]


def test_a_tenant_has_so_many_connections_and_leaves_the_others_theirs(bench: Bench) -> None:
    taken = [ended(bench) for _ in range(lib.CARRIER_OF_ACCOUNT - 2)]  # the bench has two
    for account in 7, 7 + lib.CARRIER_ACCOUNTS:
        assert lib.carrier_listen(bench.carrier, bench.client.fileno(), account) == -errno.EUSERS
    assert ended(bench, 8) not in taken
    for _ in range(2):
        lib.carrier_forget(bench.carrier, taken[0])  # the second time it is nobody's
    assert ended(bench) == taken[0]
    assert lib.carrier_listen(bench.carrier, bench.client.fileno(), 7) == -errno.EUSERS


@pytest.mark.parametrize(
    ("gpu", "number", "slot"), [(64, 0, 0), (0, -1, 0), (0, lib.CARRIER_CLIENTS, 0), (0, 0, 16), (0, 99, 0)]
)
def test_what_is_out_of_range_is_refused(bench: Bench, gpu: int, number: int, slot: int) -> None:
    page = bench.pages[0]
    assert lib.carrier_prepare(bench.carrier, gpu, False, number, page, slot, 1, page, slot, 2, 0, 0, False) < 0


def test_an_order_behind_another_is_carried_out_after_it_and_both_are_told_together(bench: Bench) -> None:
    bench.prepare()
    assert bench.prepare_behind() == 0
    bench.say_with_return(7)
    bench.until_shown([0, 8, 0])
    bench.say_with_return(8)
    bench.until_shown([0, 0, 9])
    assert bench.carried()
    first, second = bench.take_back()
    assert [(done.epoch, done.returned, done.said.launches) for done in (first, second)] == [(8, True, 7), (9, True, 8)]
    assert first.carried_ns <= second.carried_ns


def test_while_there_is_more_to_carry_out_nobody_is_woken(bench: Bench) -> None:
    bench.prepare()
    bench.prepare_behind()
    bench.say_with_return(7)
    bench.until_shown([0, 8, 0])
    assert not bench.carried(0.05), "fifty times as long as it takes else"
    assert len(bench.take_back()) == 1, "who asks is told"
    bench.say_with_return(8)
    bench.until_heard()
    assert bench.all_shown() == [0, 8, 0], "the other was taken back with it"


def test_whose_next_waits_for_a_message_wakes_the_interpreter_at_once(bench: Bench) -> None:
    """Else it would hear of its turn 0.4 ms late, or, with another order behind, when that was carried out."""
    bench.prepare(by_message=True)
    bench.prepare_behind()
    bench.say_with_return(7)
    bench.until_shown([0, 8, 0])
    assert bench.carried()
    (done,) = bench.take_back()
    assert (done.epoch, done.returned) == (8, True)


def test_whether_something_was_carried_out_can_be_asked_without_taking_anything_back(bench: Bench) -> None:
    bench.prepare()
    bench.prepare_behind()
    assert lib.carrier_carried(bench.carrier, 0) == 0
    bench.say_with_return(7)
    assert lib.carrier_carried(bench.carrier, 0) == 1, "its word is heard, whoever is awake"
    bench.say_with_return(8)
    bench.until_shown([0, 0, 9])
    assert lib.carrier_carried(bench.carrier, 0) == 2
    assert len(bench.take_back()) == 2
    assert lib.carrier_carried(bench.carrier, lib.CARRIER_GPUS) == 0


def test_a_return_that_comes_by_message_is_waited_for(bench: Bench) -> None:
    bench.prepare()
    bench.prepare_behind()
    bench.say(7)
    assert bench.carried(), "should it not come"
    assert len(bench.take_back()) == 1


def test_what_stands_behind_is_for_a_holder_that_wants_more(bench: Bench) -> None:
    bench.prepare()
    bench.prepare_behind()
    bench.say_with_return(7, flags=lib.WIRE_DRAINED_IDLE)
    assert bench.carried(), "nothing else is to come"
    bench.say_with_return(8)
    bench.until_heard()
    assert bench.all_shown() == [0, 8, 0]
    assert len(bench.take_back()) == 1


def test_an_order_behind_has_its_time_from_the_one_before(bench: Bench) -> None:
    bench.prepare()
    bench.prepare_behind(wanting_from_ns=3600 * 10**9)
    bench.say_with_return(7)
    bench.until_shown([0, 8, 0])
    bench.say_with_return(8)
    bench.until_heard()
    assert bench.all_shown() == [0, 8, 0], "it would be picked again"


def test_the_end_of_a_connection_ends_its_order_and_those_behind(bench: Bench) -> None:
    bench.prepare()
    bench.prepare_behind()
    lib.carrier_forget(bench.carrier, bench.second_number)
    bench.say_with_return(7)
    assert bench.carried(), "nothing else is to come"
    assert bench.all_shown() == [0, 8, 0]


def test_a_line_has_an_end_and_a_beginning(bench: Bench) -> None:
    assert bench.prepare_behind() < 0, "behind nothing"
    bench.prepare()
    for place in range(lib.CARRIER_AHEAD - 1):
        assert bench.prepare_behind(holder_epoch=8 + place) == 0
    assert bench.prepare_behind(holder_epoch=7 + lib.CARRIER_AHEAD) < 0
    bench.prepare()
    assert bench.prepare_behind() == 0, "the line began anew"


def test_an_order_for_another_holder_than_the_one_before_makes_is_refused(bench: Bench) -> None:
    bench.prepare()
    assert bench.prepare_behind(holder_epoch=9) < 0, "one between them is missing: who has 8 would be passed over"
    bench.say_with_return(7)
    assert bench.carried(), "nothing else is to come"
    assert bench.all_shown() == [0, 8, 0]


def test_of_a_crowd_that_sleeps_on_a_page_so_many_are_woken_and_no_more(bench: Bench) -> None:
    """Anybody who has the page may sleep there with all his threads: all hand-overs waited until each was woken."""
    crowd = lib.CARRIER_WAKES + 50
    libc = ctypes.CDLL(None, use_errno=True)
    word = ctypes.c_void_p(int(ffi.cast("uintptr_t", ffi.addressof(bench.pages[1].gpu[3], "epoch"))))
    sleepers = [threading.Thread(target=libc.syscall, args=(_FUTEX, word, _WAIT, 0, None), daemon=True)
                for _ in range(crowd)]  # fmt: skip

    def asleep() -> int:
        """All are moved to where they are."""
        return int(libc.syscall(_FUTEX, word, _REQUEUE, 0, ctypes.c_long(crowd), word, 0))

    for sleeper in sleepers:
        sleeper.start()
    deadline = time.monotonic() + 60
    while asleep() < crowd:
        assert time.monotonic() < deadline, asleep()
        time.sleep(0.001)
    bench.prepare()
    bench.say(7)
    bench.until_shown([0, 8, 0])
    assert bench.carried()
    assert asleep() == crowd - lib.CARRIER_WAKES
    libc.syscall(_FUTEX, word, _WAKE, crowd)
    for sleeper in sleepers:
        sleeper.join()
