"""The simulated NVML, asked by NVIDIA's own Python binding in processes of their own, as any monitor would.

Each test has a machine of its own. Programs run with the folder of the simulated libraries in LD_LIBRARY_PATH and print
JSON. What NVML says of time and memory is held against the machine's own record and against the simulated driver.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libhook.observer import Timeline

ROOT = Path(__file__).parents[3]
SIM = ROOT / "libhook" / "lib" / "sim"
LOAD = ROOT / "libhook" / "lib" / "gemini-load"
GIB = 1 << 30

START = """
import ctypes, json, os, sys, time
import pynvml as n
lib = ctypes.CDLL("libnvidia-ml.so.1")
def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)
def refused(function, *arguments):
    try:
        function(*arguments)
    except n.NVMLError as error:
        return error.value
"""


class Machine:
    """One simulated machine, and the processes that run on it."""

    def __init__(self, spec: str) -> None:
        self.id = f"nvml-{uuid.uuid4().hex[:8]}"
        self.environment = {
            **os.environ,
            "GEMINI_SIM": f"{spec},id={self.id}" if spec else f"id={self.id}",
            "LD_LIBRARY_PATH": str(SIM),
        }
        self.children: list[subprocess.Popen[bytes]] = []

    def ask(self, program: str) -> Any:
        """Run `program` after START, with `n` for pynvml; it prints JSON."""
        command = [sys.executable, "-c", START + program]
        run = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    def load(self, *arguments: str, card: int = 0, **more: str) -> int:
        """A process that keeps a card busy till the end of the test, with `more` in its environment; its pid."""
        command = [str(LOAD), "--seconds", "600", "--device", str(card), *arguments]
        child = subprocess.Popen(command, env={**self.environment, **more}, stdout=subprocess.DEVNULL)
        self.children.append(child)
        return child.pid

    def end(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
        for path in Path("/dev/shm").glob(f"gemini-sim-*-{self.id}*"):
            path.unlink()


@pytest.fixture
def machine() -> Iterator[Callable[[str], Machine]]:
    made: list[Machine] = []

    def make(spec: str = "") -> Machine:
        made.append(Machine(spec))
        return made[-1]

    yield make
    for each in made:
        each.end()


def table() -> list[str]:
    text = (ROOT / "libhook" / "driver" / "nvml_hooks.h").read_text()
    return re.findall(r"^(?:HOOK|PASS)\((nvml\w+)", text, re.M)


def test_it_exports_the_functions_of_the_table_and_no_others() -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(SIM / "libnvidia-ml.so.1")], capture_output=True, text=True, check=True
    )
    exports = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert exports == {*table(), "nvmlErrorString"}


def test_every_function_refuses_before_the_start_and_without_its_arguments(machine: Callable[[str], Machine]) -> None:
    """NVML says UNINITIALIZED (1) before nvmlInit and INVALID_ARGUMENT (2) for NULL where it writes to."""
    functions = [name for name in table() if not re.match(r"nvml(Init|Shutdown)", name)]
    answers = machine("").ask(
        f"functions = {functions!r}"
        + """
def call(name, *first):
    return getattr(lib, name)(*first, *[ctypes.c_void_p(0)] * (8 - len(first)))
before = {f: call(f) for f in functions}
assert lib.nvmlShutdown() == 1
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
nothing = {f: call(f) for f in functions}
of_device = [f for f in functions if f.startswith("nvmlDevice") and "HandleBy" not in f and "GetCount" not in f]
no_room = {f: call(f, device) for f in of_device}
stranger = {f: call(f, ctypes.c_void_p(0x1000)) for f in of_device}
n.nvmlShutdown()
print(json.dumps([before, nothing, no_room, stranger, call("nvmlDeviceGetCount_v2")]))
"""
    )
    before, nothing, no_room, stranger, after = answers
    assert {name for name, code in before.items() if code != 1} == set()
    assert {name for name, code in nothing.items() if code != 2} == set()
    assert {name for name, code in no_room.items() if code != 2} == set()
    assert {name for name, code in stranger.items() if code != 2} == set()
    assert after == 1


def test_starts_are_counted(machine: Callable[[str], Machine]) -> None:
    assert machine("gpus=3").ask("""
