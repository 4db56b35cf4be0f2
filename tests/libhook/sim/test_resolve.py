"""cuGetProcAddress, code images, contexts and handles."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import threading
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import pytest

from tests.headers.compare import table
from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import LIB, MS, PTX, Cuda

ROOT = Path(__file__).resolve().parents[3]
NOT_FOUND, INVALID_VALUE, INVALID_HANDLE, INVALID_CONTEXT = 500, 1, 400, 201
NOT_SUPPORTED = 801
FOUND, NO_SYMBOL, VERSION_TOO_OLD = 0, 1, 2


def address(cuda: Cuda, symbol: str) -> int:
    return int(ctypes.cast(getattr(cuda.lib, symbol), c_void_p).value or 0)


def resolve(cuda: Cuda, name: bytes | None, version: int, flags: int = 0) -> tuple[int, int | None, int]:
    pointer, status = c_void_p(), c_int(-1)
    code = cuda.code("cuGetProcAddress_v2", name, byref(pointer), version, c_uint64(flags), byref(status))
    return code, pointer.value, status.value


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2"),
        ("cuLaunchKernel", 4000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 7000, 1, "cuLaunchKernel"),
        ("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 5000, 2, "cuLaunchKernel"),
        ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
        ("cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo"),
        ("cuStreamGetCaptureInfo", 11030, 2, "cuStreamGetCaptureInfo_v2_ptsz"),
        ("cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3"),
        ("cuMemPrefetchAsync", 8000, 0, "cuMemPrefetchAsync"),
        ("cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2"),
        ("cuCtxSynchronize", 2000, 0, "cuCtxSynchronize"),
        ("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ],
)
def test_name_version_and_flags_pick_the_entry(
    machine: Machine, name: str, version: int, flags: int, symbol: str
) -> None:
    def work() -> bool:
        cuda = Cuda(bare=True)
        return resolve(cuda, name.encode(), version, flags) == (0, address(cuda, symbol), FOUND)

    assert machine.run(work)


def test_what_a_simulated_card_has_not_is_there_by_name_and_says_so(machine: Machine) -> None:
    def work() -> list[tuple[str, int]]:
        cuda = Cuda(bare=True)
        answers = [(row.symbol, cuda.code(row.symbol)) for row in table() if row.kind == "KNOWN"]
        return [(symbol, code) for symbol, code in answers if code != NOT_SUPPORTED]

    assert machine.run(work) == []


def test_the_name_without_a_version_leads_to_the_same_driver(machine: Machine) -> None:
    def work() -> bool:
        cuda = Cuda(bare=True)
        other = ctypes.CDLL(str(LIB / "sim" / "libcuda.so"))
        return ctypes.cast(other.cuLaunchKernel, c_void_p).value == address(cuda, "cuLaunchKernel")

    assert machine.run(work)


def test_a_program_linked_by_that_name_keeps_the_driver_where_the_linker_leaves_out(
    machine: Machine, tmp_path: Path
) -> None:
    source, library, folder = tmp_path / "program.c", tmp_path / "program.so", LIB / "sim"
    source.write_text("int cuDriverGetVersion(int *); int version(void) { int v; cuDriverGetVersion(&v); return v; }\n")
    flags = ["-shared", "-fPIC", "-Wl,--as-needed", "-o", library, source]
    subprocess.run(["gcc", *flags, f"-L{folder}", f"-Wl,-rpath,{folder}", "-lcuda"], check=True)

    def work() -> int:
        Cuda(bare=True)
        return int(ctypes.CDLL(str(library)).version())

    assert machine.run(work) >= 12000


def test_what_is_not_there_is_told_by_status(machine: Machine) -> None:
    def work() -> list[object]:
        cuda = Cuda(bare=True)
        pointer = c_void_p()
        return [
            resolve(cuda, b"cuNoSuchThing", 12000),
            resolve(cuda, b"", 0),
            resolve(cuda, b"cuLaunchKernelEx", 4000),
            resolve(cuda, b"cuInit", 99000)[0],
            resolve(cuda, None, 12000)[0],
            cuda.code("cuGetProcAddress", b"cuNoSuchThing", byref(pointer), 12000, c_uint64(0)),
            cuda.code("cuGetProcAddress_v2", b"cuInit", None, 12000, c_uint64(0), None),
        ]

    assert machine.run(work) == [
        (0, None, NO_SYMBOL),
        (0, None, NO_SYMBOL),
        (0, None, VERSION_TOO_OLD),
        INVALID_VALUE,
        INVALID_VALUE,
        NOT_FOUND,
        INVALID_VALUE,
    ]


def test_every_row_of_the_table_is_exported() -> None:
    """The table is the contract: all rows are there, and nothing of the simulator's own leaks out."""
    rows = {row.symbol for row in table()}
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", LIB / "sim" / "libcuda.so.1"], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert rows == {name for name in exported if name.startswith("cu")}
    assert exported - rows == {"geminiSimulatedDriver"}  # by which the simulated runtime knows it


