"""`python -m bench [NAME]...`: the named benches one after another, all of them when none is named."""

from __future__ import annotations

import subprocess
import sys

BENCHES = (
    "launch_overhead",
    "handover",
    "overuse",
    "limit",
    "convergence",
    "come_and_go",
    "closed_loop",
    "memory_limit",
    "faults",
    "fairness",
    "placement",
)


def main() -> int:
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"bench: {unknown[0]} is no bench; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    return max(subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode for name in names)


if __name__ == "__main__":
    sys.exit(main())
