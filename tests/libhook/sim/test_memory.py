"""Device memory: contents, the card's end, pools, the virtual memory API, arrays, and what is between processes."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from ctypes import Structure, byref, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ushort, c_void_p

import pytest

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import MS, Cuda

MIB = 1 << 20
INVALID_VALUE, OUT_OF_MEMORY = 1, 2
RELEASE_THRESHOLD, RESERVED_CURRENT, USED_CURRENT, USED_HIGH = 4, 5, 7, 8


class Location(Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class AllocationProp(Structure):
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("win32", c_void_p),
        ("compression", c_ubyte),
        ("rdma", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    ]


class AccessDesc(Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class ArrayDescriptor(Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


def pinned(handle_types: int = 0) -> AllocationProp:
    return AllocationProp(type=1, handle_types=handle_types, location=Location(1, 0))


def pool_figure(cuda: Cuda, pool: c_void_p, attribute: int) -> int:
    value = c_uint64()
    cuda.cuMemPoolGetAttribute(pool, attribute, byref(value))
    return value.value


def default_pool(cuda: Cuda) -> c_void_p:
    pool = c_void_p()
    cuda.cuDeviceGetDefaultMemPool(byref(pool), 0)
    return pool


def test_bytes_make_the_round_trip(machine: Machine) -> None:
    def work() -> tuple[bytes, bytes]:
        cuda = Cuda()
        a, b, out = cuda.malloc(4096), cuda.malloc(4096), ctypes.create_string_buffer(16)
        cuda.cuMemcpyHtoD_v2(c_uint64(a), b"0123456789abcdef", c_size_t(16))
        cuda.cuMemcpyDtoD_v2(c_uint64(b + 8), c_uint64(a), c_size_t(16))
        cuda.cuMemsetD16_v2(c_uint64(b + 8), c_ushort(0x4242), c_size_t(2))
        cuda.cuMemcpyDtoH_v2(out, c_uint64(b + 8), c_size_t(16))
        whole = out.raw
        cuda.cuMemsetD2D8_v2(c_uint64(a), c_size_t(8), c_ubyte(0x2D), c_size_t(2), c_size_t(2))
        cuda.cuMemcpyDtoH_v2(out, c_uint64(a), c_size_t(16))
        return whole, out.raw

    assert machine.run(work) == (b"BBBB456789abcdef", b"--234567--abcdef")


def test_zeroing_memory_clears_it_all_and_takes_none_of_the_hosts(machine: Machine) -> None:
    def shared_pages() -> int:
        return int(open("/proc/self/statm").read().split()[2])

    def work() -> tuple[bool, bytes, bytes, bytes, bool]:
        cuda = Cuda()
        a, size = cuda.malloc(256 * MIB), 200 * MIB
        before = shared_pages()
        cuda.cuMemsetD8_v2(c_uint64(a), c_ubyte(0), c_size_t(size))
        few = shared_pages() - before < 8
        cuda.cuMemsetD8_v2(c_uint64(a), c_ubyte(0x41), c_size_t(MIB))
        cuda.cuMemsetD8_v2(c_uint64(a + 3), c_ubyte(0), c_size_t(MIB - 6))
        out = ctypes.create_string_buffer(MIB)
        cuda.cuMemcpyDtoH_v2(out, c_uint64(a), c_size_t(MIB))
        return few, out.raw[:4], out.raw[-4:], out.raw[4090:4100], any(out.raw[3:-3])

    assert machine.run(work) == (True, b"AAA\0", b"\0AAA", bytes(10), False)


def test_out_of_memory_comes_at_the_cards_end_and_not_before(machine: Machine) -> None:
    def work() -> tuple[int, int, int, int]:
        cuda = Cuda()
        room = cuda.free_bytes()
        assert room == 1024 * MIB - 32 * MIB
        first = cuda.malloc(room - 2 * MIB)
        codes = [cuda.code("cuMemAlloc_v2", byref(c_uint64()), c_size_t(size)) for size in (4 * MIB, 2 * MIB, 512)]
        cuda.cuMemFree_v2(c_uint64(first))
        return (*codes, cuda.free_bytes() - room)

    assert machine.run(work) == (OUT_OF_MEMORY, 0, OUT_OF_MEMORY, -2 * MIB)


def test_all_processes_share_the_card(machine: Machine) -> None:
    def hold() -> None:
        cuda = Cuda()
        cuda.malloc(900 * MIB)
        time.sleep(600)

    def use() -> int:
        cuda = Cuda()
        return cuda.code("cuMemAlloc_v2", byref(c_uint64()), c_size_t(100 * MIB))

    holder = machine.start(hold)
    while machine.timeline.memory().get(holder.pid, 0) < 900 * MIB:
        time.sleep(0.002)
    assert machine.run(use) == OUT_OF_MEMORY
    assert machine.timeline.memory() == {holder.pid: 932 * MIB}


def test_bad_pointers_are_refused(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        pointer = cuda.malloc(64)
        codes = [
            cuda.code("cuMemFree_v2", c_uint64(pointer + 8)),
            cuda.code("cuMemFree_v2", c_uint64(12345)),
            cuda.code("cuMemcpyHtoD_v2", c_uint64(pointer), b"x" * 128, c_size_t(128)),
            cuda.code("cuMemsetD8_v2", c_uint64(pointer), 0, c_size_t(65)),
            cuda.code("cuMemAlloc_v2", None, c_size_t(1)),
            cuda.code("cuMemAlloc_v2", byref(c_uint64()), c_size_t(0)),
        ]
        cuda.cuMemFree_v2(c_uint64(pointer))
        return [*codes, cuda.code("cuMemFree_v2", c_uint64(pointer)), cuda.code("cuMemFree_v2", c_uint64(0))]

    assert machine.run(work) == [INVALID_VALUE] * 7 + [0]


@pytest.mark.flaky(reruns=4)
def test_free_waits_for_the_work_of_the_device(machine: Machine) -> None:
    def work() -> float:
        cuda = Cuda()
        pointer = cuda.malloc(64)
        cuda.spin(20 * MS, cuda.stream(1))
        start = time.monotonic()
        cuda.cuMemFree_v2(c_uint64(pointer))
        return time.monotonic() - start

    assert machine.run(work) > 0.015


def test_pools_keep_what_is_freed_up_to_their_threshold(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        pool, pointer, before = default_pool(cuda), c_uint64(), cuda.free_bytes()
        figures = []

        def note() -> None:
            figures.append(pool_figure(cuda, pool, RESERVED_CURRENT) // MIB)
            figures.append(pool_figure(cuda, pool, USED_CURRENT) // MIB)
            figures.append((before - cuda.free_bytes()) // MIB)

        def once() -> None:
            cuda.cuMemAllocAsync(byref(pointer), c_size_t(64 * MIB), None)
            note()
            cuda.cuMemFreeAsync(pointer, None)
            note()
            cuda.cuStreamSynchronize(None)
            note()

        once()
        cuda.cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, byref(c_uint64(32 * MIB)))
        once()
        cuda.cuMemPoolTrimTo(pool, c_size_t(0))
        note()
        return [*figures, pool_figure(cuda, pool, USED_HIGH) // MIB]

    first = [64, 64, 64, 64, 0, 64, 0, 0, 0]
    second = [64, 64, 64, 64, 0, 64, 32, 0, 32, 0, 0, 0, 64]
    assert machine.run(work) == first + second


def test_a_pool_cannot_pass_the_cards_end(machine: Machine) -> None:
    def work() -> tuple[int, int]:
        cuda = Cuda()
        held = cuda.malloc(900 * MIB)
        code = cuda.code("cuMemAllocAsync", byref(c_uint64()), c_size_t(100 * MIB), None)
        cuda.cuMemFree_v2(c_uint64(held))
        return code, cuda.code("cuMemAllocAsync", byref(c_uint64()), c_size_t(100 * MIB), None)

    assert machine.run(work) == (OUT_OF_MEMORY, 0)


def test_virtual_memory_is_counted_while_a_handle_or_a_mapping_lives(machine: Machine) -> None:
    def work() -> tuple[list[int], bytes]:
        cuda = Cuda()
        room, handle, address = cuda.free_bytes(), c_uint64(), c_uint64()
        used = []

        def note() -> None:
            used.append((room - cuda.free_bytes()) // MIB)

        cuda.cuMemCreate(byref(handle), c_size_t(4 * MIB), byref(pinned()), c_uint64(0))
        note()
        cuda.cuMemAddressReserve(byref(address), c_size_t(8 * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
        for offset in (0, 4 * MIB):  # the same memory twice
            cuda.cuMemMap(c_uint64(address.value + offset), c_size_t(4 * MIB), c_size_t(0), handle, c_uint64(0))
        access = AccessDesc(Location(1, 0), 3)
        cuda.cuMemSetAccess(address, c_size_t(8 * MIB), byref(access), c_size_t(1))
        note()
        cuda.cuMemcpyHtoD_v2(address, b"seen twice", c_size_t(10))
        out = ctypes.create_string_buffer(10)
        cuda.cuMemcpyDtoH_v2(out, c_uint64(address.value + 4 * MIB), c_size_t(10))
        cuda.cuMemRelease(handle)
        note()
        cuda.cuMemUnmap(address, c_size_t(8 * MIB))
        note()
        assert cuda.code("cuMemRelease", handle) == INVALID_VALUE
        cuda.cuMemAddressFree(address, c_size_t(8 * MIB))
        too_much = cuda.code("cuMemCreate", byref(handle), c_size_t(1024 * MIB), byref(pinned()), c_uint64(0))
        return [*used, too_much], out.raw

    assert machine.run(work) == ([4, 4, 4, 0, OUT_OF_MEMORY], b"seen twice")


def test_shared_memory_is_its_makers(machine: Machine) -> None:
    def work() -> tuple[bytes, int]:
        cuda = Cuda()
        handle, descriptor = c_uint64(), c_int()
        cuda.cuMemCreate(byref(handle), c_size_t(2 * MIB), byref(pinned(1)), c_uint64(0))
        cuda.cuMemExportToShareableHandle(byref(descriptor), handle, 1, c_uint64(0))
        ipc, pointer = (c_ubyte * 64)(), cuda.malloc(4096)
        cuda.cuMemcpyHtoD_v2(c_uint64(pointer), b"over there", c_size_t(10))
        cuda.cuIpcGetMemHandle(ipc, c_uint64(pointer))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            guest = Cuda()
            before, opened, out = guest.free_bytes(), c_uint64(), ctypes.create_string_buffer(10)

            class Handle(Structure):
                _fields_ = [("reserved", c_ubyte * 64)]

            guest.cuIpcOpenMemHandle_v2(byref(opened), Handle(ipc), 1)
            guest.cuMemcpyDtoH_v2(out, opened, c_size_t(10))
            imported = c_uint64()
            guest.cuMemImportFromShareableHandle(byref(imported), c_void_p(descriptor.value), 1)
            same = before == guest.free_bytes()
            guest.cuIpcCloseMemHandle(opened)
            os.write(write, out.raw + bytes([same]))
            os._exit(0)
        answer = os.read(read, 11)
        os.waitpid(child, 0)
        return answer[:10], answer[10]

    seen, same = machine.run(work)
    assert seen == b"over there"
    assert same == 1


def test_exported_memory_is_on_the_card_until_the_last_descriptor_and_mapping_is_gone(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        room, held = cuda.free_bytes(), []
        handle, imported, again, descriptor = c_uint64(), c_uint64(), c_uint64(), c_int()
        cuda.cuMemCreate(byref(handle), c_size_t(2 * MIB), byref(pinned(1)), c_uint64(0))
        cuda.cuMemExportToShareableHandle(byref(descriptor), handle, 1, c_uint64(0))
        cuda.cuMemRelease(handle)
        held.append(room - cuda.free_bytes())  # by the descriptor
        cuda.cuMemImportFromShareableHandle(byref(imported), c_void_p(descriptor.value), 1)
        cuda.cuMemImportFromShareableHandle(byref(again), c_void_p(descriptor.value), 1)
        here, there = socket.socketpair()
        socket.send_fds(here, [b"x"], [descriptor.value])
        os.close(descriptor.value)
        place = c_uint64()
        cuda.cuMemAddressReserve(byref(place), c_size_t(2 * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
        cuda.cuMemMap(place, c_size_t(2 * MIB), c_size_t(0), imported, c_uint64(0))
        cuda.cuMemRelease(imported)
        cuda.cuMemRelease(again)
        held.append(room - cuda.free_bytes())  # by a mapping, and the message
        cuda.cuMemUnmap(place, c_size_t(2 * MIB))
        held.append(room - cuda.free_bytes())  # by the message alone
        _, received, _, _ = socket.recv_fds(there, 1, 1)
        held.append(room - cuda.free_bytes())
        os.close(received[0])
        held.append(room - cuda.free_bytes())
        return held

    assert machine.run(work) == [2 * MIB] * 4 + [0]


def test_exported_memory_is_on_the_card_while_another_process_has_its_descriptor(machine: Machine) -> None:
    def work() -> tuple[int, int]:
        cuda = Cuda()
        room = cuda.free_bytes()
        handle, descriptor = c_uint64(), c_int()
        cuda.cuMemCreate(byref(handle), c_size_t(2 * MIB), byref(pinned(1)), c_uint64(0))
        cuda.cuMemExportToShareableHandle(byref(descriptor), handle, 1, c_uint64(0))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        cuda.cuMemRelease(handle)
        os.close(descriptor.value)
        held = room - cuda.free_bytes()
        os.close(write)
        os.waitpid(child, 0)
        return held, room - cuda.free_bytes()

    assert machine.run(work) == (2 * MIB, 0)


def test_exported_memory_stays_on_the_card_with_an_importer_when_its_maker_ends(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        room, held = cuda.free_bytes(), []
        here, there = socket.socketpair()
        child = os.fork()
        if child == 0:
            handle, descriptor, maker = c_uint64(), c_int(), Cuda()
            maker.cuMemCreate(byref(handle), c_size_t(4 * MIB), byref(pinned(1)), c_uint64(0))
            maker.cuMemExportToShareableHandle(byref(descriptor), handle, 1, c_uint64(0))
            socket.send_fds(there, [b"x"], [descriptor.value])
            there.recv(1)
            os._exit(0)
        _, (descriptor,), _, _ = socket.recv_fds(here, 1, 1)
        imports = [c_uint64(), c_uint64()]
        for imported in imports:
            cuda.cuMemImportFromShareableHandle(byref(imported), c_void_p(descriptor), 1)
        both = room - cuda.free_bytes()
        here.send(b"x")
        os.waitpid(child, 0)

        def is_held(expected: int) -> int:
            deadline = time.monotonic() + 60  # the machine looks for the dead once a millisecond
            while room - cuda.free_bytes() != expected and time.monotonic() < deadline:
                time.sleep(0.001)
            return room - cuda.free_bytes()

        held.append(is_held(4 * MIB))
        cuda.cuMemRelease(imports[0])
        held.append(is_held(4 * MIB))
        cuda.cuMemRelease(imports[1])
        held.append(is_held(0))
        assert both > 4 * MIB, "the maker's context, and its memory once"
        return held

    assert machine.run(work) == [4 * MIB, 4 * MIB, 0]


def test_arrays_hold_their_rows_and_their_memory(machine: Machine) -> None:
    def work() -> tuple[bytes, int, int]:
        cuda = Cuda()
        room, array, out = cuda.free_bytes(), c_void_p(), ctypes.create_string_buffer(8)
        cuda.cuArrayCreate_v2(byref(array), byref(ArrayDescriptor(1000, 1000, 0x20, 4)))
        taken = room - cuda.free_bytes()
        cuda.cuMemcpyHtoA_v2(array, c_size_t(16), b"in array", c_size_t(8))
        cuda.cuMemcpyAtoH_v2(out, array, c_size_t(16), c_size_t(8))
        cuda.cuArrayDestroy(array)
        return out.raw, taken, room - cuda.free_bytes()

    content, taken, left = machine.run(work)
    assert content == b"in array"
    assert 16_000_000 <= taken < 17_000_000
    assert left == 0


def test_pointers_tell_what_they_are(machine: Machine) -> None:
    def work() -> list[int]:
        cuda = Cuda()
        device, host, managed = cuda.malloc(4096), c_void_p(), c_uint64()
        cuda.cuMemHostAlloc(byref(host), c_size_t(4096), 0)
        cuda.cuMemAllocManaged(byref(managed), c_size_t(4096), 1)
        answers = []
        for pointer in (device + 100, host.value, managed.value):
            kind, is_managed = c_uint(), c_uint()
            cuda.cuPointerGetAttribute(byref(kind), 2, c_uint64(pointer))
            cuda.cuPointerGetAttribute(byref(is_managed), 8, c_uint64(pointer))
            answers += [kind.value, is_managed.value]
        unknown = ctypes.create_string_buffer(16)
        return [*answers, cuda.code("cuPointerGetAttribute", byref(c_uint()), 2, c_uint64(ctypes.addressof(unknown)))]

    assert machine.run(work) == [2, 0, 1, 0, 2, 1, INVALID_VALUE]


def test_a_context_gives_back_its_memory(machine: Machine) -> None:
    def work() -> tuple[int, int]:
        cuda = Cuda()
        room, ctx = cuda.free_bytes(), c_void_p()
        cuda.cuCtxCreate_v2(byref(ctx), 0, 0)
        cuda.malloc(64 * MIB)
        with_it = room - cuda.free_bytes()
        cuda.cuCtxDestroy_v2(ctx)
        cuda.cuCtxSetCurrent(cuda.ctx)
        return with_it // MIB, room - cuda.free_bytes()

    assert machine.run(work) == (96, 0)


@pytest.mark.parametrize("name", ["cuMemGetInfo_v2", "cuCtxSynchronize", "cuStreamQuery"])
def test_calls_without_a_context_say_so(machine: Machine, name: str) -> None:
    def work() -> tuple[int, int]:
        cuda = Cuda(bare=True)
        arguments = (byref(c_size_t()), byref(c_size_t())) if name == "cuMemGetInfo_v2" else (None,)
        before = cuda.code(name, *arguments)
        cuda.cuInit(0)
        return before, cuda.code(name, *arguments)

    assert machine.run(work) == (3, 201)


def test_a_size_beyond_any_card_is_no_memory_by_every_call(machine: Machine) -> None:
    """2^64 - 1 bytes from a pool were rounded up to nothing, and given."""

    def work() -> list[int]:
        cuda = Cuda()
        out = c_uint64()
        whole = c_size_t(2**64 - 1)
        return [
            cuda.code("cuMemAlloc_v2", byref(out), whole),
            cuda.code("cuMemAllocManaged", byref(out), whole, 1),
            cuda.code("cuMemAllocAsync", byref(out), whole, None),
            cuda.code("cuMemAllocAsync", byref(out), c_size_t(2**62), None),
        ]

    assert machine.run(work) == [2, 2, 2, 2]


def test_a_trimmed_pool_holds_what_the_card_counts_for_it(machine: Machine) -> None:
    """Trimmed to an odd number of MiB it said one more than the card counted, or one less."""

    def work() -> list[int]:
        cuda = Cuda()
        pool, out, reserved = c_void_p(), c_uint64(), c_uint64()
        cuda.cuDeviceGetDefaultMemPool(byref(pool), 0)
        before = cuda.free_bytes()
        cuda.cuMemPoolSetAttribute(pool, 4, byref(c_uint64(2**64 - 1)))
        cuda.cuMemAllocAsync(byref(out), c_size_t(64 << 20), None)
        cuda.cuMemFreeAsync(out, None)
        told = []
        for mib in (33, 17, 3, 0):
            cuda.cuMemPoolTrimTo(pool, c_size_t(mib << 20))
            cuda.cuMemPoolGetAttribute(pool, 5, byref(reserved))
            told.append(before - cuda.free_bytes() - reserved.value)
        return told

    assert machine.run(work) == [0, 0, 0, 0]


def test_nothing_takes_the_place_of_a_graphs_memory_before_the_graph_ends(machine: Machine) -> None:
    """Freeing it, the program let others have its address, and the end of the graph then freed what stood there."""

    def work() -> tuple[bool, set[int]]:
        cuda = Cuda()
        stream, graph, out, other = cuda.stream(1), c_void_p(), c_uint64(), c_uint64()
        cuda.cuStreamBeginCapture_v2(stream, 2)
        cuda.cuMemAllocAsync(byref(out), c_size_t(4 << 20), stream)
        cuda.cuStreamEndCapture(stream, byref(graph))
        cuda.cuMemFree_v2(out)
        taken = []
        for _ in range(64):
            cuda.cuMemAlloc_v2(byref(other), c_size_t(4 << 20))
            taken.append(other.value)
        cuda.cuGraphDestroy(graph)
        return out.value in taken, {cuda.code("cuMemFree_v2", c_uint64(pointer)) for pointer in taken}

    assert machine.run(work) == (False, {0})


@pytest.mark.parametrize("ended_first", [True, False])
def test_memory_of_a_launched_graph_outlives_it_until_it_is_freed(machine: Machine, ended_first: bool) -> None:
    """With PyTorch's cudaMallocAsync backend a graph is instantiated and destroyed, and its memory freed in the end."""

    def work() -> tuple[int, int, int]:
        cuda = Cuda()
        stream, graph, exe, out, used = cuda.stream(1), c_void_p(), c_void_p(), c_uint64(), c_uint64()
        cuda.cuStreamBeginCapture_v2(stream, 0)
        cuda.cuMemAllocAsync(byref(out), c_size_t(4 << 20), stream)
        cuda.cuStreamEndCapture(stream, byref(graph))
        cuda.cuGraphInstantiateWithFlags(byref(exe), graph, ctypes.c_ulonglong(1))
        cuda.cuGraphDestroy(graph)
        cuda.cuGraphLaunch(exe, stream)
        if ended_first:
            cuda.cuGraphExecDestroy(exe)
        cuda.cuDeviceGetGraphMemAttribute(0, 0, byref(used))
        before = used.value
        freed = cuda.code("cuMemFreeAsync", out, stream)
        if not ended_first:
            cuda.cuGraphExecDestroy(exe)
        cuda.cuDeviceGetGraphMemAttribute(0, 0, byref(used))
        return before, freed, used.value

    assert machine.run(work) == (4 << 20, 0, 0)


