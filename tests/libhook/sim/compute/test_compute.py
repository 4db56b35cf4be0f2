"""The stand-ins for cuBLAS and cuBLASLt: a call is a launch, its time is the roofline's, and nothing is computed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_longlong, c_void_p
from pathlib import Path
from typing import Any

import pytest

from libhook.build import CUDA_MAJORS
from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import LIB, Cuda

SIM = LIB / "sim"
NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 1, 7, 15
R_32F, R_16BF, COMPUTE_32F = 0, 14, 68


def blas(major: int = 13) -> tuple[Cuda, Any, c_void_p]:
    cuda, handle = Cuda(), c_void_p()
    library = ctypes.CDLL(str(SIM / f"libcublas.so.{major}"))
    assert library.cublasCreate_v2(byref(handle)) == 0
    return cuda, library, handle


def product(library: Any, handle: c_void_p, m: int, n: int, k: int, kind: int = R_16BF) -> int:
    none = c_void_p()
    matrices = [none, none, kind, m, none, kind, k, none, none, kind, m]
    return int(library.cublasGemmEx(handle, 0, 0, m, n, k, *matrices, COMPUTE_32F, -1))


def busy_ns(machine: Machine, work: Callable[[], Any]) -> int:
    """What the card worked for it."""
    assert machine.run(work) == 0
    return sum(machine.timeline.busy()[1].values())


# 2 x 8192^3 operations at the card's dense peak of bfloat16
@pytest.mark.parametrize(
    ("profile", "milliseconds"), [("h200", 1.112), ("a100", 3.524), ("l4", 9.087), ("rtx4090", 6.656)]
)
def test_a_product_takes_its_operations_at_the_cards_peak(
    make_machine: Callable[[str], Machine], profile: str, milliseconds: float
) -> None:
    def work() -> int:
        cuda, library, handle = blas()
        code = product(library, handle, 8192, 8192, 8192)
        cuda.cuCtxSynchronize()
        return code

    spread = 0.03
    assert busy_ns(make_machine(f"profile={profile}"), work) / 1e6 == pytest.approx(milliseconds, rel=spread + 0.001)


def test_a_small_product_takes_no_less_than_an_empty_kernel(machine: Machine) -> None:
    def work() -> int:
        cuda, library, handle = blas()
        code = product(library, handle, 8, 8, 8)
        cuda.cuCtxSynchronize()
        return code

    assert busy_ns(machine, work) == 2000


def test_a_batch_is_one_launch_with_the_time_of_all(machine: Machine) -> None:
    def work() -> int:
        cuda, library, handle = blas()
        none, zero = c_void_p(), c_longlong(0)
        matrices = [none, none, R_16BF, 1, zero, none, R_16BF, 1, zero, none, none, R_16BF, 1, zero]
        code = library.cublasGemmStridedBatchedEx(handle, 0, 0, 1024, 1024, 1024, *matrices, 64, COMPUTE_32F, -1)
        cuda.cuCtxSynchronize()
        return int(code)

    assert busy_ns(machine, work) == pytest.approx(64 * 2 * 1024**3 / 989_000, rel=0.001)


def test_a_product_in_a_capture_becomes_a_node_though_its_code_is_new(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cuda, library, handle = blas()
        stream, graph, count = c_void_p(), c_void_p(), ctypes.c_size_t()
        cuda.cuStreamCreate(byref(stream), 0)
        library.cublasSetStream_v2(handle, stream)
        cuda.cuStreamBeginCapture_v2(stream, 0)
        code = product(library, handle, 100, 100, 100)
        cuda.cuStreamEndCapture(stream, byref(graph))
        cuda.cuGraphGetNodes(graph, None, byref(count))
        return code, int(bool(graph)), count.value

    assert machine.run(work) == (0, 1, 1)


def test_descriptors_give_back_what_was_set(machine: Machine) -> None:
    def work() -> tuple[int, int, int, int]:
        Cuda()
        lt = ctypes.CDLL(str(SIM / "libcublasLt.so.13"))
        layout, rows, batch, written = c_void_p(), ctypes.c_uint64(), c_int(7), ctypes.c_size_t()
        sizes = (ctypes.c_uint64(30), ctypes.c_uint64(40), c_longlong(30))
        assert lt.cublasLtMatrixLayoutCreate(byref(layout), R_32F, *sizes) == 0
        set_code = lt.cublasLtMatrixLayoutSetAttribute(layout, 5, byref(batch), 4)
        batch.value = 0
        lt.cublasLtMatrixLayoutGetAttribute(layout, 5, byref(batch), 4, byref(written))
        lt.cublasLtMatrixLayoutGetAttribute(layout, 2, byref(rows), 8, None)
        return set_code, batch.value, written.value, rows.value

    assert machine.run(work) == (0, 7, 4, 30)


def test_what_is_not_there_says_its_name_once() -> None:
    script = (
        f"import ctypes; b = ctypes.CDLL({str(SIM / 'libcublas.so.13')!r});"
        "print(b.cublasCgetriBatched(), b.cublasCgetriBatched(), b.cublasXerbla())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(NOT_SUPPORTED)] * 3
    assert done.stderr.count("cublasCgetriBatched is not there") == 1


@pytest.mark.parametrize("major", CUDA_MAJORS)
def test_it_refuses_a_driver_that_is_not_simulated(major: int, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text("int cuInit(void) { return 0; }\n")
    driver = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", driver, source], check=True)
    script = (
        f"import ctypes; b = ctypes.CDLL({str(SIM / f'libcublas.so.{major}')!r});"
        "print(b.cublasCreate_v2(ctypes.byref(ctypes.c_void_p())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == [str(NOT_INITIALIZED)]
    assert "it refuses to work, for the driver is no simulated one" in done.stderr


def test_a_profile_is_the_cards_name_memory_and_processors(make_machine: Callable[[str], Machine]) -> None:
    def work() -> tuple[bytes, int, int, int]:
        cuda, name, memory = Cuda(), ctypes.create_string_buffer(64), ctypes.c_size_t()
        values = (c_int(), c_int())
        cuda.cuDeviceGetName(name, 64, 0)
        cuda.cuDeviceTotalMem_v2(byref(memory), 0)
        cuda.cuDeviceGetAttribute(byref(values[0]), 16, 0)
        cuda.cuDeviceGetAttribute(byref(values[1]), 76, 0)
        return name.value, memory.value >> 30, values[0].value, values[1].value

    assert make_machine("profile=L4").run(work) == (b"NVIDIA L4 (simulated)", 24, 58, 9)
    assert make_machine("profile=l4,name=Mine,memory=8GiB").run(work) == (b"Mine", 8, 58, 9)


def test_a_kernel_of_which_only_the_shape_is_known_is_timed_by_its_threads(
    make_machine: Callable[[str], Machine],
) -> None:
    def work() -> int:
        cuda = Cuda()
        function, arguments = cuda.function("_ZN4test3addEPKfS1_Pf"), (c_void_p * 3)()
        cuda.cuLaunchKernel(function, 1 << 20, 1, 1, 256, 1, 1, 0, None, arguments, None)
        cuda.cuCtxSynchronize()
        return 0

    assert busy_ns(make_machine("profile=h200"), work) == pytest.approx((256 << 20) * 32 / 4800, rel=0.031)
