"""The wire codec: golden bytes of every message, and a refusal of everything that is no message."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path
from typing import Any

import pytest

from libhook import core
from libhook.core import ffi, lib

GOLDEN = Path(__file__).parents[2] / "golden" / "wire.json"
TYPES = {
    name: getattr(lib, name)
    for name in [
        "WIRE_HELLO",
        "WIRE_WELCOME",
        "WIRE_TOKEN_REQUEST",
        "WIRE_GRANT",
        "WIRE_EXTEND",
        "WIRE_REVOKE",
        "WIRE_RETURN",
        "WIRE_MEM_RESERVE",
        "WIRE_MEM_REPLY",
        "WIRE_MEM_RELEASE",
        "WIRE_MEM_RECALL",
        "WIRE_STATS",
        "WIRE_ERROR",
        "WIRE_USED",
    ]
}


def fill(cdata: Any, ctype: Any, counter: list[int]) -> None:
    """Give every field of a struct a value of its own, within what the codec allows."""
    for name, field in ctype.fields:
        if name == "header":
            continue
        kind = field.type
        counter[0] += 1
        if kind.kind == "primitive":
            small = name in ("device", "device_count", "page_slot", "managed", "granted")
            width = 8 * ffi.sizeof(kind)
            setattr(cdata, name, counter[0] % 16 if small else (counter[0] * 0x0101010101010101) % (1 << width))
        elif kind.kind == "array" and kind.item.cname == "char":
            setattr(cdata, name, f"{name}-{counter[0]}".encode())
        elif kind.kind == "array":
            array = getattr(cdata, name)
            for i in range(kind.length):
                counter[0] += 1
                if kind.item.kind == "struct":
                    fill(array[i], kind.item, counter)
                elif kind.item.kind == "array":
                    for j in range(kind.item.length):
                        array[i][j] = (counter[0] + j) % 256
                else:
                    array[i] = counter[0] << 32 | i


def sample(kind: int) -> Any:
    message = core.new(kind, serial=0x1122334455667788)
    fill(message, ffi.typeof(message).item, [kind * 16])
    return message


def test_bytes_of_every_message_are_pinned() -> None:
    golden = json.loads(GOLDEN.read_text())
    assert sorted(golden) == sorted(TYPES)
    for name, kind in TYPES.items():
        assert core.encode(sample(kind)).hex() == golden[name], name


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES.keys())
def test_a_message_comes_back_as_it_went(kind: int) -> None:
    frame = core.encode(sample(kind))
    assert len(frame) == lib.wire_size(kind) <= lib.WIRE_MAX_SIZE
    decoded_kind, message = core.decode(frame)
    assert decoded_kind == kind
    assert message.header.serial == 0x1122334455667788
    assert core.encode(message) == frame


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES.keys())
def test_every_other_size_is_refused(kind: int) -> None:
    frame = core.encode(sample(kind))
    for size in [*range(len(frame)), len(frame) + 1, lib.WIRE_MAX_SIZE, lib.WIRE_MAX_SIZE + 1, 100_000]:
        other = (frame + bytes(size))[:size]
        if size != len(frame):
            assert lib.wire_check(other, size) == -errno.EMSGSIZE


def corrupted(frame: bytes, offset: int, value: bytes) -> bytes:
    return frame[:offset] + value + frame[offset + len(value) :]


def test_refusals_say_what_was_wrong() -> None:
    grant = core.encode(sample(lib.WIRE_GRANT))
    hello = core.encode(sample(lib.WIRE_HELLO))
    welcome = core.encode(sample(lib.WIRE_WELCOME))
    offset = {n: f.offset for n, f in ffi.typeof("struct wire_hello").fields}
    slot = ffi.offsetof("struct wire_welcome", "device", 15, "page_slot")
    cases = [
        (corrupted(grant, 0, b"XX"), errno.EPROTO),
        (corrupted(grant, 2, b"\x02"), errno.EPROTONOSUPPORT),
        (corrupted(grant, 3, b"\x00"), errno.EPROTO),
        (corrupted(grant, 3, b"\x0f"), errno.EPROTO),
        (corrupted(grant, 3, b"\xff"), errno.EPROTO),
        (corrupted(grant, 3, bytes([lib.WIRE_RETURN])), errno.EMSGSIZE),
        (corrupted(grant, 4, b"\xff\xff\xff\xff"), errno.EMSGSIZE),
        (corrupted(grant, 16, b"\x10\x00\x00\x00"), errno.EINVAL),
        (corrupted(hello, offset["device_count"], b"\x11\x00\x00\x00"), errno.EINVAL),
        (corrupted(hello, offset["program"], b"x" * 32), errno.EINVAL),
        (corrupted(hello, offset["library"], b"x" * 32), errno.EINVAL),
        (corrupted(welcome, ffi.offsetof("struct wire_welcome", "tenant"), b"x" * 64), errno.EINVAL),
        (corrupted(welcome, slot, b"\x10\x00\x00\x00"), errno.EINVAL),
    ]
    for frame, expected in cases:
        with pytest.raises(core.WireError) as caught:
            core.decode(frame)
        assert caught.value.errno == expected


def test_random_bytes_are_never_a_message() -> None:
    rng = random.Random(1)
    sizes = [lib.wire_size(kind) for kind in TYPES.values()]
    for _ in range(20_000):
        size = rng.choice([rng.randrange(0, 1100), rng.choice(sizes)])
        assert lib.wire_check(rng.randbytes(size), size) < 0


def test_a_message_with_random_bytes_in_it_stays_within_its_ranges() -> None:
    rng = random.Random(2)
    frames = [core.encode(sample(kind)) for kind in TYPES.values()]
    accepted = 0
    for _ in range(20_000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(1, 12)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        kind = lib.wire_check(bytes(frame), len(frame))
        if kind < 0:
            continue
        accepted += 1
        _, message = core.decode(bytes(frame))
        fields = dict(ffi.typeof(message).item.fields)
        assert "device" not in fields or fields["device"].type.kind == "array" or message.device < lib.WIRE_MAX_DEVICES
        assert "device_count" not in fields or message.device_count <= lib.WIRE_MAX_DEVICES
        for name, field in fields.items():
            if field.type.kind == "array" and field.type.item.cname == "char":
                assert len(ffi.string(getattr(message, name))) < field.type.length
    assert accepted > 1000


def test_encode_refuses_what_decode_would() -> None:
    with pytest.raises(core.WireError):
        core.encode(core.new(lib.WIRE_GRANT, 1, device=16))


def test_page_words_are_stored_and_loaded() -> None:
    page = ffi.new("struct wire_page *")
    lib.wire_page_init(page, 7)
    assert (page.magic, page.version, page.incarnation) == (lib.WIRE_MAGIC, lib.WIRE_VERSION, 7)
    lib.wire_page_store_epoch(page, 15, 2**63 + 1)
    assert lib.wire_page_load_epoch(page, 15) == page.gpu[15].epoch == 2**63 + 1
    assert lib.wire_page_load_epoch(page, 14) == 0
