"""A tenant written with Dr.Jit: `python drjit_program.py SECONDS`, prints JSON.

It opens the driver itself, writes PTX and has the driver link it; nothing of the runtime library. On the simulated
driver no kernel computes: what an array holds means nothing, but calls, copies and time are real.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import drjit as dr
from drjit.cuda import Float
from lasting import lasting

MIB = 1 << 20


def fill() -> tuple[int, str]:
    """Arrays until there is no more; how much that was, and what the refusal was."""
    held: list[Any] = []
    try:
        for index in range(4096):
            one = dr.full(Float, float(index), 4 * MIB)
            dr.make_opaque(one)
            held.append(one)
    except RuntimeError as error:
        return 16 * MIB * len(held), str(error)
    return 16 * MIB * len(held), ""


def main(seconds: float) -> dict[str, Any]:
    x = dr.arange(Float, 1 << 16)
    dr.make_opaque(x)
    launches, working = 0, lasting(seconds)
    while working():
        for _ in range(8):
            x = dr.fma(x, 0.5, 1.0)
            dr.eval(x)
        launches += 8
        if launches % 80 == 0:
            dr.sync_thread()
    dr.sync_thread()
    allocated, refusal = fill()
    return {"launches": launches, "allocated": allocated, "refusal": refusal}


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]))))
