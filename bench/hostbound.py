"""What do programs get whose hosts take time, when they share a card?

    python -m bench.hostbound [--seconds 5] [--runs 5] [--case NAME]

A token that its holder keeps while its host works leaves the card idle; so does a host that stands still at a closed
gate. Busy loops cannot show it. Here each program (hostbound.c) works on its host before each launch, and most of them
wait for the card now and then, as eager PyTorch, small batches and servers of requests do.

Each case is measured in one run with Gemini, under the card's own time slicing (no library), each program alone, and
all at once on cards of their own (`apart`). `sum_by_native` is the busy time of the card against that under native
slicing. `sum_by_ideal` is that time against what the model of an ideal scheduler gives (bench/ideal.py), with hosts as
fast as they are apart, where they share the machine's processors but no card. For no scheduler of a card makes up for a
processor that is missing. (A program that waits for a card leaves its processor to the others. So with more hosts than
processors the model may give less than an ideal scheduler could.) `sum_by_ideal_alone` takes each host as fast as it is
alone. `parts_by_ideal` is each program's busy time against the model that `sum_by_ideal` has. Where a program waits for
the card, `iteration_ms` has p50 and p99 of how long that took. `by_due_pp` is how far each program's part of the busy
time is from its part of the requests: a figure only where all want more than they get.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from bench import ideal
from bench.arms import GEMINI, NONE, Runs, compile_program, middle, open_bed
from bench.bed import ROOT, Bed, wait_for
from bench.cases import run_cases
from bench.goals import Claim, claim
from bench.jitter import Probe


class Host(NamedTuple):
    """One program; microseconds. `latency`: of that class; `period_us`: a server of requests that come so often."""

    request: float
    kernel_us: int
    host_us: int
    sync_every: int
    every_us: int = 0
    pause_us: int = 0
    period_us: int = 0
    latency: bool = False
    limit: float = 1.0

    def words(self) -> list[str]:
        numbers = (self.kernel_us, self.host_us, self.sync_every, self.every_us, self.pause_us, self.period_us)
        return [str(number) for number in numbers]


BUSY = Host(0.5, 100, 2, 0)
MIXES: dict[str, tuple[Host, ...]] = {
    "20/40/20 twice": (Host(0.5, 20, 40, 20),) * 2,
    "20/40/20 twice, limits of 0.5": (Host(0.5, 20, 40, 20, limit=0.5),) * 2,  # more than either uses alone
    "20/40/20 at 0.7 and 0.3": (Host(0.7, 20, 40, 20), Host(0.3, 20, 40, 20)),
    "20/20/400 twice": (Host(0.5, 20, 20, 400),) * 2,
    "50/25/0 twice": (Host(0.5, 50, 25, 0),) * 2,
    "50/100/1 twice": (Host(0.5, 50, 100, 1),) * 2,
    "28/40/400 twice": (Host(0.5, 28, 40, 400),) * 2,
    "28/40/400 at 0.7 and 0.3": (Host(0.7, 28, 40, 400), Host(0.3, 28, 40, 400)),
    "200/100/20 twice": (Host(0.5, 200, 100, 20),) * 2,
    "20/40/20, 5 ms of pause each 15, twice": (Host(0.5, 20, 40, 20, 15_000, 5_000),) * 2,
    "20/40/20 beside busy": (Host(0.5, 20, 40, 20), BUSY),
    "50/100/1 beside busy": (Host(0.5, 50, 100, 1), BUSY),
    "28/40/400 beside busy": (Host(0.5, 28, 40, 400), BUSY),
    "5/20/20 beside busy": (Host(0.5, 5, 20, 20), BUSY),
    "0.5 ms each 40 ms beside busy": (Host(0.5, 50, 20, 10, period_us=40_000), BUSY),
    "server of 20 x 50 us beside training": (
        Host(0.5, 50, 20, 20, period_us=8_000, latency=True), Host(0.5, 28, 40, 400)),
    "server of 20 x 50 us beside training twice": (
        Host(0.4, 50, 20, 20, period_us=8_000, latency=True), *(Host(0.3, 28, 40, 400),) * 2),
    "server of 20 x 50/150 us beside busy": (Host(0.5, 50, 150, 20, period_us=20_000, latency=True), BUSY),
    "20/40/20 three times": (Host(0.33, 20, 40, 20),) * 3,
    "50/200/20 eight times": (Host(0.12, 50, 200, 20),) * 8,
}  # fmt: skip
SETTLE_SECONDS = 1.0
ALONE_SECONDS = 1.5
WARM_UP = 20  # iterations that are not counted: lengths of kernels are being learned


def model(host: Host, alone: float) -> ideal.Program:
    """The program of the model whose host takes as long as this one's did when it had so much of a card that it had to
    itself, where that shows."""
    cycle_us = host.kernel_us / alone  # from launch to launch
    host_us = float(host.host_us)
    if alone < 0.9 and not host.every_us and not host.period_us:
        waits_us = (host.kernel_us + ideal.Card().wake_us) / host.sync_every if host.sync_every else 0.0
        host_us = max(host_us, cycle_us - waits_us)
    return ideal.Program(
        host.kernel_us, host_us, host.sync_every, host.request, host.every_us, host.pause_us, host.period_us
    )


def run(hosts: tuple[Host, ...], arm: str, seconds: float) -> dict[str, Any]:
    """These programs together: busy parts of the card, and how long their iterations took."""
    program = compile_program(ROOT / "bench" / "hostbound.c", ROOT / "build" / "bench" / "hostbound", *LINK)
    with open_bed(arm) as bed:
        names = [f"t{number}" for number in range(len(hosts))]
        for name, host in zip(names, hosts, strict=True):
            bed.tenant(name, host.request, host.limit, latency=host.latency)
        children = [
            bed.spawn(name, [program, *host.words()], stdout=subprocess.PIPE, text=True)
            for name, host in zip(names, hosts, strict=True)
        ]
        bed.until_busy(*names)
        bed.sample(SETTLE_SECONDS)
        with Probe() as probe:
            record = bed.sample(seconds)
        shares = record.shares()
        parts = [shares[name] for name in names]
        return {
            "parts": parts,
            "sum": sum(parts),
            "iteration_ms": [_ended(child) for child in children],
            "stalls": len(probe.stalls),
            "achieved": _achieved(bed, names) if arm == GEMINI else None,
        }


def apart(hosts: tuple[Host, ...], seconds: float) -> list[float]:
    """The parts that they have at once of a card each: what their hosts give on this machine's processors."""
    program = compile_program(ROOT / "bench" / "hostbound.c", ROOT / "build" / "bench" / "hostbound", *LINK)
    with Bed(sim=f"gpus={len(hosts)},memory=80GiB", tokens=False) as bed:
        for number, host in enumerate(hosts):
            card = {"CUDA_VISIBLE_DEVICES": str(number)}
            bed.spawn(f"t{number}", [program, *host.words()], env=card)

        def busy() -> list[tuple[int, int]]:
            seen = [bed.busy(number) for number in range(len(hosts))]
            return [(now_ns, totals[f"t{number}"]) for number, (now_ns, totals) in enumerate(seen)]

        wait_for(lambda: all(used_ns for _, used_ns in busy()), 60, "work on each card")
        time.sleep(SETTLE_SECONDS)
        before = busy()
        time.sleep(seconds)
        return [(used - had) / (now - then) for (then, had), (now, used) in zip(before, busy(), strict=True)]