n.nvmlInit(); n.nvmlInitWithFlags(n.NVML_INIT_FLAG_NO_GPUS); n.nvmlShutdown()
count = n.nvmlDeviceGetCount()
n.nvmlShutdown()
out = [count, refused(n.nvmlDeviceGetCount), refused(n.nvmlShutdown), refused(n.nvmlInitWithFlags, 64)]
n.nvmlInit()
print(json.dumps([*out, n.nvmlDeviceGetCount()]))
""") == [3, 1, 1, 2, 3]


def test_a_bad_machine_is_a_driver_that_is_not_loaded(machine: Callable[[str], Machine]) -> None:
    assert machine("gpus=none").ask("print(json.dumps(refused(n.nvmlInit)))") == 9


def test_cards_are_who_the_driver_says_they_are(machine: Callable[[str], Machine]) -> None:
    cards = machine("gpus=3,memory=40GiB,name=NVIDIA A, B,driver=12.8").ask("""
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
n.nvmlInit()
def of_cuda(i):
    uuid, name, bus = (ctypes.create_string_buffer(k) for k in (16, 64, 32))
    memory, value = ctypes.c_size_t(), ctypes.c_int()
    cuda.cuDeviceGetUuid_v2(uuid, i); cuda.cuDeviceGetName(name, 64, i); cuda.cuDeviceGetPCIBusId(bus, 32, i)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), i)
    def attribute(k):
        assert cuda.cuDeviceGetAttribute(ctypes.byref(value), k, i) == 0
        return value.value
    u = uuid.raw.hex()
    return ["GPU-" + "-".join((u[:8], u[8:12], u[12:16], u[16:20], u[20:])), name.value.decode(), bus.value.decode(),
            memory.value, attribute(37), attribute(36), attribute(13), attribute(16) * 128, attribute(32),
            [attribute(75), attribute(76)]]
def of_nvml(i):
    h = n.nvmlDeviceGetHandleByIndex(i)
    return [n.nvmlDeviceGetUUID(h), n.nvmlDeviceGetName(h), n.nvmlDeviceGetPciInfo(h).busIdLegacy,
            n.nvmlDeviceGetMemoryInfo(h).total, n.nvmlDeviceGetMemoryBusWidth(h),
            n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_MEM) * 1000, n.nvmlDeviceGetMaxClockInfo(h, 1) * 1000,
            n.nvmlDeviceGetNumGpuCores(h), n.nvmlDeviceGetEccMode(h)[0],
            list(n.nvmlDeviceGetCudaComputeCapability(h))]
version = ctypes.c_int()
cuda.cuDriverGetVersion(ctypes.byref(version))
assert n.nvmlSystemGetCudaDriverVersion() == n.nvmlSystemGetCudaDriverVersion_v2() == version.value == 12080
assert n.nvmlSystemGetNVMLVersion() == "12." + n.nvmlSystemGetDriverVersion()
print(json.dumps([[of_cuda(i), of_nvml(i)] for i in range(3)]))
""")
    for by_cuda, by_nvml in cards:
        assert by_nvml == by_cuda
    assert cards[0][0][1] == "NVIDIA A, B"
    assert len({card[0] for card, _ in cards}) == 3


def test_a_card_is_found_by_each_of_its_names(machine: Callable[[str], Machine]) -> None:
    answers = machine("gpus=2").ask("""
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(1)
def index(handle):
    return n.nvmlDeviceGetIndex(handle)
pci = n.nvmlDeviceGetPciInfo(h)
found = [index(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h))),
         index(n.nvmlDeviceGetHandleBySerial(n.nvmlDeviceGetSerial(h))),
         index(n.nvmlDeviceGetHandleByPciBusId(pci.busId)), index(n.nvmlDeviceGetHandleByPciBusId(pci.busIdLegacy)),
         index(n.nvmlDeviceGetHandleByPciBusId("02:00.0")), n.nvmlDeviceGetMinorNumber(h), pci.bus - 1]
