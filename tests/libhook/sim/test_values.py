"""Waits for values in memory and writes of them, as the card's front end carries them out."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p

import pytest

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import MS, Cuda

US = 1000
NOT_READY = 600
AT_LEAST, EQUAL, AND = 0, 1, 2
NON_BLOCKING = 1
PATIENCE_S = 30
DEFAULTS = "memory=1GiB,drained=25us"


class Shared:
    """A page that parent and children see, and the word at its start as any of them stores or reads it."""

    def __init__(self) -> None:
        self.page = mmap.mmap(-1, mmap.PAGESIZE)
        self.word = c_uint32.from_buffer(self.page)
        self.address = ctypes.addressof(self.word)

    def register(self, cuda: Cuda) -> c_uint64:
        cuda.cuMemHostRegister_v2(c_void_p(self.address), c_size_t(mmap.PAGESIZE), 0)
        return c_uint64(self.address)


def comes(fact: Callable[[], bool]) -> bool:
    """Does it come true?"""
    end = time.monotonic() + PATIENCE_S
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def busy_ns(machine: Machine, pid: int) -> int:
    return int(machine.timeline.busy()[1].get(pid, 0))


def test_a_store_releases_what_a_stopped_process_enqueued(machine: Machine) -> None:
    shared = Shared()
    told, tell = os.pipe()

    def work() -> None:
        cuda = Cuda()
        cuda.cuStreamWaitValue32_v2(None, shared.register(cuda), c_uint32(1), AT_LEAST)
        cuda.spin(MS)
        os.write(tell, b"x")
        time.sleep(600)

    child = machine.start(work)
    os.read(told, 1)
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(0.01)
    before = busy_ns(machine, child.pid)
    shared.word.value = 1
    after = comes(lambda: busy_ns(machine, child.pid) == MS)
    assert (before, after) == (0, True)


def test_a_wait_that_is_met_takes_no_time(machine: Machine) -> None:
    def work() -> float:
        cuda = Cuda()
        words, start, end = c_void_p(), cuda.event(), cuda.event()
        cuda.cuMemHostAlloc(byref(words), c_size_t(4096), 0)
        begin, counter = (c_uint32 * 2).from_address(words.value or 0), c_uint64((words.value or 0) + 4)
        begin[1] = 1000
        cuda.cuStreamWaitValue32_v2(None, words, c_uint32(1), AT_LEAST)
        cuda.cuEventRecord(start, None)
        for i in range(100):
            cuda.spin(20 * US)
            cuda.cuStreamWaitValue32_v2(None, counter, c_uint32(i), AT_LEAST)
        cuda.cuEventRecord(end, None)
        begin[0] = 1
        cuda.cuEventSynchronize(end)
        return cuda.elapsed_ms(start, end)

    assert machine.run(work) == pytest.approx(2, abs=0.001)


def test_a_wait_that_is_met_before_its_turn_comes_takes_no_time(machine: Machine) -> None:
    """Though it was not met when it was pushed, and its process makes no call of the driver's meanwhile."""

    def work() -> float:
        cuda = Cuda()
        word, start, end = c_void_p(), cuda.event(), cuda.event()
        cuda.cuMemHostAlloc(byref(word), c_size_t(4096), 0)
        at = c_uint32.from_address(word.value or 0)
        cuda.spin(20 * MS)
        cuda.cuEventRecord(start, None)
        for number in range(1, 6):
            cuda.spin(50 * MS)
            cuda.cuStreamWaitValue32_v2(None, word, c_uint32(number), AT_LEAST)
        cuda.cuEventRecord(end, None)
        at.value = 5
        cuda.cuEventSynchronize(end)
        return cuda.elapsed_ms(start, end)

    assert machine.run(work) == pytest.approx(250, abs=0.001)


