"""What does a hostile tenant's flood cost the others?

    python -m bench.hostile [--seconds 10] [--runs 3] [--way NAME] [--tenants 1]

Two tenants are busy; a process in a third one's container floods the daemon in each of the ways of bench/flood.py
(with --tenants more, each with its own container). The baseline is `burn`, a process that does nothing to the daemon
but burns a processor as the flood does: on a machine of two, that costs them too. Both stand in the same bed and take
turns of a second, so that whatever else the machine does hits both alike. The figure is what the victims lose of the
card while it floods and not while it burns, in percentage points: the sum of what each has less in the median of the
turns, where it has less than it asked for (all requests make up the whole card, and the hostile tenant may have its
own: some floods ask for the token and sit on it). Beside it stand the processor time that the daemon spends on it, and
the memory that it grows by.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np

from bench.bed import ROOT, Bed
from bench.flood import WAYS
from bench.jitter import Probe
from bench.report import report
from bench.tenants import cpu_ns, resident_bytes

ALLOWED_PP = 1.0
VICTIMS = (("a", 0.5, 1.0), ("b", 0.3, 1.0))
HOSTILE, MEMORY = 0.2, 1 << 30
TURN_SECONDS, SETTLE_SECONDS = 1.0, 0.15


class Attack:
    """Processes that flood or burn, stopped until it is their turn. Leaving the `with` block ends them."""

    def __init__(self, way: str, paths: list[str], uuid: str) -> None:
        self._commands = [[sys.executable, "-m", "bench.flood", way, path, uuid] for path in paths]
        self.children: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Attack:
        try:
            for command in self._commands:
                self.children.append(
                    subprocess.Popen(
                        command,
                        cwd=ROOT,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        text=True,
                        start_new_session=True,  # a container has processor time of its own
                    )
                )
            for child in self.children:
                assert child.stdout is not None
                child.stdout.readline()
            self.tell(signal.SIGSTOP)
        except BaseException:
            self.__exit__()
            raise
        return self

    def tell(self, number: int) -> None:
        for child in self.children:
            child.send_signal(number)

    def alive(self) -> bool:
        return all(child.poll() is None for child in self.children)

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()  # which reaches those that are stopped, too
        for child in self.children:
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


def turn(bed: Bed, attack: Attack) -> dict[str, Any]:
    """What the victims and the daemon did while these had their turn."""
    assert bed.daemon is not None
    attack.tell(signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    spent, began_ns = cpu_ns(bed.daemon.pid), time.monotonic_ns()
    record = bed.sample(TURN_SECONDS)
    spent, elapsed_ns = cpu_ns(bed.daemon.pid) - spent, time.monotonic_ns() - began_ns
    attack.tell(signal.SIGSTOP)
    return {
        **record.shares(),
        "utilization": record.utilization(),
        "daemon_percent": 100 * spent / elapsed_ns,
        "daemon_mib": resident_bytes(bed.daemon.pid) / (1 << 20),
    }


def measure(way: str, seconds: float, tenants: int) -> dict[str, Any]:
    """Turns of burning and of flooding, one after the other."""
    with Bed() as bed:
        bed.start_loads(*VICTIMS, options=("--seconds", 0))
        paths = [bed.tenant(f"hostile{number}", HOSTILE / tenants, 1.0, memory=MEMORY) for number in range(tenants)]
        uuid = bed.timeline.devices()[0].uuid.removeprefix("GPU-").replace("-", "")
        bed.sample(1.0)
        turns: dict[str, list[dict[str, Any]]] = {"burn": [], way: []}
        with Attack("burn", paths, uuid) as burns, Attack(way, paths, uuid) as floods:
            with Probe() as probe:
                for _ in range(max(1, round(seconds / 2 / TURN_SECONDS))):
                    turns["burn"].append(turn(bed, burns))
                    turns[way].append(turn(bed, floods))
            flooded = floods.alive()
        middle = {arm: {key: float(np.median([one[key] for one in found])) for key in found[0]}
                  for arm, found in turns.items()}  # fmt: skip
        lost = {
            name: 100 * max(0.0, min(request, middle["burn"][name]) - middle[way][name]) for name, request, _ in VICTIMS
        }
        return {
            "lost_pp": sum(lost.values()),
            "lost_pp_of": lost,
            "daemon_mib_more": max(one["daemon_mib"] for one in turns[way]) - turns["burn"][0]["daemon_mib"],
            "daemon_percent_more": middle[way]["daemon_percent"] - middle["burn"]["daemon_percent"],
            "burning": middle["burn"],
            "flooding": middle[way],
            "flooded": flooded,
            "stalls": len(probe.stalls),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tenants", type=int, default=1, help="so many containers flood, each in this way")
    parser.add_argument("--way", action="append", choices=sorted(WAYS), help="only this one; may be repeated")
    args = parser.parse_args()
    ways = [way for way in args.way or WAYS if way != "burn"]
    runs: dict[str, list[dict[str, Any]]] = {}
    lost = {}
    for way in ways:
        runs[way] = [measure(way, args.seconds, args.tenants) for _ in range(args.runs)]
        lost[way] = float(np.median([run["lost_pp"] for run in runs[way]]))
        more = float(np.median([run["daemon_percent_more"] for run in runs[way]]))
        grown = max(run["daemon_mib_more"] for run in runs[way])
        line = f"{way:12} {lost[way]:+.2f} pp, daemon {more:+.1f} % of a core, {grown:+.0f} MiB"
        print(line, file=sys.stderr, flush=True)
    passed = {f"{way}: less than 1 pp beyond what burning a processor costs": lost[way] < ALLOWED_PP for way in ways}
    passed["every flood lasted"] = all(run["flooded"] for found in runs.values() for run in found)
    return report("What does a flood cost the others?", {"lost_pp": lost, "runs": runs}, passed)


if __name__ == "__main__":
    sys.exit(main())
