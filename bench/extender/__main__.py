"""How fast is the extender, by itself and behind a real kube-scheduler?

    python -m bench.extender [--part calls | cluster | crowd] [--runs 5]

`calls` (calls.py): the filter handler and the verbs over HTTP, 5,000 nodes x 8 cards. `cluster` (cluster.py): pods per
second of an unmodified kube-scheduler with the extender and without, in one run; needs the programs of `make e2e-setup`
and is left out, and that is said, where they are not built. `crowd` (crowd.py): what another tenant's calls wait for
beside a namespace whose groups find no room.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench.extender import calls, cluster, crowd
from bench.goals import Claim
from bench.report import report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("calls", "cluster", "crowd"), help="one of them (default: all)")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=5000, help="of the first part")
    parser.add_argument("--calls", type=int, default=400, help="of each kind in a run")
    parser.add_argument("--pods", type=int, default=800, help="through filter, prioritize and bind in a run")
    parser.add_argument("--cluster-nodes", type=int, default=1000, help="of the second part")
    parser.add_argument("--cluster-pods", type=int, default=500, help="in a run of the second part")
    parser.add_argument("--crowd-pods", type=int, default=2000, help="of the third part")
    parser.add_argument("--crowd-nodes", type=int, default=80)
    parser.add_argument("--crowd-seconds", type=float, default=10)
    args = parser.parse_args()
    found: dict[str, Any] = {}
    held: dict[str, bool] = {}
    claims: list[Claim] = []
    if args.part in (None, "calls"):
        found["calls"], claims = calls.measure(args.nodes, 8, args.runs, args.calls, args.pods)
    if args.part in (None, "cluster"):
        found["cluster"], more, held = cluster.measure(args.cluster_nodes, 8, args.runs, args.cluster_pods)
        claims += more
    if args.part in (None, "crowd"):
        found["crowd"], also = crowd.measure(args.crowd_pods, args.crowd_nodes, args.crowd_seconds)
        held |= also
    return report("How fast is the extender, alone and behind kube-scheduler?", found, held, claims)


if __name__ == "__main__":
    sys.exit(main())
