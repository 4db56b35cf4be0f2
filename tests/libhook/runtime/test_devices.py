"""The cards by UUID: the list that Hello has, and which of it an ordinal of CUDA's, or a UUID, means."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_char_p, c_int, c_uint, c_void_p

import pytest

from tests.libhook.runtime.seams import Seams

MOST = 16  # WIRE_MAX_DEVICES
BROKEN = 101  # CUDA_ERROR_INVALID_DEVICE
Uuids = ctypes.c_ubyte * 16 * MOST


def uuid(n: int) -> bytes:
    return bytes([0xAB, n] * 8)


def text(of: bytes) -> bytes:
    return f"GPU-{of.hex()}".encode()


def cuda(seams: Seams, uuids: Sequence[bytes | None]) -> None:
    """A driver with these cards; None: it cannot say which one that is."""
    place = POINTER(c_int)

    def count(found: POINTER(c_int)) -> int:  # type: ignore[valid-type]
        found[0] = len(uuids)  # type: ignore[index]
        return 0

    def of_ordinal(found: POINTER(c_int), ordinal: int) -> int:  # type: ignore[valid-type]
        found[0] = 100 + ordinal  # type: ignore[index]
        return 0

    def uuid_of(found: int, device: int) -> int:
        name = uuids[device - 100] if 100 <= device < 100 + len(uuids) else None
        if name is None:
            return BROKEN
        ctypes.memmove(found, name, 16)
        return 0

    seams.set_real("cuDeviceGetCount", count, place)
    seams.set_real("cuDeviceGet", of_ordinal, place, c_int)
    for symbol in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2"):
        seams.set_real(symbol, uuid_of, c_void_p, c_int)


def nvml(seams: Seams, uuids: Sequence[bytes]) -> None:
    """An NVML with these cards, in its own order."""

    def count(found: POINTER(c_uint)) -> int:  # type: ignore[valid-type]
        found[0] = len(uuids)  # type: ignore[index]
        return 0

    def handle(index: int, found: POINTER(c_void_p)) -> int:  # type: ignore[valid-type]
        found[0] = 1 + index  # type: ignore[index]
        return 0

    def told(device: int, to: int, size: int) -> int:
        said = text(uuids[device - 1]) + b"\0"
        assert len(said) <= size
        ctypes.memmove(to, said, len(said))
        return 0

    seams.set_pointer("nvml.nvmlDeviceGetCount_v2", count, POINTER(c_uint))
    seams.set_pointer("nvml.nvmlDeviceGetHandleByIndex_v2", handle, c_uint, POINTER(c_void_p))
    seams.set_pointer("nvml.nvmlDeviceGetUUID", told, c_void_p, c_void_p, c_uint)


def listed(seams: Seams) -> list[bytes]:
    found = Uuids()
    count = seams.function("devices_list", c_int, c_void_p)(ctypes.addressof(found))
    return [bytes(found[i]) for i in range(count)]


def of_uuid(seams: Seams, name: bytes) -> int:
    return int(seams.function("devices_of_uuid", c_int, c_char_p)(name))


def of_cuda(seams: Seams, device: int) -> int:
    return int(seams.function("devices_of_cuda", c_int, c_int)(device))


@pytest.mark.parametrize(
    "said",
    [
        "GPU-0123abcd-4567-89ab-cdef-0123456789ab",
        "MIG-0123abcd-4567-89ab-cdef-0123456789ab",
        "0123ABCD456789ABCDEF0123456789AB",
    ],
)
def test_a_uuid_is_read_as_nvidia_writes_it(seams: Seams, said: str) -> None:
    parse, found = seams.function("devices_parse_uuid", c_bool, c_char_p, c_void_p), ctypes.create_string_buffer(16)
    assert parse(said.encode(), ctypes.addressof(found))
    assert found.raw.hex() == "0123abcd456789abcdef0123456789ab"


@pytest.mark.parametrize("said", ["", "GPU-", "GPU-0123", "GPU-0123abcd-4567-89ab-cdef-0123456789ag", "0"])
def test_what_is_no_uuid_is_none(seams: Seams, said: str) -> None:
    parse, found = seams.function("devices_parse_uuid", c_bool, c_char_p, c_void_p), ctypes.create_string_buffer(16)
    assert not parse(said.encode(), ctypes.addressof(found))


def test_before_cuda_or_nvml_has_begun_there_is_no_list(seams: Seams) -> None:
    assert not seams.function("devices_begun", c_bool)()
    assert (listed(seams), of_uuid(seams, uuid(1))) == ([], -1)
    cuda(seams, [uuid(1)])
    assert seams.function("devices_begun", c_bool)()


def test_the_list_is_in_the_order_of_cudas_ordinals(seams: Seams) -> None:
    cuda(seams, [uuid(1), None, uuid(3)])
    nvml(seams, [uuid(3), uuid(1)])
    assert listed(seams) == [uuid(1), bytes(16), uuid(3)]
    assert [of_uuid(seams, uuid(n)) for n in (1, 2, 3)] == [0, -1, 2]
    assert [of_cuda(seams, device) for device in (0, 15, 16)] == [0, 15, -1]


def test_a_list_that_began_with_nvml_has_cudas_ordinals_translated(seams: Seams) -> None:
    nvml(seams, [uuid(2), uuid(1)])
    assert listed(seams) == [uuid(2), uuid(1)]
    cuda(seams, [uuid(1), uuid(2), uuid(3)])
    assert listed(seams) == [uuid(2), uuid(1)], "the first list counts"
    assert [of_cuda(seams, 100 + n) for n in range(3)] == [1, 0, -1]


def test_no_more_cards_are_listed_than_a_hello_has_room_for(seams: Seams) -> None:
    cuda(seams, [uuid(n) for n in range(MOST + 3)])
    assert listed(seams) == [uuid(n) for n in range(MOST)]
