"""A tenant written with Taichi: `python taichi_program.py SECONDS`, prints JSON.

Its own library is loaded with RTLD_DEEPBIND, opens `libcuda.so`, and goes on without a card where one name is missing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import taichi as ti
from lasting import lasting

MIB = 1 << 20


def main(seconds: float) -> dict[str, Any]:
    ti.init(arch=ti.cuda, device_memory_GB=0.25, offline_cache=False, log_level=ti.ERROR)
    values = ti.field(ti.f32, shape=1 << 16)

    @ti.kernel
    def step():  # type: ignore[no-untyped-def]  # Taichi takes None for a type
        for i in values:
            values[i] = values[i] * 0.5 + 1.0

    launches, working = 0, lasting(seconds)
    while working():
        for _ in range(8):
            step()
        launches += 8
        if launches % 80 == 0:
            ti.sync()
    ti.sync()
    held, refusal = [], ""
    try:
        for _ in range(4096):
            one = ti.ndarray(ti.f32, shape=4 * MIB)
            one.fill(1.0)
            held.append(one)
        ti.sync()
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}"
    return {
        "arch": str(ti.cfg.arch), "launches": launches, "allocated": 16 * MIB * len(held), "refusal": refusal,
    }  # fmt: skip


if __name__ == "__main__":
    answer = main(float(sys.argv[1]))
    sys.stdout.write(json.dumps(answer) + "\n")
