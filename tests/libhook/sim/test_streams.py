"""Order within and between streams: default streams, events, host functions, stream memory operations."""

from __future__ import annotations

import ctypes
import threading
import time
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p

import pytest

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import LEGACY, MS, PER_THREAD, Cuda, timed_ms

HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
NOT_READY, INVALID_HANDLE = 600, 400


@pytest.mark.flaky(reruns=4)
def test_events_are_timed_by_the_device_and_ordered_with_their_stream(machine: Machine) -> None:
    def work() -> tuple[int, float, int]:
        cuda = Cuda()
        start, end = cuda.event(), cuda.event()
        stream = cuda.stream()
        cuda.spin(MS, stream)
        cuda.cuEventRecord(start, stream)
        cuda.spin(20 * MS, stream)
        cuda.cuEventRecord(end, stream)
        early = cuda.code("cuEventQuery", end)
        cuda.cuEventSynchronize(end)
        return early, cuda.elapsed_ms(start, end), cuda.code("cuEventQuery", end)

    early, elapsed, late = machine.run(work)
    assert early == NOT_READY
    assert late == 0
    assert elapsed == pytest.approx(20, abs=0.001)


@pytest.mark.flaky(reruns=4)
def test_the_time_of_an_event_survives_the_reuse_of_its_place_in_the_queue(machine: Machine) -> None:
    def work() -> float:
        cuda = Cuda()
        start, end = cuda.event(), cuda.event()
        cuda.spin(MS)
        cuda.cuEventRecord(start, None)
        cuda.spin(3 * MS)
        cuda.cuEventRecord(end, None)
        for _ in range(3000):
            cuda.spin(1000)
        cuda.cuCtxSynchronize()
        return cuda.elapsed_ms(start, end)

    assert machine.run(work) == pytest.approx(3, abs=0.001)


