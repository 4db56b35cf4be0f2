"""A tenant's process that sets memory of its card as each line asks, and answers with what is there afterwards.

A line is JSON: a symbol, then [size in bytes, value] of each argument behind the pointer, and whether a stream follows.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import c_size_t, c_uint64

from tests.libhook.sim.cuda import Cuda

BYTES, BEFORE = 64, 0xEE
SCALARS = {1: ctypes.c_ubyte, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: c_uint64}


def main() -> None:
    cuda = Cuda()
    pointer, host = c_uint64(cuda.malloc(BYTES)), ctypes.create_string_buffer(BYTES)
    for line in sys.stdin:
        symbol, scalars, streamed = json.loads(line)
        ctypes.memset(host, BEFORE, BYTES)
        cuda.cuMemcpyHtoD_v2(pointer, host, c_size_t(BYTES))
        arguments = [SCALARS[size](value) for size, value in scalars] + ([None] if streamed else [])
        getattr(cuda, symbol)(pointer, *arguments)
        cuda.cuCtxSynchronize()
        cuda.cuMemcpyDtoH_v2(host, pointer, c_size_t(BYTES))
        print(host.raw.hex(), flush=True)


if __name__ == "__main__":
    main()
