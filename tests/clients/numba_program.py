"""A tenant written with numba-cuda: `python numba_program.py SECONDS`, prints JSON.

The kernel is compiled for the card and loaded as a cubin. On the simulated driver its arithmetic is not done: only
calls, copies and time are real, so the arrays that no kernel writes must come back as they went.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from lasting import lasting
from numba import cuda


@cuda.jit
def add(a: Any, b: Any, out: Any) -> None:
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


def main(seconds: float) -> dict[str, Any]:
    size = 1 << 16
    sent = np.arange(size, dtype=np.float32)
    stream = cuda.stream()
    a, b = cuda.to_device(sent, stream=stream), cuda.to_device(np.ones_like(sent), stream=stream)
    out = cuda.device_array(size, dtype=np.float32, stream=stream)
    add[size // 256, 256, stream](a, b, out)
    stream.synchronize()
    launches, working = 1, lasting(seconds)
    while working():
        for _ in range(8):
            add[size // 256, 256, stream](a, b, out)
        launches += 8
        if launches % 80 == 1:
            stream.synchronize()
    cuda.synchronize()
    memory = cuda.current_context().get_memory_info()
    return {
        "launches": launches,
        "same": bool((a.copy_to_host() == sent).all()),
        "free": memory.free,
        "total": memory.total,
        "device": cuda.get_current_device().name,
    }


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]))))
