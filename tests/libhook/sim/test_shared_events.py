"""Events that other processes see: CU_EVENT_INTERPROCESS, cuIpcGetEventHandle, cuIpcOpenEventHandle."""

from __future__ import annotations

import os
import signal
import time
from ctypes import Structure, byref, c_ubyte, c_uint32, c_void_p

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import Cuda

UNTIMED, SHARED = 2, 4
INVALID_VALUE, INVALID_HANDLE, NOT_READY = 1, 400, 600
AT_LEAST = 0


class Handle(Structure):
    _fields_ = [("reserved", c_ubyte * 64)]


def held_event(cuda: Cuda, told: int) -> c_void_p:
    """An event behind a word in memory that nobody has written yet; its handle goes into the pipe. Returns the word."""
    word, stream, event, handle = c_void_p(), cuda.stream(), cuda.event(UNTIMED | SHARED), Handle()
    cuda.cuMemHostAlloc(byref(word), 4096, 0)
    cuda.cuStreamWaitValue32(stream, word, c_uint32(1), AT_LEAST)
    cuda.cuEventRecord(event, stream)
    cuda.cuIpcGetEventHandle(byref(handle), event)
    os.write(told, bytes(handle))
    return word


def opened(cuda: Cuda, told: int) -> c_void_p:
    event = c_void_p()
    cuda.cuIpcOpenEventHandle(byref(event), Handle.from_buffer_copy(os.read(told, 64)))
    return event


def test_a_stream_waits_for_the_work_of_another_process(machine: Machine) -> None:
    told, tell = os.pipe()
    released, release = os.pipe()

    def make() -> None:
        word = held_event(Cuda(), tell)
        os.read(released, 1)
        c_uint32.from_address(word.value or 0).value = 1
        time.sleep(600)  # the event's maker must outlive it

    def use() -> list[int]:
        cuda = Cuda()
        theirs, stream, mine = opened(cuda, told), cuda.stream(), cuda.event()
        seen = [cuda.code("cuEventQuery", theirs)]
        cuda.cuStreamWaitEvent(stream, theirs, 0)
        cuda.cuEventRecord(mine, stream)
        seen.append(cuda.code("cuEventQuery", mine))
        os.write(release, b"x")
        cuda.cuEventSynchronize(mine)
        seen.append(cuda.code("cuEventQuery", theirs))
        cuda.cuEventDestroy_v2(theirs)
        return seen

    machine.start(make)
    assert machine.run(use) == [NOT_READY, NOT_READY, 0]


def test_nobody_waits_for_a_process_that_died(machine: Machine) -> None:
    told, tell = os.pipe()

    def make() -> None:
        held_event(Cuda(), tell)
        time.sleep(600)

    maker = machine.start(make)

    def use() -> list[int]:
        cuda = Cuda()
        theirs, stream = opened(cuda, told), cuda.stream()
        before = cuda.code("cuEventQuery", theirs)
        cuda.cuStreamWaitEvent(stream, theirs, 0)
        os.kill(maker.pid, signal.SIGKILL)
        cuda.cuEventSynchronize(theirs)
        cuda.cuStreamSynchronize(stream)
        return [before, cuda.code("cuEventQuery", theirs)]

    assert machine.run(use) == [NOT_READY, 0]


def test_the_importer_may_record_it_too(machine: Machine) -> None:
    told, tell = os.pipe()
    recorded, record = os.pipe()
    seen, see = os.pipe()

    def make() -> list[int]:
        cuda = Cuda()
        event, handle = cuda.event(UNTIMED | SHARED), Handle()
        cuda.cuIpcGetEventHandle(byref(handle), event)
        os.write(tell, bytes(handle))
        os.read(recorded, 1)
        codes = [cuda.code("cuEventQuery", event)]
        os.write(see, b"x")
        cuda.cuEventSynchronize(event)
        return [*codes, cuda.code("cuEventQuery", event)]

    def use() -> None:
        cuda = Cuda()
        theirs, stream, word = opened(cuda, told), cuda.stream(), c_void_p()
        cuda.cuMemHostAlloc(byref(word), 4096, 0)
        cuda.cuStreamWaitValue32(stream, word, c_uint32(1), AT_LEAST)
        cuda.cuEventRecord(theirs, stream)
        os.write(record, b"x")
        os.read(seen, 1)
        c_uint32.from_address(word.value or 0).value = 1
        cuda.cuStreamSynchronize(stream)
        time.sleep(600)

    maker = machine.start(make)
    machine.start(use)
    assert maker.value() == [NOT_READY, 0]


def test_what_cannot_be_shared_is_refused(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        event, handle, plain = c_void_p(), Handle(), cuda.event(UNTIMED)
        return [
            cuda.code("cuEventCreate", byref(event), SHARED),  # it would be timed
            cuda.code("cuIpcGetEventHandle", byref(handle), plain),
            cuda.code("cuIpcGetEventHandle", None, cuda.event(UNTIMED | SHARED)),
            cuda.code("cuIpcOpenEventHandle", byref(event), Handle()),
            cuda.code("cuIpcOpenEventHandle", None, Handle()),
        ]

    refused = [INVALID_VALUE, INVALID_HANDLE, INVALID_VALUE, INVALID_HANDLE, INVALID_VALUE]
    assert machine.run(work) == refused


def test_a_thousand_events_and_more_are_shared_and_given_back(machine: Machine) -> None:
    def work() -> int:
        cuda, handle = Cuda(), Handle()
        before = len(os.listdir("/proc/self/fd"))
        for number in range(2000):
            event = cuda.event(UNTIMED | SHARED)
            cuda.cuEventRecord(event, None)
            if number % 2:
                cuda.cuIpcGetEventHandle(byref(handle), event)
            cuda.cuEventDestroy_v2(event)
        return len(os.listdir("/proc/self/fd")) - before

    assert machine.run(work) == 1