LINK = (f"-L{ROOT / 'libhook' / 'lib' / 'sim'}", "-l:libcuda.so.1", "-lpthread", "-lm")


def _achieved(bed: Bed, names: list[str]) -> list[float] | None:
    """What the daemon says that each held, as `gemini ps` shows it."""
    said = {tenant["name"]: tenant.get("achieved") for tenant in bed.state().get("tenants", [])}
    found = [said.get(name) for name in names]
    return None if None in found else [float(part) for part in found if part is not None]


def _ended(child: subprocess.Popen[str]) -> dict[str, float] | None:
    child.terminate()
    out, _ = child.communicate(timeout=60)
    took_ms = np.array([int(line) for line in out.split()][WARM_UP:]) / 1e6
    if not len(took_ms):
        return None
    return {"p50": np.percentile(took_ms, 50), "p99": np.percentile(took_ms, 99), "count": len(took_ms)}


def measure(hosts: tuple[Host, ...], arm: str, seconds: float) -> dict[str, Any]:
    """One run of an arm; with Gemini's each program alone and apart too, and the model."""
    together = run(hosts, arm, seconds)
    if arm != GEMINI:
        return together
    solo = {host: run((host,), NONE, ALONE_SECONDS) for host in dict.fromkeys(hosts)}
    alone = [solo[host]["sum"] for host in hosts]
    each = apart(hosts, ALONE_SECONDS)
    best, stretch_us = ideal.ideal([model(host, part) for host, part in zip(hosts, each, strict=True)])
    unhindered, _ = ideal.ideal([model(host, part) for host, part in zip(hosts, alone, strict=True)])
    parts = np.array(together["parts"])
    due = np.array([host.request for host in hosts])
    return {
        **together,
        "alone": alone,
        "alone_ms": [solo[host]["iteration_ms"] for host in hosts],
        "apart": each,
        "ideal": best,
        "ideal_stretch_us": stretch_us,
        "sum_by_ideal": together["sum"] / sum(best),
        "sum_by_ideal_alone": together["sum"] / sum(unhindered),
        "parts_by_ideal": (parts / np.array(best)).tolist(),
        "by_due_pp": (100 * (parts / parts.sum() - due / due.sum())).tolist(),
    }


def judge(case: str, hosts: tuple[Host, ...], runs: Runs) -> Iterable[Claim]:
    native = middle(runs[NONE], "sum") or 1.0
    for one in runs[GEMINI]:
        one["sum_by_native"] = one["sum"] / native
    yield claim("hostbound.native", middle(runs[GEMINI], "sum_by_native"), case)
    yield claim("hostbound.ideal", middle(runs[GEMINI], "sum_by_ideal"), case)
    if BUSY in hosts:
        least = [min(one["parts_by_ideal"]) for one in runs[GEMINI]]
        yield claim("hostbound.part", float(np.median(least)), case)
        if hosts[0].sync_every == 1:
            waits = {arm: float(np.median([one["iteration_ms"][0]["p50"] for one in runs[arm]])) for arm in runs}
            yield claim("hostbound.wait", waits[GEMINI] / waits[NONE], case)


def main() -> int:
    question = "What do programs get whose hosts take time, when they share a card?"
    return run_cases(__doc__, question, MIXES, (GEMINI, NONE), measure, judge, seconds=5)


if __name__ == "__main__":
    sys.exit(main())
