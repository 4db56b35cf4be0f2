"""The simulated CUDA runtime: as a library that programs are linked against, and call by call."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import uuid
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

import pytest

from libhook.build import CUDA_MAJORS
from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import LIB, MS, PTX, Cuda

ROOT = Path(__file__).resolve().parents[4]
SIM = LIB / "sim"
INVALID_VALUE, INITIALIZATION, NOT_READY = 1, 3, 600
PER_THREAD = c_void_p(2)


class Shape(ctypes.Structure):
    _fields_ = [(axis, c_uint) for axis in "xyz"]


ONE = Shape(1, 1, 1)


def runtime(major: int = 13) -> Any:
    Cuda(bare=True)  # the simulated driver is there under its soname from now on
    library = ctypes.CDLL(str(SIM / f"libcudart.so.{major}"))
    library.cudaGetErrorName.restype = library.cudaGetErrorString.restype = ctypes.c_char_p
    return library


def kernel(cudart: Any, name: bytes = b"gemini_spin") -> c_void_p:
    library, found = c_void_p(), c_void_p()
    assert cudart.cudaLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0) == 0
    assert cudart.cudaLibraryGetKernel(byref(found), library, name) == 0
    return found


def spin(cudart: Any, function: c_void_p, ns: int, stream: c_void_p | None = None) -> int:
    value = ctypes.c_uint64(ns)
    arguments = (c_void_p * 1)(ctypes.addressof(value))
    return int(cudart.cudaLaunchKernel(function, ONE, ONE, arguments, c_size_t(0), stream or c_void_p()))


@pytest.fixture(scope="module", params=CUDA_MAJORS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program, linked against the runtime of one major version."""
    built = tmp_path_factory.mktemp("program") / f"program{request.param}"
    library = SIM / f"libcudart.so.{request.param}"
    command = [
        "gcc",
        "-Wall",
        f"-I{ROOT}",
        f"-DCUDA_MAJOR={request.param}",
        str(Path(__file__).with_name("program.c")),
    ]
    subprocess.run([*command, "-o", str(built), str(library)], check=True)
    return built


def run(program: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "GEMINI_SIM": f"memory=4GiB,id={uuid.uuid4().hex}",
        "LD_LIBRARY_PATH": str(SIM),
        **more,
    }
    return subprocess.run([str(program), *words], env=environment, capture_output=True, text=True, timeout=60)


def library_of(program: Path) -> str:
    return str(SIM / f"libcudart.so.{program.name.removeprefix('program')}")


def test_a_program_is_linked_by_soname_and_symbol_version(program: Path) -> None:
    major = program.name.removeprefix("program")
    needed = subprocess.run(["readelf", "-dV", str(program)], capture_output=True, text=True, check=True).stdout
    assert f"[libcudart.so.{major}]" in needed
    assert f"Name: libcudart.so.{major}" in needed


@pytest.mark.parametrize("major", CUDA_MAJORS)
def test_it_may_be_loaded_at_any_time(major: int) -> None:
    """The loader's room for thread-local variables of libraries that come late is small, and others need it."""
    flags = subprocess.run(
        ["readelf", "-dW", SIM / f"libcudart.so.{major}"], capture_output=True, text=True, check=True
    )
    assert "STATIC_TLS" not in flags.stdout


def test_registered_kernels_and_variables_work(program: Path) -> None:
    done = run(program)
    assert done.stdout.splitlines() == [
        "properties cudaSuccess",
        "NVIDIA H200 (simulated) of 4096 MiB, 132 multiprocessors, 9.0",
        "pop cudaSuccess",
        "pop again cudaErrorMissingConfiguration",
        "launch cudaSuccess",
        "synchronise cudaSuccess",
        "empty grid cudaErrorInvalidConfiguration",
        "absent cudaErrorInvalidDeviceFunction",
        "last cudaErrorInvalidDeviceFunction",
        "last again cudaSuccess",
        "to symbol cudaSuccess",
        "from symbol cudaSuccess",
        "table 1 4",
        "malloc cudaErrorMemoryAllocation",
        "not there cudaErrorNotSupported",
        "not there cudaErrorNotSupported",
    ]
    assert done.returncode == 0
    assert done.stderr.count("cudaGetMipmappedArrayLevel is not there") == 1


def test_registering_ten_thousand_kernels_touches_no_driver(program: Path) -> None:
    done = run(program, "registered only", LD_LIBRARY_PATH=str(program.parent), LD_PRELOAD=library_of(program))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_refuses_a_driver_that_is_not_simulated(program: Path, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text("int cuGetProcAddress_v2(void) { return 0; }\n")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(tmp_path / "libcuda.so.1"), str(source)],
        check=True,
    )
    done = run(program, LD_LIBRARY_PATH=str(tmp_path), LD_PRELOAD=library_of(program))
    assert "launch cudaErrorSystemDriverMismatch" in done.stdout
    assert done.stderr.count("the driver is no simulated one; use NVIDIA's libcudart with it") == 1


def test_all_names_of_an_error_are_its_own(machine: Machine) -> None:
    def work() -> list[str]:
        cudart = runtime()
        return [
            f"{cudart.cudaGetErrorName(c).decode()}: {cudart.cudaGetErrorString(c).decode()}" for c in (0, 2, 9, 98)
        ]

    assert machine.start(work).value() == [
        "cudaSuccess: no error",
        "cudaErrorMemoryAllocation: out of memory",
        "cudaErrorInvalidConfiguration: invalid configuration argument",
        "cudaErrorInvalidDeviceFunction: invalid device function",
    ]