def test_ptx_tells_its_kernels_parameters_and_globals(machine: Machine) -> None:
    def work() -> tuple[list[tuple[int, int]], int, list[int]]:
        cuda = Cuda()
        function = cuda.function("_ZN4test3addEPKfS1_Pf")
        places = []
        for index in range(3):
            offset, size = c_size_t(), c_size_t()
            cuda.cuFuncGetParamInfo(function, c_size_t(index), byref(offset), byref(size))
            places.append((offset.value, size.value))
        count, pointer, size = c_uint(), c_uint64(), c_size_t()
        cuda.cuModuleGetFunctionCount(byref(count), cuda.module)
        cuda.cuModuleGetGlobal_v2(byref(pointer), byref(size), cuda.module, b"table")
        codes = [
            cuda.code("cuModuleGetFunction", byref(c_void_p()), cuda.module, b"nothing"),
            cuda.code("cuModuleLoadData", byref(c_void_p()), b"no code at all"),
            cuda.code("cuModuleLoadData", byref(c_void_p()), b"\x01\x02\x03\x04\x05"),
            cuda.code("cuModuleLoad", byref(c_void_p()), b"/no/such/file"),
        ]
        return places, count.value * 1000 + size.value, codes

    places, figures, codes = machine.run(work)
    assert places == [(0, 8), (8, 24), (32, 4)]
    assert figures == 3064
    assert codes == [NOT_FOUND, 218, 200, 301]


def test_libraries_give_kernels_that_can_be_launched(machine: Machine) -> None:
    def work() -> tuple[bytes, int]:
        cuda = Cuda()
        library, kernel, name = c_void_p(), c_void_p(), c_char_p()
        cuda.cuLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0)
        cuda.cuLibraryGetKernel(byref(kernel), library, b"gemini_spin")
        cuda.cuKernelGetName(byref(name), kernel)
        cuda.launch(kernel, c_uint64(4 * MS))
        cuda.cuCtxSynchronize()
        seen = name.value or b""
        cuda.cuLibraryUnload(library)
        return seen, cuda.code("cuKernelGetName", byref(name), kernel)

    child = machine.start(work)
    assert child.value() == (b"gemini_spin", INVALID_HANDLE)
    assert machine.timeline.busy()[1][child.pid] == 4 * MS


def fat_binary(*members: tuple[int, bytes]) -> bytes:
    """A fat binary of PTX texts, each for an architecture."""
    body = b""
    for arch, kernels in members:
        text = b".version 8.0\n.target sm_%d\n.address_size 64\n" % arch
        text += b"".join(b".visible .entry %s()\n{ ret; }\n" % name for name in kernels.split()) + bytes(8)
        body += struct.pack("<HHIQIIHHIIIQQQ", 1, 0, 64, len(text), 0, 0, 0, 8, arch, 0, 0, 0, 0, 0) + text
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_of_a_fat_binary_counts_what_fits_the_card_best(machine: Machine) -> None:
    image = fat_binary((75, b"common"), (90, b"common newer"), (80, b"common"), (100, b"common newest"))

    def work() -> list[int]:
        cuda = Cuda()
        library, kernel = c_void_p(), c_void_p()
        cuda.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0)
        names = (b"common", b"newer", b"newest")
        return [cuda.code("cuLibraryGetKernel", byref(kernel), library, name) for name in names]

    assert machine.run(work) == [0, 0, NOT_FOUND]