@pytest.mark.parametrize("what", ["memset", "copy"])
def test_bytes_behind_a_wait_that_is_met_take_what_they_take_without_it(machine: Machine, what: str) -> None:
    """No thread of the process is in the way of the card, however busy the machine is."""

    def work(waits: bool) -> float:
        cuda = Cuda()
        word, start, end = c_void_p(), cuda.event(), cuda.event()
        cuda.cuMemHostAlloc(byref(word), c_size_t(4096), 0)
        c_uint32.from_address(word.value or 0).value = 1
        there, here = cuda.malloc(1 << 20), cuda.malloc(1 << 20)
        cuda.spin(20 * MS)
        if waits:
            cuda.cuStreamWaitValue32_v2(None, word, c_uint32(1), AT_LEAST)
        cuda.cuEventRecord(start, None)
        if what == "memset":
            cuda.cuMemsetD8Async(c_uint64(here), 7, c_size_t(1 << 20), None)
        else:
            cuda.cuMemcpyDtoDAsync_v2(c_uint64(here), c_uint64(there), c_size_t(1 << 20), None)
        cuda.cuEventRecord(end, None)
        cuda.cuEventSynchronize(end)
        return cuda.elapsed_ms(start, end)

    assert machine.run(lambda: work(True)) == machine.run(lambda: work(False))


def test_bytes_behind_a_write_of_a_value_to_them_come_after_it(machine: Machine) -> None:
    def work() -> int:
        cuda = Cuda()
        word = c_void_p()
        cuda.cuMemHostAlloc(byref(word), c_size_t(4096), 0)
        cuda.spin(20 * MS)
        cuda.cuStreamWriteValue32_v2(None, word, c_uint32(5), 0)
        cuda.cuMemsetD8Async(word, 7, c_size_t(4096), None)
        cuda.cuCtxSynchronize()
        return c_uint32.from_address(word.value or 0).value

    assert machine.run(work) == 0x07070707


def test_a_wait_that_is_not_met_costs_the_neighbour_nothing(machine: Machine) -> None:
    shared = Shared()
    told, tell = os.pipe()

    def wait() -> None:
        cuda = Cuda()
        cuda.spin(MS)
        cuda.cuStreamWaitValue32_v2(None, shared.register(cuda), c_uint32(1), AT_LEAST)
        cuda.spin(50 * MS)
        os.write(tell, b"x")
        cuda.cuCtxSynchronize()

    def neighbour() -> float:
        cuda = Cuda()
        start, end = cuda.event(), cuda.event()
        cuda.spin(MS)
        cuda.cuEventRecord(start, None)
        for _ in range(20):
            cuda.spin(MS)
        cuda.cuEventRecord(end, None)
        cuda.cuEventSynchronize(end)
        return cuda.elapsed_ms(start, end)

    child = machine.start(wait)
    os.read(told, 1)
    assert comes(lambda: busy_ns(machine, child.pid) == MS)
    assert machine.run(neighbour) == pytest.approx(20, abs=0.01)
    assert busy_ns(machine, child.pid) == MS
    shared.word.value = 1
    child.value()


def test_a_wait_is_judged_when_its_turn_comes(machine: Machine) -> None:
    """What is met when it is enqueued may not be when the stream gets there."""

    def work() -> list[int]:
        cuda = Cuda()
        word, stream, seen = c_void_p(), cuda.stream(), []
        cuda.cuMemHostAlloc(byref(word), c_size_t(4096), 0)
        at = c_uint32.from_address(word.value or 0)
        at.value = 5
        cuda.spin(20 * MS, stream)
        cuda.cuStreamWaitValue32_v2(stream, word, c_uint32(5), EQUAL)
        behind = cuda.event()
        cuda.cuEventRecord(behind, stream)
        at.value = 4
        time.sleep(0.03)
        seen.append(cuda.code("cuEventQuery", behind))
        at.value = 5
        cuda.cuEventSynchronize(behind)
        return [*seen, cuda.code("cuStreamQuery", stream)]

    assert machine.run(work) == [NOT_READY, 0]


