"""Who gets the card and for how long: the heart of the model, seen by the observer."""

from __future__ import annotations

import os
import signal
import time
from ctypes import byref, c_uint32, c_uint64

import pytest

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import MS, Cuda, CudaError, timed_ms


def busy_of(machine: Machine, pid: int, device: int = 0) -> int:
    return machine.timeline.busy(device)[1].get(pid, 0)


def keep_busy(seconds: float, ns: int = MS // 10, device: int = 0) -> None:
    cuda = Cuda(device=device)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cuda.spin(ns)
    os._exit(0)


def wait_until_busy(machine: Machine, *pids: int) -> None:
    deadline = time.monotonic() + 60
    while any(busy_of(machine, pid) < 2 * MS for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def shares(machine: Machine, seconds: float) -> dict[int, float]:
    start, before = machine.timeline.busy()
    time.sleep(seconds)
    end, after = machine.timeline.busy()
    return {pid: (after[pid] - before.get(pid, 0)) / (end - start) for pid in after}


def test_kernels_of_one_stream_follow_one_another_and_busy_is_their_exact_sum(machine: Machine) -> None:
    def work() -> float:
        cuda = Cuda()
        took = timed_ms(lambda: ([cuda.spin(MS + 7) for _ in range(10)], cuda.cuCtxSynchronize()))
        assert took >= 10
        return took

    child = machine.start(work)
    child.value()
    assert busy_of(machine, child.pid) == 10 * (MS + 7)
    _, segments = machine.timeline.segments()
    assert sum(s.end_ns - s.start_ns for s in segments) == 10 * (MS + 7)
    assert sum(s.kernels for s in segments) == 10
    assert {s.pid for s in segments} == {child.pid}


@pytest.mark.flaky(reruns=4)
def test_two_busy_processes_are_sliced_at_the_cost_of_switches(machine: Machine) -> None:
    first, second = machine.start(keep_busy, 60.0), machine.start(keep_busy, 60.0)
    wait_until_busy(machine, first.pid, second.pid)
    switches = machine.timeline.switches()
    part = shares(machine, 1.0)
    switches = machine.timeline.switches() - switches
    expected = 1024 / (1024 + 50) / 2
    assert part[first.pid] == pytest.approx(expected, abs=0.01)
    assert part[second.pid] == pytest.approx(expected, abs=0.01)
    assert switches == pytest.approx(1e6 / (1024 + 50), rel=0.15)


@pytest.mark.flaky(reruns=4)
def test_kernels_are_preempted_at_the_end_of_a_slice(machine: Machine) -> None:
    long, short = machine.start(keep_busy, 60.0, 200 * MS), machine.start(keep_busy, 60.0, MS // 10)
    wait_until_busy(machine, long.pid, short.pid)
    part = shares(machine, 0.5)
    assert part[long.pid] == pytest.approx(part[short.pid], abs=0.02)
    assert 0.93 < part[long.pid] + part[short.pid] < 0.97


@pytest.mark.flaky(reruns=4)
def test_one_process_alone_pays_for_no_switch(machine: Machine) -> None:
    child = machine.start(keep_busy, 60.0)
    wait_until_busy(machine, child.pid)
    switches = machine.timeline.switches()
    assert shares(machine, 0.3)[child.pid] == pytest.approx(1.0, abs=1e-6)
    assert machine.timeline.switches() == switches


def test_a_drained_switch_costs_its_own_time(make_machine) -> None:  # type: ignore[no-untyped-def]
    machine = make_machine("drained=3ms")

    def work() -> int:
        cuda = Cuda()
        cuda.spin(1000)
        cuda.cuCtxSynchronize()
        return time.monotonic_ns()

    machine.run(work)
    start = time.monotonic_ns()
    machine.run(work)
    _, segments = machine.timeline.segments()
    assert segments[-1].start_ns - start >= 3 * MS
    assert machine.timeline.switches() == 2


@pytest.mark.flaky(reruns=4)
def test_a_full_queue_blocks_the_launcher(machine: Machine) -> None:
    def work() -> tuple[float, float]:
        cuda = Cuda()
        fills = timed_ms(lambda: [cuda.spin(MS // 10) for _ in range(1024)])
        waits = timed_ms(lambda: [cuda.spin(MS // 10) for _ in range(500)])
        return fills, waits

    fills, waits = machine.run(work)
    assert fills < 90  # of 102 ms of work
    assert fills + waits > 45  # of 152 ms of work 102 fit into the queue: that long for room


@pytest.mark.flaky(reruns=4)
def test_a_killed_process_gives_back_its_memory_and_its_queue(machine: Machine) -> None:
    def hold() -> None:
        cuda = Cuda()
        cuda.malloc(512 << 20)
        for _ in range(100):
            cuda.spin(100 * MS)
        time.sleep(600)

    def use() -> float:
        cuda = Cuda()
        cuda.malloc(700 << 20)
        return timed_ms(lambda: (cuda.spin(MS), cuda.cuCtxSynchronize()))

    holder = machine.start(hold)
    wait_until_busy(machine, holder.pid)
    assert machine.timeline.memory()[holder.pid] == (512 << 20) + (32 << 20)
    os.kill(holder.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while holder.pid in machine.timeline.memory():
        assert time.monotonic() < deadline
    assert machine.run(use) < 50
    assert busy_of(machine, holder.pid) > 0  # what it used stays in the books


@pytest.mark.flaky(reruns=4)
def test_a_waiter_notices_within_milliseconds_that_the_other_died(machine: Machine) -> None:
    def hold() -> None:
        cuda = Cuda()
        cuda.spin(60_000 * MS)
        time.sleep(600)

    def wait(kernels: int) -> int:
        cuda = Cuda()
        for _ in range(kernels):
            cuda.spin(10 * MS)
        cuda.cuCtxSynchronize()
        return time.monotonic_ns()

    holder = machine.start(hold)
    wait_until_busy(machine, holder.pid)
    waiter = machine.start(wait, 20)  # 200 ms alone, over 400 ms beside the other
    wait_until_busy(machine, waiter.pid)
    os.kill(holder.pid, signal.SIGKILL)
    killed = time.monotonic_ns()
    assert waiter.value() - killed < 300 * MS


@pytest.mark.flaky(reruns=4)
def test_a_stopped_launcher_does_not_stop_the_others(machine: Machine) -> None:
    stopped, other = machine.start(keep_busy, 60.0, 2000), machine.start(keep_busy, 60.0)
    wait_until_busy(machine, stopped.pid, other.pid)
    for _ in range(20):  # each time at another instruction
        os.kill(stopped.pid, signal.SIGSTOP)
        time.sleep(0.015)  # what it had queued is at most 2 ms
        before = busy_of(machine, other.pid)
        time.sleep(0.01)
        assert busy_of(machine, other.pid) - before > 8 * MS
        os.kill(stopped.pid, signal.SIGCONT)
        time.sleep(0.003)


@pytest.mark.flaky(reruns=4)
def test_copies_run_beside_kernels_on_engines_of_their_own(make_machine) -> None:  # type: ignore[no-untyped-def]
    machine = make_machine("memory=1GiB,host_bandwidth=1GB")

    def work() -> float:
        cuda = Cuda()
        pointer, host = cuda.malloc(10_000_000), bytes(10_000_000)
        up, down = cuda.stream(1), cuda.stream(1)
        cuda.spin(10 * MS, cuda.stream(1))
        cuda.cuMemcpyHtoDAsync_v2(c_uint64(pointer), host, 10_000_000, up)
        cuda.cuMemcpyDtoHAsync_v2(host, c_uint64(pointer), 10_000_000, down)
        return timed_ms(cuda.cuCtxSynchronize)

    child = machine.start(work)
    assert child.value() < 25
    assert busy_of(machine, child.pid) == 10 * MS
    to_device, to_host = machine.timeline.copies()[1][child.pid]
    assert to_device == pytest.approx(10 * MS, rel=0.01)
    assert to_host == pytest.approx(10 * MS, rel=0.01)


@pytest.mark.flaky(reruns=4)
def test_streams_of_one_process_run_one_kernel_at_a_time_in_order_of_readiness(machine: Machine) -> None:
    def work() -> list[float]:
        cuda = Cuda()
        streams = [cuda.stream(1) for _ in range(3)]
        start, ends = cuda.event(), [cuda.event() for _ in streams]
        cuda.cuEventRecord(start, streams[0])
        for stream, end in zip(streams, ends, strict=True):
            cuda.spin(2 * MS, stream)
            cuda.cuEventRecord(end, stream)
        cuda.cuCtxSynchronize()
        return [cuda.elapsed_ms(start, end) for end in ends]

    first, second, third = machine.run(work)
    assert first >= 2
    assert [second - first, third - second] == pytest.approx([2, 2], abs=0.01)


@pytest.mark.flaky(reruns=4)
def test_a_collective_waits_for_its_peers_on_the_other_cards(make_machine) -> None:  # type: ignore[no-untyped-def]
    machine = make_machine("gpus=2")

    def rank(device: int, delay: float) -> tuple[int, int]:
        cuda = Cuda(device=device)
        time.sleep(delay)
        start = time.monotonic_ns()
        cuda.launch(cuda.function("gemini_collective"), c_uint64(5 * MS), c_uint64(77), c_uint32(2))
        cuda.cuCtxSynchronize()
        return start, time.monotonic_ns()

    early, late = machine.start(rank, 0, 0.0), machine.start(rank, 1, 0.1)
    (start0, end0), (start1, end1) = early.value(), late.value()
    assert end0 - max(start0, start1) >= 5 * MS
    assert end1 - start1 < 30 * MS
    assert busy_of(machine, early.pid, 0) >= 5 * MS + (start1 - start0) * 0.9  # it held its card all the time


def test_a_forked_child_has_no_driver_until_it_starts_its_own(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cuda = Cuda()
        pointer = cuda.malloc(1 << 20)
        read, write = os.pipe()
        if os.fork() == 0:
            before = cuda.code("cuCtxSynchronize")
            again = Cuda()
            again.spin(MS)
            again.cuCtxSynchronize()
            os.write(write, bytes([before, again.code("cuMemFree_v2", c_uint64(pointer))]))
            os._exit(0)
        before, freed = os.read(read, 2)
        cuda.cuMemFree_v2(c_uint64(pointer))
        return before, freed, cuda.code("cuCtxSynchronize")

    assert machine.run(work) == (3, 1, 0)


def test_the_spec_is_checked(make_machine) -> None:  # type: ignore[no-untyped-def]
    for bad in ("gpus=0", "gpus=17", "memory=lots", "colour=red", "gpus"):
        with pytest.raises(OSError, match="GEMINI_SIM"):
            make_machine(bad)


def test_cards_are_chosen_and_ordered_by_cuda_visible_devices(make_machine) -> None:  # type: ignore[no-untyped-def]
    machine = make_machine("gpus=3")
    uuids = [device.uuid for device in machine.timeline.devices()]

    def work(visible: str) -> list[str]:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        cuda = Cuda(bare=True)
        code = cuda.code("cuInit", 0)
        if code:
            raise CudaError("cuInit", code)
        count, found = c_uint32(), []
        cuda.cuDeviceGetCount(byref(count))
        for i in range(count.value):
            raw = (c_uint64 * 2)()
            cuda.cuDeviceGetUuid_v2(raw, i)
            found.append(bytes(raw).hex())
        return found

    hexed = [uuid.removeprefix("GPU-").replace("-", "") for uuid in uuids]
    assert machine.run(work, "2,0") == [hexed[2], hexed[0]]
    assert machine.run(work, f"{uuids[1][:12]},7,0") == [hexed[1]]
    with pytest.raises(CudaError, match=r"cuInit.*100"):
        machine.run(work, "-1")
