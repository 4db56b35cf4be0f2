"""Call driver functions, each from a thread of its own: `calls.py < {name: [size of each argument]}`.

Prints a line of JSON with the names that returned within 0.5 s, then, when the rest has returned, one with their names.
Arguments are zero, but for the functions that look into theirs to see whether anything is to be done on the device.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import struct
import sys
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint64, c_void_p

BYTES = 4096
SCALARS = {"1": ctypes.c_ubyte, "2": ctypes.c_uint16, "4": ctypes.c_uint32, "8": c_uint64, "*": c_void_p}

cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context = c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0


pointer = c_uint64()
assert cuda.cuMemAlloc_v2(byref(pointer), c_size_t(1000 * BYTES)) == 0
places = map(c_uint64, itertools.count(pointer.value, BYTES))
source = next(places)


def words(size: int, **fields: int) -> ctypes.Array[ctypes.c_char]:
    """A structure of so many bytes, with 8-byte words at given places: at32=5."""
    memory = ctypes.create_string_buffer(size)
    for name, value in fields.items():
        struct.pack_into("<Q", memory, int(name[2:]), value)
    return memory


def given() -> dict[str, list[object]]:
    """What the copies are called with. Each has a place of its own to copy to: others copy at the same time."""
    to = next(places)
    flat = words(128, at16=2, at32=source.value, at72=2, at88=to.value, at112=BYTES, at120=1)
    deep = words(200, at32=2, at48=source.value, at120=2, at136=to.value, at176=BYTES, at184=1, at192=1)
    operation = words(112, at0=1, at8=source.value, at40=1, at48=to.value, at80=BYTES, at88=1, at96=1)
    operation[104] = 1
    attributes, zero = words(24, at0=1), (c_size_t * 1)()
    lists = [byref(to), byref(source), byref(c_size_t(BYTES)), c_size_t(1), attributes, zero, c_size_t(1)]
    return {
        "cuMemcpy": [to, source, c_size_t(BYTES)],
        "cuMemcpyAsync": [to, source, c_size_t(BYTES), None],
        "cuMemcpy2D": [flat, None],
        "cuMemcpy2DUnaligned": [flat],
        "cuMemcpy2DAsync": [flat, None],
        "cuMemcpy3D": [deep],
        "cuMemcpy3DAsync": [deep, None],
        "cuMemcpy3DPeer": [deep],
        "cuMemcpy3DPeerAsync": [deep, None],
        "cuMemcpyBatchAsync": [*lists, None, None],
        "cuMemcpy3DBatchAsync": [c_size_t(1), operation, None, None, None],
        "cuMemcpyWithAttributesAsync": [to, source, c_size_t(BYTES), attributes, None],
        "cuMemcpy3DWithAttributesAsync": [operation, None, None],
        "cuLaunchKernelEx": [words(56), None, None, None],
        "cuLaunchCooperativeKernelMultiDevice": [words(56), 1, 0],
    }


def caller(name: str, sizes: list[str], returned: list[str]) -> Callable[[], None]:
    base = name
    for suffix in ("_ptsz", "_ptds", "_v2", "_v3"):
        base = base.removesuffix(suffix)
    arguments = given().get(base) or [SCALARS[size]() for size in sizes]

    def call() -> None:
        cuda.cuCtxSetCurrent(context)
        getattr(cuda, name)(*arguments)
        returned.append(name)

    return call


def main() -> None:
    returned: list[str] = []
    asked = json.load(sys.stdin)
    threads = [threading.Thread(target=caller(name, sizes, returned)) for name, sizes in asked.items()]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    early = list(returned)
    print(json.dumps(early), flush=True)
    for thread in threads:
        thread.join()
    print(json.dumps([name for name in returned if name not in early]), flush=True)


if __name__ == "__main__":
    main()