def advised() -> list[list[int]]:
    cuda = Cuda()
    pointer = c_uint64()
    cuda.cuMemAllocManaged(byref(pointer), c_size_t(4096), 1)

    def told() -> list[int]:
        seen = []
        for attribute, words in ((1, 1), (2, 1), (3, 3), (4, 1)):  # read mostly, preferred, accessed by, prefetched
            value = (c_int * words)()
            cuda.cuMemRangeGetAttribute(value, c_size_t(4 * words), attribute, pointer, c_size_t(4096))
            seen += list(value)
        return seen

    before = told()
    for advice, place in ((1, 0), (3, -1), (5, -1), (5, 0)):  # set: read mostly, preferred location, accessed by
        cuda.cuMemAdvise(pointer, c_size_t(4096), advice, place)
    cuda.cuMemPrefetchAsync(pointer, c_size_t(4096), 0, None)
    given = told()
    for advice, place in ((2, 0), (4, 0), (6, 0)):
        cuda.cuMemAdvise(pointer, c_size_t(4096), advice, place)
    assert cuda.code("cuMemAdvise", pointer, c_size_t(4096), 5, 7)  # no such card
    return [before, given, told()]


def test_advice_about_managed_memory_is_told_again_and_taken_back(machine: Machine) -> None:
    before, given, after = machine.run(advised)
    assert before == [0, -2, -2, -2, -2, -2]
    assert given == [1, -1, 0, -1, -2, 0]
    assert after == [0, -2, -1, -2, -2, 0]