def test_other_kernels_take_the_default_or_the_tables_time(make_machine, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    table = tmp_path / "kernels"
    table.write_text("# name ns\n_ZN4test3addEPKfS1_Pf 3000000\n")

    def work() -> None:
        cuda = Cuda()
        cuda.launch(cuda.function("_ZN4test3addEPKfS1_Pf"), c_uint64(), (ctypes.c_char * 24)(), c_uint())
        cuda.cuCtxSynchronize()

    for options, expected in (("kernel=2ms", 2 * MS), (f"kernels={table}", 3 * MS)):
        machine = make_machine(options)
        child = machine.start(work)
        child.value()
        assert machine.timeline.busy()[1][child.pid] == expected


def test_launches_are_checked(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        spin, arguments = cuda.spin_function, (c_void_p * 1)(ctypes.addressof(c_uint64(1)))

        def launch(function: c_void_p, grid: int = 1, block: int = 1, shared: int = 0, stream: object = None) -> int:
            return cuda.code("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, stream, arguments, None)

        dead = cuda.stream()
        cuda.cuStreamDestroy_v2(dead)
        return [
            launch(spin),
            launch(spin, grid=0),
            launch(spin, block=1025),
            launch(spin, shared=300_000),
            launch(c_void_p(64)),
            launch(spin, stream=dead),
            launch(spin, stream=c_void_p(0x1234560)),
        ]

    assert machine.run(work) == [0, 1, 1, 1, INVALID_HANDLE, INVALID_HANDLE, INVALID_HANDLE]


def test_contexts_are_stacked_per_thread(machine: Machine) -> None:
    def work() -> list[object]:
        cuda = Cuda()
        made, current, popped = c_void_p(), c_void_p(), c_void_p()
        cuda.cuCtxCreate_v2(byref(made), 0, 0)
        cuda.cuCtxGetCurrent(byref(current))
        seen: list[object] = [current.value == made.value]

        def other_thread() -> None:
            found = c_void_p()
            seen.append(cuda.code("cuCtxGetCurrent", byref(found)) == 0 and found.value is None)
            seen.append(cuda.code("cuMemAlloc_v2", byref(c_uint64()), c_size_t(16)))

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        cuda.cuCtxPopCurrent_v2(byref(popped))
        cuda.cuCtxGetCurrent(byref(current))
        cuda.cuCtxDestroy_v2(made)
        return [
            *seen,
            popped.value == made.value,
            current.value == cuda.ctx.value,
            cuda.code("cuCtxPushCurrent_v2", made),
            cuda.code("cuDevicePrimaryCtxRelease_v2", 0),
            cuda.code("cuDevicePrimaryCtxRelease_v2", 0),
            cuda.code("cuCtxSynchronize"),
        ]

    assert machine.run(work) == [True, True, INVALID_CONTEXT, True, True, INVALID_CONTEXT, 0, INVALID_CONTEXT, 709]


def test_errors_have_names_and_words(machine: Machine) -> None:
    def work() -> tuple[bytes | None, bytes | None, int]:
        cuda = Cuda(bare=True)
        name, words = c_char_p(), c_char_p()
        cuda.cuGetErrorName(2, byref(name))
        cuda.cuGetErrorString(2, byref(words))
        return name.value, words.value, cuda.code("cuGetErrorName", 123456, byref(c_char_p()))

    assert machine.run(work) == (b"CUDA_ERROR_OUT_OF_MEMORY", b"out of memory", INVALID_VALUE)
