"""Kernels of one process's streams run beside each other while their blocks fit, where that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_uint64, c_void_p

import pytest

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import MS, Cuda

BLOCKS = 32 * 132  # of one thread, that fit at once


def busy_ms(machine: Machine, *launches: tuple[int, int, int]) -> float:
    """How long the card worked for launches of (stream, blocks, milliseconds)."""

    def work() -> None:
        cuda = Cuda()
        streams = [cuda.stream(1) for _ in range(8)]
        gate = cuda.event()
        cuda.spin(5 * MS, streams[7])  # lest one begins before all are there
        cuda.cuEventRecord(gate, streams[7])
        for number, blocks, ms in launches:
            cuda.cuStreamWaitEvent(streams[number], gate, 0)
            length = c_uint64(ms * MS)
            arguments = (c_void_p * 1)(addressof(length))
            cuda.cuLaunchKernel(cuda.spin_function, blocks, 1, 1, 1, 1, 1, 0, streams[number], arguments, None)
        cuda.cuCtxSynchronize()

    child = machine.start(work)
    child.value()
    kernels = sum(segment.kernels for segment in machine.timeline.segments()[1])
    assert kernels == len(launches) + 1
    return machine.timeline.busy()[1][child.pid] / MS - 5


@pytest.mark.parametrize(
    ("options", "launches", "expected"),
    [
        ("", [(0, 1, 10), (1, 1, 10), (2, 1, 10)], 30),
        ("overlap=on", [(0, 1, 10), (1, 1, 10), (2, 1, 10)], 10),
        ("overlap=on", [(0, 1, 10), (0, 1, 10)], 20),  # of one stream
        ("overlap=on", [(0, BLOCKS, 10), (1, 1, 10)], 20),  # there is no room
        ("overlap=on", [(0, BLOCKS // 2, 10), (1, BLOCKS // 2, 6)], 10),
        ("overlap=on", [(0, BLOCKS // 2, 10), (1, BLOCKS, 10), (2, 1, 10)], 30),  # who came before goes before
        ("profile=h200,load=0", [(0, 1, 10), (1, 1, 10)], 10),
        ("profile=h200,load=0,overlap=off", [(0, 1, 10), (1, 1, 10)], 20),
    ],
)
def test_streams_overlap_while_their_blocks_fit(
    make_machine: Callable[[str], Machine], options: str, launches: list[tuple[int, int, int]], expected: float
) -> None:
    assert busy_ms(make_machine(options), *launches) == pytest.approx(expected, abs=0.2)


def test_what_runs_beside_each_other_gives_way_together_and_goes_on(make_machine: Callable[[str], Machine]) -> None:
    """Two processes with two streams each: the slices of each are for both of its streams."""
    machine = make_machine("overlap=on,switch=0,drained=0")

    def work(lengths: int) -> None:
        cuda = Cuda()
        streams = [cuda.stream(1) for _ in range(2)]
        for _ in range(lengths):
            for stream in streams:
                cuda.spin(20 * MS, stream)
        cuda.cuCtxSynchronize()

    children = [machine.start(work, 5) for _ in range(2)]
    for child in children:
        child.value()
    busy = machine.timeline.busy()[1]
    for child in children:
        assert 100 * MS <= busy[child.pid] < 110 * MS  # a stream may begin a little behind the other
