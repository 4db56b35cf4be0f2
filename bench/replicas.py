"""Does any mix of replicas, binders, lost answers and lagging watches promise more than a card?

    python -m bench.replicas [--operations 100000] [--seed 1] [--binders 8] [--replicas 2]

Random operations of tests/gemini/extender/binders.py, whose short form runs with the tests. No timing: a count. The
baseline in the same run is the same crowd with replicas that do not tell each other what they promise (`--alone`); it
shows that the crowd would find out.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict

from bench.report import report
from tests.gemini.extender import binders

BASELINE_OPERATIONS = 2_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binders", type=int, default=8)
    parser.add_argument("--replicas", type=int, default=2)
    args = parser.parse_args()
    started = time.monotonic()
    outcome = binders.run(args.seed, args.operations, args.binders, args.replicas)
    taken = time.monotonic() - started
    few = min(args.operations, BASELINE_OPERATIONS)
    baseline = binders.run(args.seed, few, args.binders, args.replicas, alone=True)
    figures = {
        "binders": args.binders, "replicas": args.replicas, "seed": args.seed, "seconds": round(taken, 1),
        "outcome": asdict(outcome), "baseline": {"replicas that are silent": asdict(baseline)},
    }  # fmt: skip
    passed = {
        "never more than a card is promised": outcome.peak_core <= 100 and outcome.peak_memory <= binders.CARD_BYTES,
        "nothing is left reserved": not any(outcome.left_reserved),
        "each replica's book is a fresh one's": outcome.alike,
        "silent replicas are found out": baseline.peak_core > 100,
    }
    return report("Is a card ever promised twice by several replicas?", figures, passed)


if __name__ == "__main__":
    sys.exit(main())