def test_bytes_behind_a_wait_are_those_that_were_there_when_it_ended(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        host, device = c_void_p(), c_uint64(cuda.malloc(8))
        cuda.cuMemHostAlloc(byref(host), c_size_t(4096), 0)
        words = (c_uint32 * 4).from_address(host.value or 0)
        words[1] = 7
        cuda.cuStreamWaitValue32_v2(None, host, c_uint32(1), AT_LEAST)
        cuda.cuMemcpyHtoDAsync_v2(device, c_void_p((host.value or 0) + 4), c_size_t(4), None)
        cuda.cuStreamWriteValue32_v2(None, c_uint64(device.value + 4), c_uint32(9), 0)
        cuda.cuMemcpyDtoHAsync_v2(c_void_p((host.value or 0) + 8), device, c_size_t(8), None)
        time.sleep(0.005)
        words[1] = 8
        words[0] = 1
        cuda.cuCtxSynchronize()
        return [words[2], words[3]]

    assert machine.run(work) == [8, 9]


@pytest.mark.parametrize("wide", [False, True])
def test_what_was_written_is_there_when_the_stream_is_done(machine: Machine, wide: bool) -> None:
    def work() -> int:
        cuda = Cuda()
        word = c_void_p()
        cuda.cuMemHostAlloc(byref(word), c_size_t(4096), 0)
        at = c_uint64.from_address(word.value or 0)
        wrong = 0
        for i in range(1, 1500):  # more than a ring holds
            write = cuda.cuStreamWriteValue64_v2 if wide else cuda.cuStreamWriteValue32_v2
            write(None, word, c_uint64(i) if wide else c_uint32(i), 0)
            if i % 3 == 0:
                cuda.cuStreamSynchronize(None)
                wrong += at.value != i
        return wrong

    assert machine.run(work) == 0


def test_a_write_is_seen_though_its_process_only_sleeps(machine: Machine) -> None:
    shared = Shared()

    def work() -> None:
        cuda = Cuda()
        cuda.spin(5 * MS)
        cuda.cuStreamWriteValue32_v2(None, shared.register(cuda), c_uint32(3), 0)
        time.sleep(600)

    machine.start(work)
    assert comes(lambda: shared.word.value == 3)


def test_a_write_between_streams_and_processes_releases_a_wait(machine: Machine) -> None:
    shared = Shared()

    def there() -> None:
        cuda = Cuda()
        word, stream = shared.register(cuda), cuda.stream(NON_BLOCKING)
        cuda.cuStreamWaitValue32_v2(stream, word, c_uint32(1), EQUAL)
        cuda.cuStreamWriteValue32_v2(stream, word, c_uint32(2), 0)
        cuda.cuStreamSynchronize(stream)

    def back() -> int:
        cuda = Cuda()
        word, near, far = shared.register(cuda), cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
        cuda.cuStreamWaitValue32_v2(near, word, c_uint32(4), AND)
        cuda.cuStreamWaitValue32_v2(far, word, c_uint32(2), EQUAL)
        cuda.cuStreamWriteValue32_v2(far, word, c_uint32(4), 0)
        cuda.cuStreamSynchronize(near)
        return shared.word.value

    children = [machine.start(back), machine.start(there)]
    shared.word.value = 1
    assert [child.value() for child in children] == [4, None]


def test_what_a_release_takes_is_an_option(make_machine: Callable[[str], Machine]) -> None:
    def work() -> float:
        cuda = Cuda()
        word, stream, other = c_void_p(), cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
        start, end = cuda.event(), cuda.event()
        cuda.cuMemHostAlloc(byref(word), c_size_t(4096), 0)
        cuda.cuStreamWaitValue32_v2(stream, word, c_uint32(1), AT_LEAST)
        cuda.cuEventRecord(end, stream)
        cuda.cuEventRecord(start, other)
        cuda.cuEventSynchronize(start)
        c_uint32.from_address(word.value or 0).value = 1
        cuda.cuEventSynchronize(end)
        return cuda.elapsed_ms(start, end)

    assert make_machine(f"{DEFAULTS},release=50ms").run(work) >= 50


def test_a_process_ends_with_waits_that_nobody_meets(machine: Machine) -> None:
    def work() -> int:
        cuda = Cuda()
        word = c_uint64(cuda.malloc(4))
        for i in range(3):
            cuda.cuStreamWaitValue32_v2(cuda.stream(NON_BLOCKING), word, c_uint32(1 + i), AT_LEAST)
        cuda.cuStreamWaitValue32_v2(None, word, c_uint32(1), AT_LEAST)
        cuda.spin(MS)
        return cuda.code("cuStreamQuery", None)

    child = machine.start(work)
    assert child.value() == NOT_READY
    assert machine.run(lambda: Cuda().free_bytes()) > 0