missed = [refused(n.nvmlDeviceGetHandleByIndex, 2), refused(n.nvmlDeviceGetHandleByUUID, "GPU-0"),
          refused(n.nvmlDeviceGetHandleBySerial, "1"), refused(n.nvmlDeviceGetHandleByPciBusId, "0000:03:00.0"),
          refused(n.nvmlDeviceGetHandleByPciBusId, "here")]
small = ctypes.create_string_buffer(10)
print(json.dumps([found, missed, lib.nvmlDeviceGetName(h, small, 10)]))
""")
    assert answers == [[1] * 7, [2, 6, 6, 6, 2], 7]


def test_older_callers_of_the_pci_info_are_not_written_past_their_end(machine: Callable[[str], Machine]) -> None:
    assert machine("").ask("""
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
lengths = []
for function in (lib.nvmlDeviceGetPciInfo, lib.nvmlDeviceGetPciInfo_v2, lib.nvmlDeviceGetPciInfo_v3):
    room = ctypes.create_string_buffer(b"\\xee" * 100, 100)
    assert function(h, room) == 0
    lengths.append(len(room.raw.rstrip(b"\\xee")))
print(json.dumps(lengths))
""") == [32, 36, 68]


def test_an_idle_machine_has_no_processes_and_looking_makes_none(machine: Callable[[str], Machine]) -> None:
    assert machine("memory=80GiB").ask("""
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
u = n.nvmlDeviceGetUtilizationRates(h)
lists = [n.nvmlDeviceGetComputeRunningProcesses(h), n.nvmlDeviceGetComputeRunningProcesses_v2(h),
         n.nvmlDeviceGetGraphicsRunningProcesses(h), n.nvmlDeviceGetMPSComputeRunningProcesses(h)]
m = n.nvmlDeviceGetMemoryInfo(h)
print(json.dumps([lists, m.used, m.free, u.gpu, refused(n.nvmlDeviceGetProcessUtilization, h, 0),
                  n.nvmlDeviceGetCurrentClocksEventReasons(h)]))
""") == [[[], [], [], []], 0, 80 * GIB, 0, 6, 1]


def test_processes_show_with_their_memory_and_are_gone_when_killed(machine: Callable[[str], Machine]) -> None:
    cards = machine("gpus=2,memory=80GiB,context=64MiB")
    pids = [cards.load("--alloc", str(GIB)), cards.load("--alloc", str(2 * GIB)), cards.load(card=1)]
    answers = cards.ask(
        f"pids = {pids!r}"
        + """
import signal
n.nvmlInit()
first, second = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
def processes(h):
    return sorted((p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(h))
until(lambda: sum(size for _, size in processes(first)) >= (3 << 30) + (128 << 20) and processes(second))
class V1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong)]
count, infos = ctypes.c_uint(1), (V1 * 2)()
short = lib.nvmlDeviceGetComputeRunningProcesses(first, ctypes.byref(count), infos)
assert (short, count.value) == (7, 2), "not enough room: the count that is needed"
assert lib.nvmlDeviceGetComputeRunningProcesses(first, ctypes.byref(count), infos) == 0
assert sorted((v.pid, v.bytes) for v in infos) == processes(first)
memory = n.nvmlDeviceGetMemoryInfo(first)
newer = n.nvmlDeviceGetMemoryInfo(first, version=n.nvmlMemory_v2)
assert (newer.used + newer.reserved, newer.free, newer.total) == (memory.used, memory.free, memory.total)
assert memory.used + memory.free == memory.total
out = [processes(first), processes(second), memory.used, n.nvmlSystemGetProcessName(pids[0])]
os.kill(pids[0], signal.SIGKILL)
until(lambda: len(processes(first)) == 1)
print(json.dumps([*out, processes(first), refused(n.nvmlSystemGetProcessName, 2**22 + 1)]))
"""
    )
    one, two, used, name, left, nobody = answers
    assert one == [[pids[0], GIB + (64 << 20)], [pids[1], 2 * GIB + (64 << 20)]]
    assert [pid for pid, _ in two] == [pids[2]]
    assert used == 3 * GIB + (128 << 20)
    assert name == str(LOAD)
    assert left == [one[1]]
    assert nobody == 6


def test_a_process_shows_on_its_card_whatever_number_cuda_gives_it(machine: Callable[[str], Machine]) -> None:
    cards = machine("gpus=3")
    uuid = cards.ask("n.nvmlInit(); print(json.dumps(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(2))))")
    pid = cards.load(CUDA_VISIBLE_DEVICES=uuid)
    assert cards.ask("""
