"""Do tenants that come and go get what a fluid server would give them?

    python -m bench.closed_loop [--seconds 8] [--runs 5] [--mix NAME]

Programs in a closed loop: a burst of GPU work, a synchronise, host time. Each tenant should get at least 0.9 x min(its
fluid share, its request), and the device should be busy at least 0.9 x as long as the fluid server (bench/gps.py) with
the same programs. Baselines in the same run: the ordering that the Gemini paper describes ("behind", grants run to
their end), a plain lock handed round robin, and no library at all.

The fluid server's programs rest exactly as long as they are told to. How long they are away on this machine, which has
to wake them from a synchronise and from a sleep, is measured with each of them alone and without the library. What of
what is due the tenants get by that measure stands beside ("least_of_due_here").
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from bench import gps
from bench.arms import BEHIND, GEMINI, LOCK, NONE, open_bed
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report

Mix = list[tuple[float, float, float]]  # (request, burst ms, gap ms); gap 0: always busy
MIXES: dict[str, Mix] = {
    "1/1 at 0.5 beside training 50/2 at 0.5": [(0.5, 1, 1), (0.5, 50, 2)],
    "3/0.5 at 0.7 beside busy at 0.3": [(0.7, 3, 0.5), (0.3, 10, 0)],
    "5/20 at 0.3 beside busy at 0.7": [(0.3, 5, 20), (0.7, 10, 0)],
    "2/2 at 0.4 beside busy at 0.6": [(0.4, 2, 2), (0.6, 10, 0)],
    "1/0.1 at 0.5 beside busy at 0.5": [(0.5, 1, 0.1), (0.5, 10, 0)],
    "10/10 at 0.5 beside 10/10 at 0.5": [(0.5, 10, 10), (0.5, 10, 10)],
    "50/20 at 0.5 beside 5/5 at 0.5": [(0.5, 50, 20), (0.5, 5, 5)],
    "20/1 at 0.3 beside 1/5 at 0.2, busy at 0.5": [(0.3, 20, 1), (0.2, 1, 5), (0.5, 10, 0)],
    "2/0.5 at 0.25, four of them": [(0.25, 2.0, 0.5)] * 4,
    "1/20 at 0.1, four of them, beside busy at 0.6": [(0.1, 1.0, 20.0)] * 4 + [(0.6, 10, 0)],
    "30/3 at 0.6 beside 3/3 at 0.2, 1/1 at 0.2": [(0.6, 30, 3), (0.2, 3, 3), (0.2, 1, 1)],
}
COMPARED = (GEMINI, BEHIND, LOCK, NONE)
KERNEL_US = 100
HANDOVER_MS = 0.25  # a shorter pause is not worth one (BURST_MERGE_NS)
SETTLE_SECONDS = 1.0
ALONE_SECONDS = 2.0


def fluid(mix: Mix) -> list[float]:
    return gps.shares(
        [gps.Program(request, 1.0, round(burst * 1e6), round(gap * 1e6)) for request, burst, gap in mix], 20
    )


def away_ms(mix: Mix) -> list[float]:
    """For each program how long it is away from the GPU between its bursts when it has the card to itself."""
    found: dict[tuple[float, float], float] = {}
    for _, burst_ms, gap_ms in mix:
        if gap_ms and (burst_ms, gap_ms) not in found:
            share = measure([(1.0, burst_ms, gap_ms)], "no library", ALONE_SECONDS)["shares"][0]
            found[burst_ms, gap_ms] = burst_ms / share - burst_ms
    return [found.get((burst_ms, gap_ms), 0.0) for _, burst_ms, gap_ms in mix]


def least(shares: np.ndarray, reference: list[float], mix: Mix) -> float:
    """The worst tenant's part of what it is due."""
    due = [min(ideal, request) for ideal, (request, *_) in zip(reference, mix, strict=True)]
    return float(np.min(shares / np.array(due)))


