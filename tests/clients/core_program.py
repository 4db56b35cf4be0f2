"""A tenant written with cuda-core: `python core_program.py SECONDS KERNEL_US`, prints JSON.

NVRTC compiles the kernel to a cubin; the driver only has to load and launch it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from lasting import lasting

CODE = 'extern "C" __global__ void gemini_spin(unsigned long long nanoseconds) {}'


def main(seconds: float, kernel_us: int) -> dict[str, Any]:
    device = Device()
    device.set_current()
    stream = device.create_stream()
    capability = device.compute_capability
    options = ProgramOptions(arch=f"sm_{capability.major}{capability.minor}")
    kernel = Program(CODE, "c++", options).compile("cubin").get_kernel("gemini_spin")
    config, value = LaunchConfig(grid=1, block=32), np.uint64(kernel_us * 1000)
    buffer = device.allocate(1 << 20, stream=stream)
    launches, working = 0, lasting(seconds)
    while working():
        for _ in range(8):
            launch(stream, config, kernel, value)
        launches += 8
        if launches % 80 == 0:
            stream.sync()
    event = stream.record()
    event.sync()
    size = buffer.size
    buffer.close(stream)
    stream.sync()
    return {"launches": launches, "gpu_ns": launches * kernel_us * 1000, "bytes": size, "device": device.name}


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]), int(sys.argv[2]))))
