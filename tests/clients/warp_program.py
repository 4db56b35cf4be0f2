"""A tenant written with NVIDIA Warp: prints JSON of what it sees, and how its first allocation ends.

Its library has NVIDIA's runtime inside, which a simulated card has not; what it asks of the driver itself, it gets.
"""

from __future__ import annotations

import json

import warp as wp


def main() -> dict[str, object]:
    wp.config.quiet = True
    wp.init()
    device = wp.get_device("cuda:0")
    refusal = ""
    try:
        wp.empty(1 << 16, dtype=wp.float32, device=device)
    except RuntimeError as error:
        refusal = str(error)
    return {"device": device.name, "total": device.total_memory, "free": device.free_memory, "refusal": refusal}


if __name__ == "__main__":
    print(json.dumps(main()))