def floor(mix: Mix, reference: list[float], away: list[float]) -> tuple[str, float | None]:
    """Where a tenant's pauses are shorter than a hand-over: why, and what part of its due it can have here at most.

    It keeps the token over such a pause, so that of the time it is given it works burst / (burst + pause); the pause is
    what it is on this machine where the program has the card to itself. ("", None) where there is none such.
    """
    for (request, burst_ms, gap_ms), ideal, gone_ms in zip(mix, reference, away, strict=True):
        if 0 < gap_ms < HANDOVER_MS:
            most = request * burst_ms / (burst_ms + gone_ms)
            why = f"it keeps the token over pauses of {gone_ms:.2f} ms and can work {most:.3f} of the time at most"
            return why, most / min(ideal, request)
    return "", None


def served_first(mix: Mix, reference: list[float], shares: np.ndarray) -> str:
    """Who has more than a fluid server would give it, though no more than its request of what all had; "": nobody."""
    for (request, burst_ms, gap_ms), ideal, got in zip(mix, reference, shares, strict=True):
        if gap_ms and ideal < got <= 1.01 * request * float(shares.sum()):
            return (
                f"the one of {burst_ms:g}/{gap_ms:g} uses less than its request and is served at once when it comes: "
                f"it has {got:.3f}, of a fluid server {ideal:.3f}"
            )
    return ""


def measure(mix: Mix, arm: str, seconds: float) -> dict[str, Any]:
    """One run: share of each tenant, utilisation, and the time its bursts took as the program saw it."""
    with open_bed(arm) as bed:
        names = [f"t{i}" for i in range(len(mix))]
        files = []
        for name, (request, burst_ms, gap_ms) in zip(names, mix, strict=True):
            bed.tenant(name, request, 1.0)
            files.append(bed.state_dir / f"{name}.json")
            loop = ("--burst", round(burst_ms * 1000 / KERNEL_US), "--gap-us", gap_ms * 1000) if gap_ms else ()
            bed.load(name, "--kernel-us", KERNEL_US, "--seconds", 0, "--json", files[-1], *loop)
        bed.until_busy(*names)
        bed.sample(SETTLE_SECONDS)
        with Probe() as probe:
            record = bed.sample(seconds)
        for _name, child in bed.children.values():
            child.terminate()
        for _name, child in bed.children.values():
            child.wait(20)
        bursts = [json.loads(file.read_text())["burst_ms"] for file in files]
    return {
        "shares": [record.shares()[name] for name in names],
        "utilization": record.utilization(),
        "burst_ms": bursts,
        "stalls": len(probe.stalls),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mix", action="append", choices=sorted(MIXES), help="only this one; may be repeated")
    parser.add_argument("--arm", action="append", choices=sorted(COMPARED), help="only this one; may be repeated")
    args = parser.parse_args()
    table: dict[str, Any] = {}
    claims = []
    for name in args.mix or MIXES:
        mix = MIXES[name]
        reference = fluid(mix)
        away = away_ms(mix)
        here = fluid([(request, burst, gone) for (request, burst, _), gone in zip(mix, away, strict=True)])
        table[name] = {
            "fluid": reference, "fluid_utilization": sum(reference), "away_alone_ms": away, "fluid_here": here,
        }  # fmt: skip
        for arm in args.arm or COMPARED:
            runs = [measure(mix, arm, args.seconds) for _ in range(args.runs if arm == GEMINI else 1)]
            middle = np.median([run["shares"] for run in runs], axis=0)
            busy = float(np.median([run["utilization"] for run in runs]))
            worst = least(middle, reference, mix)
            table[name][arm] = {
                "shares": [float(share) for share in middle],
                "least_of_due": worst,
                "busy_of_fluid": busy / sum(reference),
                "least_of_due_here": least(middle, here, mix),
                "busy_of_fluid_here": busy / sum(here),
                "runs": runs,
            }
            texts = " ".join(f"{got:.3f}({ideal:.3f})" for got, ideal in zip(middle, reference, strict=True))
            print(f"{name:46} {arm:28} {texts}  busy {busy:.3f}({sum(reference):.3f})", file=sys.stderr)
            if arm == GEMINI:
                cause, most = floor(mix, reference, away)
                cause = cause or served_first(mix, reference, middle)
                claims.append(claim("closed.due", worst, name, cause, most))
                claims.append(claim("closed.busy", busy / sum(reference), name))
    return report("Do tenants that come and go get what a fluid server would give?", {"mixes": table}, {}, claims)


if __name__ == "__main__":
    sys.exit(main())
