"""Do tenants of several cards, with kernels that span them, ever deadlock or starve? On paper: no process, no clock.

    python -m bench.gangs [--handovers 100000] [--seed 1]

Each mix runs in the simulation (scheduler_backend/simulation) until every card has seen its hand-overs (a gang that
gets the tokens of two cards counts as one): all of them in the first mix, a fifth in the others. A collective runs only
while it is launched on all of its cards, launches come some 10 us apart, and messages take hops with stalls. A drain
that does not end lets the thread at the other gate in after 5 ms, as the library does. Judged: nobody who has work
waits for a second, every invariant after every hundredth event, and no two tenants' work on one card at once, but for
what was let in.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench.report import report
from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.daemon import Network
from scheduler_backend.simulation.programs import Program, spec
from scheduler_backend.simulation.watch import Gaps
from scheduler_backend.simulation.world import World


def gang(name: str, request: float, *gpus: int, **more: Any) -> Program:
    """A tenant of these cards that is always busy with collectives, unless said otherwise."""
    return Program(spec(name, request, gpus=gpus), collective=True, **more)


MIXES: dict[str, list[Program]] = {
    "two of the same two cards": [gang("a", 0.5, 0, 1), gang("b", 0.5, 0, 1)],
    "two that come and go": [
        gang("a", 0.5, 0, 1, kind="closed_loop", burst_ns=12 * MS, gap_ns=3 * MS, kernel_ns=MS),
        gang("b", 0.5, 0, 1, kind="closed_loop", burst_ns=2 * MS, gap_ns=MS),
    ],
    "a ring of three, and a single": [
        gang("a", 0.4, 0, 1),
        gang("b", 0.4, 1, 2),
        gang("c", 0.4, 2, 0),
        Program(spec("s", 0.2, gpus=(0,))),
    ],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handovers", type=int, default=1000, help="of each card of the first mix; others a fifth")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    for number, (name, programs) in enumerate(MIXES.items()):
        wanted = args.handovers if number == 0 else args.handovers // 5
        gpus = 1 + max(gpu for program in programs for gpu in program.spec.gpus)
        gaps = Gaps()
        network = Network(stall=0.001)
        world = World(programs, gpus=gpus, network=network, watchers=[gaps], seed=args.seed, check_every=100)
        while world.daemon.handovers < wanted * gpus and gaps.worst_ns(world) < 1000 * MS:
            world.run(5)
        figures[name] = {
            "handovers_per_card": world.daemon.handovers // gpus,
            "virtual_seconds": world.now_ns / 1e9,
            "longest_without_work_ms": gaps.worst_ns(world) / 1e6,
            "drains_that_needed_help": sum(process.valves for process in world.processes.values()),
        }
        print(f"{name}: {figures[name]}", file=sys.stderr, flush=True)
    passed = {f"{name}: nobody waits for a second": f["longest_without_work_ms"] < 1000 for name, f in figures.items()}
    return report("Do tenants of several cards ever deadlock or starve?", {"mixes": figures}, passed)


if __name__ == "__main__":
    sys.exit(main())
