"""One attacker: `python -m bench.hostile.attacker NAME`, its place as JSON on stdin. It attacks until it is ended.

It prints "ready" when it begins, and a line for each promise that it saw broken.
"""

from __future__ import annotations

import json
import resource
import sys

from bench.hostile.attacks import ATTACKS
from bench.hostile.table import Place

DESCRIPTORS = 8192


def main() -> int:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    place = Place(**json.loads(sys.stdin.readline()))
    steps = ATTACKS[sys.argv[1]].function(place)
    told: set[str] = set()
    began = False
    for said in steps:
        if not began:
            print("ready", flush=True)
            began = True
        if said is not None and said not in told:
            told.add(said)
            print(said, flush=True)
    return 1  # an attack has no end


if __name__ == "__main__":
    sys.exit(main())