n.nvmlInit()
def of(i):
    return [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(i))]
until(lambda: any(map(of, range(3))))
print(json.dumps([of(i) for i in range(3)]))
""") == [[], [], [pid]]


@pytest.mark.flaky(reruns=4)
def test_utilization_is_what_the_timeline_shows(machine: Callable[[str], Machine]) -> None:
    cards = machine("gpus=2")
    pids = [cards.load("--kernel-us", "500"), cards.load("--kernel-us", "300", "--burst", "5", "--gap-us", "4000")]
    with Timeline(cards.id) as timeline:
        deadline = time.monotonic() + 60
        while not all(timeline.busy(0)[1].get(pid, 0) > 50_000_000 for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        first, samples, others, rates, idle = cards.ask("""
n.nvmlInit()
h, idle = n.nvmlDeviceGetHandleByIndex(0), n.nvmlDeviceGetHandleByIndex(1)
first = int(time.time() * 1e6)
until(lambda: time.time() * 1e6 > first + 400000)
samples = [[s.pid, s.smUtil, s.timeStamp] for s in n.nvmlDeviceGetProcessUtilization(h, first)]
others = [[s.pid, s.smUtil] for s in n.nvmlDeviceGetProcessesUtilizationInfo(h, 0)]
assert refused(n.nvmlDeviceGetProcessUtilization, h, int(time.time() * 1e6) + 10**6) == 6
print(json.dumps([first, samples, others, n.nvmlDeviceGetUtilizationRates(h).gpu,
                  n.nvmlDeviceGetUtilizationRates(idle).gpu]))
""")
        offset_ns = time.time_ns() - time.monotonic_ns()
        segments = timeline.segments(0)[1]
    assert sorted(pid for pid, _, _ in samples) == sorted(pids)
    assert sorted(pid for pid, _ in others) == sorted(pids)
    for pid, percent, stamp in samples:
        begin, end = first * 1000 - offset_ns, stamp * 1000 - offset_ns
        busy = sum(max(0, min(s.end_ns, end) - max(s.start_ns, begin)) for s in segments if s.pid == pid)
        assert percent == pytest.approx(100 * busy / (end - begin), abs=1)
    assert 60 <= rates <= 100
    assert idle == 0


@pytest.mark.flaky(reruns=4)
def test_a_busy_card_is_warm_and_draws_power(machine: Callable[[str], Machine]) -> None:
    cards = machine("gpus=2")
    cards.load()
    busy, idle = cards.ask("""
n.nvmlInit()
def state(h):
    field = n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, n.NVML_FI_MAX])
    assert (field[0].nvmlReturn, field[1].nvmlReturn) == (0, 3)
    energy = n.nvmlDeviceGetTotalEnergyConsumption(h)
    assert energy >= field[0].value.ullVal > 0
    return [n.nvmlDeviceGetPowerUsage(h), n.nvmlDeviceGetTemperature(h, 0), n.nvmlDeviceGetClockInfo(h, 1), energy]