def test_events_without_timing_or_record_have_no_elapsed_time(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cuda = Cuda()
        plain, untimed, never = cuda.event(), cuda.event(2), cuda.event()
        cuda.cuEventRecord(plain, None)
        cuda.cuEventRecord(untimed, None)
        cuda.cuCtxSynchronize()
        out = ctypes.c_float()
        return (
            cuda.code("cuEventElapsedTime", byref(out), plain, untimed),
            cuda.code("cuEventElapsedTime", byref(out), plain, never),
            cuda.code("cuEventQuery", never),
        )

    assert machine.run(work) == (INVALID_HANDLE, INVALID_HANDLE, 0)


@pytest.mark.flaky(reruns=4)
def test_a_stream_waits_for_an_event_of_another(machine: Machine) -> None:
    def work() -> tuple[float, int]:
        cuda = Cuda()
        first, second, done, end = cuda.stream(1), cuda.stream(1), cuda.event(), cuda.event()
        start = cuda.event()
        cuda.cuEventRecord(start, first)
        cuda.spin(10 * MS, first)
        cuda.cuEventRecord(done, first)
        cuda.cuStreamWaitEvent(second, done, 0)
        cuda.cuEventRecord(end, second)
        busy = cuda.code("cuStreamQuery", second)
        cuda.cuStreamSynchronize(second)
        return cuda.elapsed_ms(start, end), busy

    elapsed, busy = machine.run(work)
    assert elapsed >= 10
    assert busy == NOT_READY


@pytest.mark.flaky(reruns=4)
@pytest.mark.parametrize(("flags", "waits"), [(0, True), (1, False)])
def test_the_legacy_stream_orders_blocking_streams_only(machine: Machine, flags: int, waits: bool) -> None:
    def work() -> tuple[bool, bool]:
        cuda = Cuda()
        other, marks = cuda.stream(flags), [cuda.event() for _ in range(2)]
        cuda.spin(10 * MS, other)
        cuda.cuEventRecord(marks[0], None)  # legacy: behind the other stream if that is a blocking one
        first = cuda.code("cuEventQuery", marks[0]) == NOT_READY
        cuda.cuCtxSynchronize()
        cuda.spin(10 * MS, LEGACY)
        cuda.cuEventRecord(marks[1], other)  # and the other way round
        second = cuda.code("cuEventQuery", marks[1]) == NOT_READY
        cuda.cuCtxSynchronize()
        return first, second

    assert machine.run(work) == (waits, waits)


@pytest.mark.flaky(reruns=4)
def test_per_thread_streams_are_the_threads_own(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        queries: list[int] = []

        def thread() -> None:
            cuda.cuCtxSetCurrent(cuda.ctx)
            queries.append(cuda.code("cuStreamQuery", PER_THREAD))
            cuda.spin(MS, PER_THREAD)
            queries.append(cuda.code("cuStreamSynchronize_ptsz", None))

        cuda.spin(100 * MS, suffix="_ptsz")
        assert cuda.code("cuStreamQuery", PER_THREAD) == NOT_READY
        worker = threading.Thread(target=thread)
        worker.start()
        worker.join()
        queries.append(cuda.code("cuStreamSynchronize", PER_THREAD))
        return queries

    child = machine.start(work)
    assert child.value() == [0, 0, 0]
    _, segments = machine.timeline.segments()
    assert len({s.stream for s in segments if s.pid == child.pid}) == 2


def test_host_functions_and_callbacks_run_in_stream_order(machine: Machine) -> None:
    def work() -> list[float]:
        cuda = Cuda()
        times: list[float] = []
        begun = time.monotonic()
        function = HOST_FUNCTION(lambda _: times.append(time.monotonic() - begun))
        callback = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_int, c_void_p)(
            lambda stream, status, data: times.append(time.monotonic() - begun)
        )
        stream = cuda.stream()
        cuda.spin(10 * MS, stream)
        cuda.cuLaunchHostFunc(stream, function, None)
        cuda.spin(10 * MS, stream)
        cuda.cuStreamAddCallback(stream, callback, None, 0)
        cuda.cuStreamSynchronize(stream)
        return [*times, time.monotonic() - begun]

    first, second, end = machine.run(work)
    assert 0.010 <= first < second
    assert 0.020 <= second <= end


def test_a_copy_behind_a_host_function_sees_what_it_wrote(machine: Machine) -> None:
    def work() -> bytes:
        cuda = Cuda()
        source, target = ctypes.create_string_buffer(b"old"), ctypes.create_string_buffer(4)
        pointer, stream = cuda.malloc(4), cuda.stream()
        function = HOST_FUNCTION(lambda _: ctypes.memmove(source, b"new", 3) and None)
        cuda.spin(5 * MS, stream)
        cuda.cuLaunchHostFunc(stream, function, None)
        cuda.cuMemcpyHtoDAsync_v2(c_uint64(pointer), source, c_size_t(4), stream)
        cuda.cuMemcpyDtoHAsync_v2(target, c_uint64(pointer), c_size_t(4), stream)
        cuda.cuStreamSynchronize(stream)
        return target.value

    assert machine.run(work) == b"new"


def test_copies_and_sets_wait_for_no_function_of_another_stream(machine: Machine) -> None:
    """A card's engines do them; only what stands before them in their own stream is in their way."""

    def work() -> tuple[bytes, list[bool]]:
        cuda = Cuda()
        done, let_go = threading.Event(), list[bool]()
        stands = HOST_FUNCTION(lambda _: let_go.append(done.wait(10)))
        source, target = ctypes.create_string_buffer(b"xyz"), ctypes.create_string_buffer(4)
        pointer, first, second = cuda.malloc(4), cuda.stream(1), cuda.stream(1)
        cuda.cuLaunchHostFunc(first, stands, None)
        cuda.cuMemcpyHtoDAsync_v2(c_uint64(pointer), source, c_size_t(4), second)
        cuda.cuMemsetD8Async(c_uint64(pointer + 1), ctypes.c_ubyte(ord("!")), c_size_t(1), second)
        cuda.cuMemcpyDtoHAsync_v2(target, c_uint64(pointer), c_size_t(4), second)
        cuda.cuStreamSynchronize(second)
        done.set()
        cuda.cuStreamSynchronize(first)
        return target.value, let_go

    assert machine.run(work) == (b"x!z", [True])


def test_stream_memory_operations_wait_and_write(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cuda = Cuda()
        flag, waiting, writing = cuda.malloc(8), cuda.stream(1), cuda.stream(1)
        cuda.cuStreamWaitValue32(waiting, c_uint64(flag), c_uint32(5), 0)
        cuda.spin(MS, waiting)
        time.sleep(0.02)
        before = cuda.code("cuStreamQuery", waiting)
        cuda.spin(5 * MS, writing)
        cuda.cuStreamWriteValue32_v2(writing, c_uint64(flag), c_uint32(7), 0)
        cuda.cuStreamSynchronize(waiting)
        value = c_uint32()
        cuda.cuMemcpyDtoH_v2(byref(value), c_uint64(flag), c_size_t(4))
        return before, cuda.code("cuStreamQuery", writing), value.value

    assert machine.run(work) == (NOT_READY, 0, 7)


def test_more_streams_than_queues_still_work(machine: Machine) -> None:
    def work() -> int:
        cuda = Cuda()
        streams = [cuda.stream(1) for _ in range(150)]
        for stream in streams:
            cuda.spin(20_000, stream)
        cuda.cuCtxSynchronize()
        for stream in streams:
            cuda.cuStreamDestroy_v2(stream)
        return cuda.code("cuStreamQuery", streams[0])

    child = machine.start(work)
    assert child.value() == INVALID_HANDLE
    assert machine.timeline.busy()[1][child.pid] == 150 * 20_000


def test_launches_of_many_threads_all_run(machine: Machine) -> None:
    def work() -> float:
        cuda = Cuda()

        def thread(stream: c_void_p | None) -> None:
            cuda.cuCtxSetCurrent(cuda.ctx)
            for _ in range(200):
                cuda.spin(10_000, stream)

        streams = [None, None, PER_THREAD, PER_THREAD, cuda.stream(), cuda.stream(), cuda.stream(1)]
        threads = [threading.Thread(target=thread, args=(stream,)) for stream in streams]
        return timed_ms(lambda: ([t.start() for t in threads], [t.join() for t in threads], cuda.cuCtxSynchronize()))

    child = machine.start(work)
    assert child.value() >= 14
    assert machine.timeline.busy()[1][child.pid] == 7 * 200 * 10_000


@pytest.mark.flaky(reruns=4)
def test_work_outlives_its_stream_and_the_context_waits_for_it(machine: Machine) -> None:
    def work() -> float:
        cuda = Cuda()
        stream = cuda.stream(1)
        cuda.spin(20 * MS, stream)
        cuda.cuStreamDestroy_v2(stream)
        return timed_ms(cuda.cuCtxSynchronize)

    child = machine.start(work)
    assert child.value() > 15
    assert machine.timeline.busy()[1][child.pid] == 20 * MS
