"""Stream capture: what goes in, what it forbids, and how it ends."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import pytest

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import GLOBAL, MS, RELAXED, THREAD_LOCAL, Cuda, CudaError

ILLEGAL_STATE = 401
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = range(
    900, 909
)
NONE, ACTIVE, BROKEN = 0, 1, 2


def begin(cuda: Cuda, mode: int = GLOBAL, flags: int = 1) -> c_void_p:
    stream = cuda.stream(flags)
    cuda.cuStreamBeginCapture_v2(stream, mode)
    return stream


def end(cuda: Cuda, stream: c_void_p) -> c_void_p:
    graph = c_void_p()
    cuda.cuStreamEndCapture(stream, byref(graph))
    return graph


def end_code(cuda: Cuda, stream: c_void_p) -> int:
    return cuda.code("cuStreamEndCapture", stream, byref(c_void_p()))


def in_thread(cuda: Cuda, work: Callable[[], Any]) -> Any:
    box: list[Any] = []

    def run() -> None:
        cuda.cuCtxSetCurrent(cuda.ctx)
        try:
            box.append(work())
        except CudaError as error:
            box.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return box[0]


def test_captured_work_runs_at_each_launch_of_the_graph_and_not_before(machine: Machine) -> None:
    def work() -> int:
        cuda = Cuda()
        stream, graph_exec = begin(cuda), c_void_p()
        for _ in range(5):
            cuda.spin(MS, stream)
        graph = end(cuda, stream)
        cuda.cuGraphInstantiateWithFlags(byref(graph_exec), graph, c_uint64(0))
        cuda.cuGraphDestroy(graph)
        for _ in range(3):
            cuda.cuGraphLaunch(graph_exec, stream)
        cuda.cuStreamSynchronize(stream)
        return cuda.code("cuGraphExecDestroy", graph_exec)

    child = machine.start(work)
    assert child.value() == 0
    assert machine.timeline.busy()[1][child.pid] == 15 * MS
    assert sum(s.kernels for s in machine.timeline.segments()[1]) == 15


def test_streams_fork_and_join_by_events(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cuda = Cuda()
        origin, other, fork, join = begin(cuda), cuda.stream(1), cuda.event(), cuda.event()
        cuda.spin(MS, origin)
        cuda.cuEventRecord(fork, origin)
        cuda.cuStreamWaitEvent(other, fork, 0)
        cuda.spin(MS, other)
        cuda.spin(MS, origin)
        during = cuda.capturing(other)
        cuda.cuEventRecord(join, other)
        cuda.cuStreamWaitEvent(origin, join, 0)
        graph, edges = end(cuda, origin), c_size_t()
        cuda.cuGraphGetEdges(graph, None, None, byref(edges))
        return during, edges.value, cuda.capturing(other)

    assert machine.run(work) == (ACTIVE, 2, NONE)


def test_a_stream_that_was_not_joined_spoils_the_capture(machine: Machine) -> None:
    def work() -> tuple[int, int]:
        cuda = Cuda()
        origin, other, fork = begin(cuda), cuda.stream(1), cuda.event()
        cuda.spin(MS, origin)
        cuda.cuEventRecord(fork, origin)
        cuda.cuStreamWaitEvent(other, fork, 0)
        cuda.spin(MS, other)
        return end_code(cuda, origin), cuda.capturing(other)

    assert machine.run(work) == (UNJOINED, NONE)


UNSAFE: dict[str, Callable[[Cuda], int]] = {
    "cuMemAlloc": lambda cuda: cuda.code("cuMemAlloc_v2", byref(c_uint64()), c_size_t(16)),
    "cuMemFree": lambda cuda: cuda.code("cuMemFree_v2", c_uint64(cuda.pointer)),
    "cuEventQuery": lambda cuda: cuda.code("cuEventQuery", cuda.plain),
    "cuStreamQuery": lambda cuda: cuda.code("cuStreamQuery", cuda.idle),
    "cuStreamSynchronize": lambda cuda: cuda.code("cuStreamSynchronize", cuda.idle),
    "cuCtxSynchronize": lambda cuda: cuda.code("cuCtxSynchronize"),
    "cuMemcpyDtoH": lambda cuda: cuda.code("cuMemcpyDtoH_v2", byref(c_uint64()), c_uint64(cuda.pointer), c_size_t(8)),
}


def prepared() -> Cuda:
    cuda = Cuda()
    cuda.pointer, cuda.plain, cuda.idle = cuda.malloc(64), cuda.event(), cuda.stream(1)
    cuda.cuEventRecord(cuda.plain, cuda.idle)
    cuda.cuCtxSynchronize()
    return cuda


@pytest.mark.parametrize("name", sorted(UNSAFE))
def test_unsafe_calls_fail_and_spoil_a_global_capture_from_any_thread(machine: Machine, name: str) -> None:
    def work(elsewhere: bool) -> tuple[int, int, int]:
        cuda = prepared()
        stream = begin(cuda, GLOBAL)
        call = lambda: UNSAFE[name](cuda)  # noqa: E731
        code = in_thread(cuda, call) if elsewhere else call()
        return code, cuda.capturing(stream), end_code(cuda, stream)

    assert machine.run(work, False) == (UNSUPPORTED, BROKEN, INVALIDATED)
    assert machine.run(work, True) == (UNSUPPORTED, BROKEN, INVALIDATED)


@pytest.mark.parametrize("name", sorted(set(UNSAFE) - {"cuCtxSynchronize"}))
def test_modes_and_their_exchange_allow_unsafe_calls(machine: Machine, name: str) -> None:
    def relaxed_thread(cuda: Cuda) -> int:
        mode = c_int(RELAXED)
        cuda.cuThreadExchangeStreamCaptureMode(byref(mode))
        assert mode.value == GLOBAL
        return UNSAFE[name](cuda)

    def work(mode: int) -> tuple[int, int]:
        cuda = prepared()
        stream = begin(cuda, mode)
        cuda.spin(MS, stream)
        call = relaxed_thread if mode == GLOBAL else UNSAFE[name]
        code = call(cuda) if mode == RELAXED else in_thread(cuda, lambda: call(cuda))
        return code, end_code(cuda, stream)

    for mode in (GLOBAL, THREAD_LOCAL, RELAXED):
        assert machine.run(work, mode) == (0, 0)


def test_the_legacy_stream_must_not_be_used_beside_a_blocking_capture(machine: Machine) -> None:
    def work(flags: int) -> tuple[int, int]:
        cuda = Cuda()
        stream = begin(cuda, RELAXED, flags)
        cuda.spin(MS, stream)
        try:
            cuda.spin(MS)
            code = 0
        except CudaError as error:
            code = error.code
        return code, end_code(cuda, stream)

    assert machine.run(work, 0) == (IMPLICIT, INVALIDATED)
    assert machine.run(work, 1) == (0, 0)


def test_captured_events_cannot_be_asked(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cuda = Cuda()
        stream, event = begin(cuda, RELAXED), cuda.event()
        cuda.cuEventRecord(event, stream)
        code = cuda.code("cuEventQuery", event)
        ended = end_code(cuda, stream)
        cuda.cuEventRecord(event, None)
        cuda.cuEventSynchronize(event)
        return code, ended, cuda.code("cuEventQuery", event)

    assert machine.run(work) == (CAPTURED_EVENT, INVALIDATED, 0)


def test_waiting_for_work_outside_breaks_isolation_and_two_captures_do_not_merge(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        outside, event = cuda.stream(1), cuda.event()
        cuda.cuEventRecord(event, outside)
        stream = begin(cuda, RELAXED)
        codes = [cuda.code("cuStreamWaitEvent", stream, event, 0), end_code(cuda, stream)]
        one, two = begin(cuda, RELAXED), begin(cuda, RELAXED)
        cuda.cuEventRecord(event, one)
        codes += [cuda.code("cuStreamWaitEvent", two, event, 0), end_code(cuda, one), end_code(cuda, two)]
        return codes

    assert machine.run(work) == [ISOLATION, INVALIDATED, MERGE, INVALIDATED, INVALIDATED]


def test_captures_begin_and_end_where_they_may(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        stream, other, fork = begin(cuda, THREAD_LOCAL), cuda.stream(1), cuda.event()
        codes = [
            cuda.code("cuStreamBeginCapture_v2", None, GLOBAL),
            cuda.code("cuStreamBeginCapture_v2", stream, GLOBAL),
            end_code(cuda, other),
            in_thread(cuda, lambda: end_code(cuda, stream)),
            end_code(cuda, stream),
        ]
        stream = begin(cuda, RELAXED)
        cuda.cuEventRecord(fork, stream)
        cuda.cuStreamWaitEvent(other, fork, 0)
        codes += [end_code(cuda, other), end_code(cuda, stream)]
        stream = begin(cuda, RELAXED)
        codes += [in_thread(cuda, lambda: end_code(cuda, stream))]
        return codes

    assert machine.run(work) == [
        UNSUPPORTED,
        ILLEGAL_STATE,
        ILLEGAL_STATE,
        WRONG_THREAD,
        INVALIDATED,
        UNMATCHED,
        INVALIDATED,
        0,
    ]


def test_capture_info_tells_id_graph_and_dependencies(machine: Machine) -> None:
    def work() -> tuple[bool, int, int]:
        cuda = Cuda()
        stream = begin(cuda)
        cuda.spin(MS, stream)
        status, identity, graph, nodes, count = c_int(), c_uint64(), c_void_p(), c_void_p(), c_size_t()
        cuda.cuStreamGetCaptureInfo_v2(stream, byref(status), byref(identity), byref(graph), byref(nodes), byref(count))
        made = end(cuda, stream)
        return made.value == graph.value, status.value, count.value

    assert machine.run(work) == (True, ACTIVE, 1)


def test_allocations_and_frees_are_captured_as_nodes(machine: Machine) -> None:
    def work() -> int:
        cuda = Cuda()
        stream, pointer, count = begin(cuda), c_uint64(), c_size_t()
        cuda.cuMemAllocAsync(byref(pointer), c_size_t(1 << 20), stream)
        cuda.cuMemsetD8Async(pointer, 1, c_size_t(1 << 20), stream)
        cuda.cuMemFreeAsync(pointer, stream)
        cuda.cuGraphGetNodes(end(cuda, stream), None, byref(count))
        return count.value

    assert machine.run(work) == 3


def test_the_virtual_memory_api_spoils_no_capture(machine: Machine) -> None:
    """PyTorch's expandable segments grow in the middle of captures."""

    def work() -> int:
        cuda = Cuda()
        stream, handle, pointer = cuda.stream(1), c_uint64(), c_uint64()
        prop = (ctypes.c_int * 8)(1, 0, 1, 0)  # pinned, no handle, on device 0
        access = (ctypes.c_int * 3)(1, 0, 3)
        cuda.cuStreamBeginCapture_v2(stream, GLOBAL)
        size = c_size_t(2 << 20)
        cuda.cuMemAddressReserve(byref(pointer), size, c_size_t(0), c_uint64(0), c_uint64(0))
        cuda.cuMemCreate(byref(handle), size, byref(prop), c_uint64(0))
        cuda.cuMemMap(pointer, size, c_size_t(0), handle, c_uint64(0))
        cuda.cuMemSetAccess(pointer, size, byref(access), c_size_t(1))
        cuda.spin(MS, stream)
        return end_code(cuda, stream)

    assert machine.run(work) == 0