busy, idle = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
until(lambda: n.nvmlDeviceGetUtilizationRates(busy).gpu > 50)
assert n.nvmlDeviceGetTemperatureV(busy, 0) > 40
assert n.nvmlDeviceGetPowerUsage(busy) < n.nvmlDeviceGetEnforcedPowerLimit(busy)
print(json.dumps([state(busy), state(idle)]))
""")
    assert all(a > b for a, b in zip(busy, idle, strict=True))


def test_what_such_a_card_has_not_is_not_supported(machine: Callable[[str], Machine]) -> None:
    assert machine("").ask("""
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
said = [refused(f, h, *more) for f, *more in (
    [n.nvmlDeviceGetFanSpeed], [n.nvmlDeviceGetMigMode], [n.nvmlDeviceGetNvLinkState, 0],
    [n.nvmlDeviceGetAccountingStats, 1], [n.nvmlDeviceGetNumaNodeId])]
print(json.dumps([said, refused(n.nvmlDeviceGetInforomImageVersion, h), n.nvmlDeviceGetTotalEccErrors(h, 1, 0),
                  n.nvmlDeviceGetComputeMode(h), str(n.NVMLError(n.NVML_ERROR_NOT_SUPPORTED)),
                  lib.nvmlDeviceGetMemoryInfo_v2(h, ctypes.create_string_buffer(40))]))
""") == [[3] * 5, 13, 0, 0, "Not Supported", 25]


def test_the_cards_form_a_tree(machine: Callable[[str], Machine]) -> None:
    levels, nearest, near_cpus, peers = machine("gpus=8").ask("""
n.nvmlInit()
cards = [n.nvmlDeviceGetHandleByIndex(i) for i in range(8)]
levels = [n.nvmlDeviceGetTopologyCommonAncestor(cards[2], c) for c in cards]
nearest = [[n.nvmlDeviceGetIndex(c) for c in n.nvmlDeviceGetTopologyNearestGpus(cards[2], level)]
           for level in (10, 20, 30, 40, 50)]
cpus = n.nvmlDeviceGetCpuAffinity(cards[0], 16)
assert list(n.nvmlDeviceGetMemoryAffinity(cards[0], 2, 0)) == [1, 0]
print(json.dumps([levels, nearest, [i for i in range(1024) if cpus[i // 64] >> i % 64 & 1],
                  [n.nvmlDeviceGetP2PStatus(cards[0], cards[1], k) for k in range(5)]]))
""")
    assert levels == [30, 30, 0, 10, 40, 40, 40, 40]
    assert nearest == [[3], [], [0, 1], [4, 5, 6, 7], []]
    assert near_cpus
    assert max(near_cpus) < (os.cpu_count() or 1)
    assert peers == [0, 0, 5, 0, 0]


@pytest.mark.flaky(reruns=4)
def test_waiting_for_an_error_ends_after_the_time_asked(machine: Callable[[str], Machine]) -> None:
    waited, code, unknown = machine("").ask("""
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
events = n.nvmlEventSetCreate()
n.nvmlDeviceRegisterEvents(h, n.nvmlEventTypeXidCriticalError & n.nvmlDeviceGetSupportedEventTypes(h), events)
begin = time.monotonic()
code = refused(n.nvmlEventSetWait_v2, events, 50)
waited = time.monotonic() - begin
n.nvmlEventSetFree(events)
print(json.dumps([waited, code, refused(n.nvmlDeviceRegisterEvents, h, 8, events)]))
""")
    assert code == 10
    assert 0.05 <= waited < 1
    assert unknown == 2


@pytest.mark.flaky(reruns=4)
def test_a_forked_child_goes_on_looking(machine: Callable[[str], Machine]) -> None:
    cards = machine("")
    pid = cards.load()
    assert cards.ask("""
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
until(lambda: n.nvmlDeviceGetUtilizationRates(h).gpu > 50)
child = os.fork()
if not child:
    u, p = n.nvmlDeviceGetUtilizationRates(h).gpu, n.nvmlDeviceGetComputeRunningProcesses(h)
    n.nvmlShutdown()
    os._exit(0 if u > 50 and len(p) == 1 else 1)
code = os.waitpid(child, 0)[1]
assert n.nvmlDeviceGetUtilizationRates(h).gpu > 50
print(json.dumps([code, [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)]]))
""") == [0, [pid]]
