"""How long is the gap when the token goes from one tenant to the next?

    python -m bench.handover [--seconds 8] [--runs 5]

Two busy tenants. The gap of a hand-over begins when the holder's agent has seen its work drained (handover_stamp.c
notes when it says so). It ends when the first launch of the other reaches the card: it holds the token's way and that
launch. The device's own timeline shows the first work after that by what the card takes to go over to another context.
That is 25 us on the simulated one, from the moment at which there is work for it; it is row 7's matter and taken off.
Beside it: the card's whole idle time between the last kernel of one and the first of the other, which also holds the
drain being seen and that switch. Arms in the same run: with the token page, by ZeroMQ alone (the page socket is not
there), a plain lock handed round robin, and the card's native switch without the library.

The floors of the machine are measured in the same run, with nothing decided on the way (wake.c, echo.py). One is a word
on a socket to a process that wakes a third one, which is the token's way with the page. The other is a message to a
ROUTER in Python and its answer, which is the way by ZeroMQ alone.
"""

from __future__ import annotations

import argparse
import bisect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms import GEMINI, LOCK, NONE, ZEROMQ, compile_program, measured, middle, open_bed
from bench.bed import HOOK, ROOT
from bench.goals import claim
from bench.jitter import Probe
from bench.report import report
from libhook.observer import Segment

BUILD = ROOT / "build" / "bench"
SWITCH_US = 25  # the card's own, from a context that has nothing to run; see docs/simulator.md
ECHO_ROUNDS = 400


def switches(segments: list[Segment]) -> list[tuple[int, int]]:
    """(end of the last work of one process, start of the first work of another), nanoseconds."""
    found = []
    last: Segment | None = None
    for segment in sorted(segments, key=lambda one: one.start_ns):
        if last is not None and last.pid != segment.pid:
            found.append((last.end_ns, segment.start_ns))
        last = segment
    return found


def stamps(folder: Path) -> list[int]:
    """When agents saw a drain, ascending; of a word and its Return that follows only the first counts."""
    found = [np.fromfile(path, dtype=np.uint64).reshape(-1, 2)[:, 0] for path in folder.glob("*.stamps")]
    return sorted(int(at) for at in np.concatenate(found)) if found else []


def measure(arm: str, seconds: float) -> dict[str, Any]:
    """One run: gaps and idle times in microseconds."""
    stamp = compile_program(ROOT / "bench" / "handover_stamp.c", BUILD / "handover_stamp.so", "-shared", "-fPIC")
    with open_bed(arm, sim=f"memory=80GiB,drained={SWITCH_US}us") as bed:
        for name in ("a", "b"):
            bed.tenant(name, 0.5, 1.0)
            env = {"GEMINI_STAMP": str(bed.state_dir / f"{name}.stamps"), "LD_PRELOAD": f"{stamp}:{HOOK}"}
            bed.load(name, "--seconds", 0, env=env if bed.tokens else {})
        bed.until_busy("a", "b")
        bed.sample(1.0)
        sequence = bed.timeline.segments(0, 0)[0]
        segments: list[Segment] = []
        with Probe() as probe:
            for _ in range(max(1, round(seconds / 0.2))):
                bed.sample(0.2)
                sequence, more = bed.timeline.segments(0, sequence)
                segments += more
        state = bed.state() if bed.tokens else {}
        seen = stamps(bed.state_dir)
    found = switches(segments)
    idle = np.array([(start - end) / 1e3 for end, start in found])
    stalled = probe.stalled(np.array([end for end, _start in found], dtype=np.int64) - 5_000_000, 10_000_000)
    gaps = []
    for end, start in found:
        at = bisect.bisect_left(seen, end)
        if at < len(seen) and seen[at] <= start:
            gaps.append(max(0.0, (start - seen[at]) / 1e3 - SWITCH_US))
    answer: dict[str, Any] = {"handovers": len(found), "stalled": int(stalled.sum()), "stalls": len(probe.stalls)}
    answer["idle_us"] = quantiles(idle)
    answer["idle_calm_us"] = quantiles(idle[~stalled])
    if bed.tokens:
        answer["gap_us"] = quantiles(np.array(gaps))
        answer["daemon_us"] = state.get("handover_us")
    return answer


def quantiles(found: np.ndarray) -> dict[str, float] | None:
    """Median and 99th percentile; None of nothing."""
    if not len(found):
        return None
    return {"p50": float(np.percentile(found, 50)), "p99": float(np.percentile(found, 99))}


def floors_us() -> dict[str, Any]:
    """One futex wake between processes of this machine, the token's way with a page, and a round by messages."""
    program = compile_program(ROOT / "bench" / "wake.c", BUILD / "wake", "-lpthread")
    wakes = json.loads(subprocess.run([str(program)], capture_output=True, check=True).stdout)
    command = [sys.executable, "-m", "bench.echo", str(ECHO_ROUNDS)]
    echo = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    return {"wake": {key: wakes[key] for key in ("p50", "p99")}, "way": wakes["way"], "messages": echo}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    floor = floors_us()
    runs = measured((GEMINI, ZEROMQ, LOCK, NONE), args.runs, lambda arm: measure(arm, args.seconds))
    page, messages = middle(runs[GEMINI], "gap_us", "p50"), middle(runs[ZEROMQ], "gap_us", "p50")
    figures = {
        "gap_us_p50": page,
        "idle_us_p50": middle(runs[GEMINI], "idle_us", "p50"),
        "idle_us_p99": middle(runs[GEMINI], "idle_us", "p99"),
        "floor_us": floor,
        "runs": runs,
    }
    way, echo = floor["way"]["p50"], floor["messages"]["p50"]
    claims = [
        claim("handover.page", page, "", f"the token's bare way takes {way:.0f} us at the median here", way),
        claim(
            "handover.zeromq", messages, "", f"a message to Python and its bare answer take {echo:.0f} us here", echo
        ),
    ]
    return report("How long is the gap at a hand-over?", figures, {}, claims)


if __name__ == "__main__":
    sys.exit(main())
