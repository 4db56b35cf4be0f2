"""Copies given as lists or with attributes, and lists of managed memory."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import Cuda
from tests.libhook.sim.test_memory import ArrayDescriptor

INVALID_VALUE = 1
DEVICE, HOST = 1, 2


def words(*values: int) -> ctypes.Array[c_uint64]:
    return (c_uint64 * len(values))(*values)


def attributes() -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[c_uint64], c_size_t]:
    one = ctypes.create_string_buffer(24)
    one[0] = 1  # in stream order
    return one, words(0), c_size_t(1)


def operation(source: tuple[int, ...], to: tuple[int, ...], width: int, height: int) -> bytes:
    """Each end: (1, pointer, row length, layer height) or (2, array, x, y)."""
    ends = [struct.pack("<qQQQQ", kind, *where, *[0] * (4 - len(where))) for kind, *where in (source, to)]
    return b"".join(ends) + struct.pack("<QQQiI", width, height, 1, 1, 0)


def test_a_list_of_copies_is_its_copies(machine: Machine) -> None:
    def work() -> list[bytes]:
        cuda = Cuda()
        stream = cuda.stream()
        first, second = ctypes.create_string_buffer(b"one.", 4), ctypes.create_string_buffer(b"two.", 4)
        a, b = cuda.malloc(4), cuda.malloc(4)
        out = [ctypes.create_string_buffer(4) for _ in range(2)]
        to, source, sizes = words(a, b), words(ctypes.addressof(first), ctypes.addressof(second)), words(4, 4)
        failed = c_size_t(7)
        cuda.cuMemcpyBatchAsync(to, source, sizes, c_size_t(2), *attributes(), byref(failed), stream)
        back = words(*map(ctypes.addressof, out))
        cuda.cuMemcpyBatchAsync_v2(back, words(b, a), sizes, c_size_t(2), *attributes(), stream)
        cuda.cuStreamSynchronize(stream)
        assert failed.value == 7
        bad = words(a, 0)
        assert (
            cuda.code("cuMemcpyBatchAsync", bad, source, sizes, c_size_t(2), *attributes(), byref(failed), stream)
            == INVALID_VALUE
        )
        assert failed.value == 1
        assert cuda.code("cuMemcpyBatchAsync_v2", to, source, sizes, c_size_t(2), *attributes(), None) == INVALID_VALUE
        one = ctypes.create_string_buffer(4)
        cuda.cuMemcpyWithAttributesAsync(
            c_uint64(ctypes.addressof(one)), c_uint64(a), c_size_t(4), attributes()[0], stream
        )
        cuda.cuStreamSynchronize(stream)
        return [o.raw for o in [*out, one]]

    assert machine.start(work).value() == [b"two.", b"one.", b"one."]


def test_volumes_go_between_pointers_and_arrays(machine: Machine) -> None:
    def work() -> bytes:
        cuda = Cuda()
        stream, array = cuda.stream(), c_void_p()
        cuda.cuArrayCreate_v2(byref(array), byref(ArrayDescriptor(8, 4, 0x02, 1)))  # 16-bit elements
        assert array.value
        host = ctypes.create_string_buffer(bytes(range(16)), 16)  # 2 rows of 4 elements
        out = ctypes.create_string_buffer(16)
        inward = operation((1, ctypes.addressof(host), 4, 2), (2, array.value, 3, 1), 4, 2)
        outward = operation((2, array.value, 3, 1), (1, ctypes.addressof(out), 4, 2), 4, 2)
        cuda.cuMemcpy3DBatchAsync_v2(c_size_t(2), inward + outward, c_uint64(0), stream)
        cuda.cuStreamSynchronize(stream)
        failed = c_size_t(7)
        wide = operation((2, array.value, 3, 1), (1, ctypes.addressof(out), 4, 2), 6, 2)
        code = cuda.code("cuMemcpy3DBatchAsync", c_size_t(2), inward + wide, byref(failed), c_uint64(0), stream)
        assert (code, failed.value) == (INVALID_VALUE, 1)
        cuda.cuMemcpy3DWithAttributesAsync(inward, c_uint64(0), stream)
        return out.raw

    assert machine.start(work).value() == bytes(range(16))


def test_lists_of_managed_memory_are_moved_or_discarded(machine: Machine) -> None:
    def work() -> None:
        cuda = Cuda()
        stream, pointer = cuda.stream(), c_uint64()
        cuda.cuMemAllocManaged(byref(pointer), c_size_t(1 << 20), 1)
        pointers, sizes = words(pointer.value, pointer.value + 4096), words(4096, 4096)
        places = (c_int * 4)(DEVICE, 0, HOST, 0)
        moved = (pointers, sizes, c_size_t(2), places, words(0, 1), c_size_t(2), c_uint64(0), stream)
        cuda.cuMemPrefetchBatchAsync(*moved)
        cuda.cuMemDiscardAndPrefetchBatchAsync(*moved)
        cuda.cuMemDiscardBatchAsync(pointers, sizes, c_size_t(2), c_uint64(0), stream)
        cuda.cuStreamSynchronize(stream)
        other = words(cuda.malloc(4096))
        assert cuda.code("cuMemDiscardBatchAsync", other, sizes, c_size_t(1), c_uint64(0), stream) == INVALID_VALUE

    child = machine.start(work)
    child.value()
    to_device, to_host = machine.timeline.copies(0)[1][child.pid]
    assert to_device == to_host > 2 * 1500  # two of each, and what a copy costs at least
