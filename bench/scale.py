"""The scheduler on paper: days of many tenants on many cards, the pure machine in its simulation. No process, no clock.

Every node is a world of its own with its own seed. Judged: the invariants, and that no two tenants ever work on one
card at once. And no tenant of one card with a request and headroom may wait longer than its last held time / request +
the others' quotas + one kernel (a kernel longer than a quota counts in its place: watch.py). Those who wait at the end
are included. The baseline is the same day under plain weighted fair queueing (`ordering = "finish"`), in short runs.
With --trace the nodes' tenants are those that a daemon recorded, for as long as the record is. Each node then has
messages that take their own time. Progress goes to stderr each virtual hour; SIGINT ends the run there and reports what
was reached.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench.report import report
from scheduler_backend.core.policy import Policy
from scheduler_backend.problem import Problem
from scheduler_backend.simulation.daemon import Network
from scheduler_backend.simulation.recorded import Recorded, recorded
from scheduler_backend.simulation.scenarios import day, trouble
from scheduler_backend.simulation.watch import Timeline, Waits
from scheduler_backend.simulation.world import World


def node(
    arguments: argparse.Namespace, record: Recorded | None, seed: int, ordering: str
) -> tuple[World, Waits, Timeline]:
    """One node's whole time."""
    seconds = arguments.hours * 3600
    waits, timeline = Waits(), Timeline()
    network = Network(stall=0.0005, stall_ns=300_000)
    policy = (record.policy if record is not None else Policy())._replace(ordering=ordering)
    world = World(
        [],
        gpus=arguments.gpus,
        policy=policy,
        network=network,
        watchers=[waits] if record is None else [waits, timeline],
        seed=seed,
        check_every=arguments.check_every,
    )
    if record is not None:
        record.fill(world)
    else:
        day(world, arguments.tenants, seconds, seed)
    if arguments.trouble:
        trouble(world, arguments.trouble, seconds, seed)
    try:
        while (left_s := seconds - world.now_ns / 1e9) > 1e-6:  # the world counts whole nanoseconds
            world.run(min(3600.0, left_s))
            print(
                f"{world.now_ns / 3.6e12:.1f} h: {world.daemon.handovers} hand-overs, {waits.worst}",
                file=sys.stderr,
                flush=True,
            )
    except KeyboardInterrupt:
        print(f"ended at {world.now_ns / 3.6e12:.2f} h", file=sys.stderr)
    waits.end(world)
    return world, waits, timeline


def played(record: Recorded, timeline: Timeline) -> dict[str, dict[str, float]]:
    """Of each tenant on each card, what it had when it was recorded and what in the simulation."""
    return {
        f"{name} on GPU {gpu}": {
            "recorded": record.share(name, gpu),
            "simulated": sum(timeline.bins[name, gpu].values()) / 1e9 / record.seconds,
        }
        for name, gpu in sorted(record.busy_ns)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenants", type=int, default=64, help="on each card")
    parser.add_argument("--hours", type=float, default=0.01, help="of virtual time")
    parser.add_argument("--gpus", type=int, default=1, help="of each node")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check-every", type=int, default=100, help="events; 0: never")
    parser.add_argument(
        "--trouble", type=float, default=0.0, help="mean seconds between faults; then waits are not judged"
    )
    parser.add_argument("--trace", type=Path, help="a trace.jsonl: its tenants, GPUs, time and policy instead")
    arguments = parser.parse_args()
    record = None
    if arguments.trace:
        try:
            record = recorded(arguments.trace)
        except Problem as problem:
            parser.error(str(problem))
        arguments.gpus, arguments.hours = record.gpus, record.seconds / 3600
    figures: dict[str, object] = {}
    tenants = arguments.gpus * arguments.tenants
    if record is not None:
        tenants = len({program.spec.name for program in record.programs})
    late = 0
    for ordering in ("eevdf", "finish"):
        nodes = 1 if ordering == "finish" else arguments.nodes
        started = time.process_time()
        events = handovers = waits = past_quotas = late_here = 0
        worst = (0.0, "")
        reached_ns = 0
        for number in range(nodes):
            world, judged, timeline = node(arguments, record, arguments.seed + number, ordering)
            events += world.daemon.handled
            handovers += world.daemon.handovers
            waits += judged.waits
            past_quotas += judged.past_quotas
            late_here += len(judged.late)
            worst = max(worst, judged.worst)
            reached_ns += world.now_ns
        took = time.process_time() - started
        figures[ordering] = {
            "cards": nodes * arguments.gpus,
            "tenants": nodes * tenants,
            "virtual_hours": reached_ns / nodes / 3.6e12,
            "events": events,
            "handovers": handovers,
            "waits": waits,
            "waits_past_quotas_and_one_kernel": past_quotas,
            "waits_past_their_bound": late_here,
            "longest_wait_by_its_bound": worst[0],
            "longest_wait": worst[1],
            "cpu_seconds": took,
            "us_per_event": took / max(1, events) * 1e6,
        }
        if record is not None and ordering == "eevdf":
            figures["shares_of_the_last_node"] = played(record, timeline)
        late = late or (late_here if ordering == "eevdf" and not arguments.trouble else 0)
        if arguments.hours > 0.1:
            break  # the baseline shows enough in a short run
    return report(
        "Does the machine keep its promises over a day of 64 tenants, and over many cards?",
        figures,
        {"no wait past its bound": late == 0},
    )


if __name__ == "__main__":
    sys.exit(main())