def test_an_event_that_is_not_over_is_the_last_error_too(machine: Machine) -> None:
    def work() -> tuple[int, ...]:
        cudart, event = runtime(), c_void_p()
        cudart.cudaEventCreate(byref(event))
        spin(cudart, kernel(cudart), 50 * MS)
        cudart.cudaEventRecord(event, None)
        asked = cudart.cudaEventQuery(event)
        last = cudart.cudaGetLastError()
        return asked, last, cudart.cudaGetLastError(), cudart.cudaEventSynchronize(event), cudart.cudaEventQuery(event)

    assert machine.start(work).value() == (NOT_READY, NOT_READY, 0, 0, 0)


def test_the_last_error_is_each_threads_own(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cudart, seen = runtime(), []
        cudart.cudaMalloc(None, 1)
        thread = threading.Thread(target=lambda: seen.append(cudart.cudaGetLastError()))
        thread.start()
        thread.join()
        return seen[0], cudart.cudaPeekAtLastError(), cudart.cudaGetLastError()

    assert machine.start(work).value() == (0, INVALID_VALUE, INVALID_VALUE)


def test_ptsz_calls_take_the_threads_own_default_stream(machine: Machine) -> None:
    def work() -> tuple[int, int]:
        cudart = runtime()
        spin(cudart, kernel(cudart), 50 * MS, PER_THREAD)
        other: list[int] = []
        thread = threading.Thread(target=lambda: other.append(cudart.cudaStreamQuery_ptsz(None)))
        thread.start()
        thread.join()
        return cudart.cudaStreamQuery_ptsz(None), other[0]

    assert machine.start(work).value() == (NOT_READY, 0)


def test_elapsed_time_is_no_less_than_that_of_the_kernel(machine: Machine) -> None:
    def work() -> float:
        cudart, start, end, milliseconds = runtime(), c_void_p(), c_void_p(), c_float()
        function = kernel(cudart)
        cudart.cudaEventCreate(byref(start))
        cudart.cudaEventCreate(byref(end))
        cudart.cudaEventRecord(start, None)
        spin(cudart, function, 20 * MS)
        cudart.cudaEventRecord(end, None)
        cudart.cudaEventSynchronize(end)
        assert cudart.cudaEventElapsedTime(byref(milliseconds), start, end) == 0
        return milliseconds.value

    assert machine.start(work).value() >= 20


def test_code_is_loaded_in_the_middle_of_a_global_capture(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cudart, stream, graph, exe = runtime(), c_void_p(), c_void_p(), c_void_p()
        function = kernel(cudart)
        cudart.cudaStreamCreate(byref(stream))
        begun = cudart.cudaStreamBeginCapture(stream, 0)
        launched = spin(cudart, function, MS, stream)
        assert cudart.cudaStreamEndCapture(stream, byref(graph)) == 0
        assert cudart.cudaGraphInstantiate(byref(exe), graph, ctypes.c_ulonglong(0)) == 0
        return begun, launched, cudart.cudaGraphLaunch(exe, stream)

    assert machine.start(work).value() == (0, 0, 0)


def test_a_forked_child_has_no_runtime(machine: Machine) -> None:
    def work() -> int:
        cudart, count = runtime(), c_int()
        assert cudart.cudaGetDeviceCount(byref(count)) == 0
        pid = os.fork()
        if pid == 0:
            os._exit(cudart.cudaGetDeviceCount(byref(count)))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert machine.start(work).value() == INITIALIZATION


def test_an_event_of_one_process_is_known_in_another(machine: Machine) -> None:
    told, tell = os.pipe()
    seen, see = os.pipe()

    class Handle(ctypes.Structure):
        _fields_ = [("reserved", ctypes.c_ubyte * 64)]

    def make() -> int:
        cudart, event, handle = runtime(), c_void_p(), Handle()
        assert cudart.cudaEventCreateWithFlags(byref(event), 2 | 4) == 0
        spin(cudart, kernel(cudart), MS)
        assert cudart.cudaEventRecord(event, None) == 0
        assert cudart.cudaIpcGetEventHandle(byref(handle), event) == 0
        os.write(tell, bytes(handle))
        os.read(seen, 1)
        return int(cudart.cudaDeviceSynchronize())

    def use() -> tuple[int, int, int]:
        cudart, event = runtime(), c_void_p()
        handle = Handle.from_buffer_copy(os.read(told, 64))
        found = (
            cudart.cudaIpcOpenEventHandle(byref(event), handle),
            cudart.cudaEventSynchronize(event),
            cudart.cudaIpcOpenEventHandle(byref(event), Handle()),
        )
        os.write(see, b"x")
        return found

    maker = machine.start(make)
    assert machine.start(use).value() == (0, 0, 400)
    assert maker.value() == 0


def test_no_bytes_are_no_error(machine: Machine) -> None:
    def work() -> tuple[int, int | None, int]:
        cudart, pointer = runtime(), c_void_p(5)
        return cudart.cudaMalloc(byref(pointer), c_size_t(0)), pointer.value, cudart.cudaFree(None)

    assert machine.start(work).value() == (0, None, 0)
