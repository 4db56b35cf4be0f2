"""A tenant written with cuda-bindings: `python bindings_program.py SECONDS KERNEL_US [BYTES]`, prints JSON.

It launches kernels of that length for so long, in a stream and in a captured graph, times some by events, and moves
bytes there and back. With BYTES it then allocates 1 MiB pieces until that much or until the driver refuses.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from cuda.bindings import driver
from lasting import lasting

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry gemini_spin(.param .u64 nanoseconds)
{ ret; }
\0"""


def check(answer: tuple[Any, ...]) -> Any:
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(code)
    return values[0] if len(values) == 1 else tuple(values)


def main(seconds: float, kernel_us: int, limit: int) -> dict[str, Any]:
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
    spin = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(PTX)), b"gemini_spin"))
    stream, start, end = check(driver.cuStreamCreate(0)), check(driver.cuEventCreate(0)), check(driver.cuEventCreate(0))
    value = np.array([kernel_us * 1000], dtype=np.uint64)
    arguments = np.array([value.ctypes.data], dtype=np.uint64)

    def launch() -> None:
        check(driver.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments.ctypes.data, 0))

    sent, back = np.arange(4096, dtype=np.int32), np.zeros(4096, dtype=np.int32)
    pointer = check(driver.cuMemAlloc(sent.nbytes))
    check(driver.cuMemcpyHtoDAsync(pointer, sent.ctypes.data, sent.nbytes, stream))
    check(driver.cuMemcpyDtoHAsync(back.ctypes.data, pointer, back.nbytes, stream))
    check(driver.cuEventRecord(start, stream))
    launch()
    check(driver.cuEventRecord(end, stream))
    check(driver.cuStreamSynchronize(stream))
    event_ms = check(driver.cuEventElapsedTime(start, end))

    check(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    for _ in range(4):
        launch()
    graph = check(driver.cuGraphInstantiate(check(driver.cuStreamEndCapture(stream)), 0))
    launches, working = 1, lasting(seconds)
    while working():
        for _ in range(4):
            launch()
        check(driver.cuGraphLaunch(graph, stream))
        launches += 8
        if launches % 80 == 1:
            check(driver.cuStreamSynchronize(stream))
    check(driver.cuCtxSynchronize())

    allocated, refusal = 0, None
    while allocated < limit:
        code, _ = driver.cuMemAlloc(1 << 20)
        if code != driver.CUresult.CUDA_SUCCESS:
            refusal = code.name
            break
        allocated += 1 << 20
    free, total = check(driver.cuMemGetInfo())
    return {
        "launches": launches,
        "gpu_ns": launches * kernel_us * 1000,
        "event_ms": event_ms,
        "same": bool((sent == back).all()),
        "allocated": allocated,
        "refusal": refusal,
        "free": free,
        "total": total,
    }


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)))
