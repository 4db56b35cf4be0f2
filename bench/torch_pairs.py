"""What do PyTorch programs get that share a card?

    python -m bench.torch_pairs [--seconds 8] [--runs 5] [--case NAME]

GPT-2's training alone, beside training, and beside a server of requests (class latency), by PyTorch as published
(torch_programs.py; `python -m tests.frameworks.environment` fetches it once). The simulated card has the constants of
an H200: with few tokens a step the host is the bottleneck, as in eager PyTorch, with many the card is.

The programs of a case are started once with Gemini and once without the library, each pair on a card of its own, and
wait. A run then lets them work in turn: each alone, both on one card, and each on a card of its own, so that whatever
the machine does hits all alike. Rates are steps or requests a second; shares come from the card's own timeline.

`apart` has each program while the others work on the other card. Whatever it loses there, it loses to the processors
that all share, and no arbiter of a card can give it back; `apart_by_alone` is its rate by its rate alone.

`by_alone` is each program's rate beside the other against its rate alone without the library; `sum` is the sum of
these, and `sum_by_native` that sum against the one under the card's own time slicing. `alone_by_native` is each
program's rate alone with Gemini against without: what Gemini costs who has the card to itself. `by_due_pp` is how far
each program's part of the card's busy time is from its part of the requests. Of a server, `ms` has p50 and p99 of a
request, from when it came. Alone is measured in pairs of short stretches, with Gemini and without in turn; rates and
ratios are their medians, and `alone_pairs` has each pair's ratio. `cpu_by_native` compares in the same way the
processor's time of a step, over all threads of the process: what Gemini's own code costs, also where other programs on
the machine make rates say little.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.arms import GEMINI, NONE, open_bed
from bench.bed import ROOT, Bed
from bench.goals import Claim, claim
from bench.jitter import Probe
from bench.report import report
from gemini.cli.node import sim_front
from tests.frameworks.environment import python_of

QUESTION = "What do PyTorch programs get that share a card?"
PROGRAM = ROOT / "bench" / "torch_programs.py"
ARMS = (NONE, GEMINI)
SETTLE_SECONDS = 0.5
PAIRS = 4  # of short stretches alone, on one card and on the other: noise that lasts longer hits both of a pair


class Torch(NamedTuple):
    """One program: what it does (words for torch_programs.py), and its share."""

    request: float
    words: str
    latency: bool = False


HOST_BOUND = "train --batch 24 --tokens 512"
CARD_BOUND = "train --batch 96 --tokens 512"
SERVER = "serve --batch 1 --period-ms 150"
CASES: dict[str, tuple[Torch, ...]] = {
    "host-bound training alone": (Torch(1.0, HOST_BOUND),),
    "card-bound training alone": (Torch(1.0, CARD_BOUND),),
    "host-bound training twice": (Torch(0.5, HOST_BOUND),) * 2,
    "host-bound training at 0.7 and 0.3": (Torch(0.7, HOST_BOUND), Torch(0.3, HOST_BOUND)),
    "card-bound training twice": (Torch(0.5, CARD_BOUND),) * 2,
    "card-bound training at 0.7 and 0.3": (Torch(0.7, CARD_BOUND), Torch(0.3, CARD_BOUND)),
    "host-bound beside card-bound training": (Torch(0.5, HOST_BOUND), Torch(0.5, CARD_BOUND)),
    "server beside host-bound training": (Torch(0.5, SERVER, latency=True), Torch(0.5, HOST_BOUND)),
    "server beside card-bound training": (Torch(0.5, SERVER, latency=True), Torch(0.5, CARD_BOUND)),
}


class Program:
    """A process of this bench: `go`, and when it was told to stop, what it did meanwhile."""

    def __init__(self, bed: Bed, name: str, what: Torch, python: str) -> None:
        bed.tenant(name, what.request, 1.0, latency=what.latency)
        first = bed.environment(name)["LD_PRELOAD"]
        env = {"LD_PRELOAD": " ".join([*filter(None, [first]), *sim_front()]), "OMP_NUM_THREADS": "1"}
        log = (bed.state_dir / f"{name}.err").open("wb")
        words: list[str | Path] = [python, PROGRAM, *what.words.split()]
        with log:
            self.process = bed.spawn(
                name, words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.name, self.log = name, bed.state_dir / f"{name}.err"

    def heard(self) -> str:
        assert self.process.stdout is not None
        line = str(self.process.stdout.readline())
        if not line:
            raise RuntimeError(f"{self.name} ended: {self.log.read_text()[-2000:]}")
        return line

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()


def together(bed: Bed, programs: list[Program], seconds: float, apart: Iterable[Program] = ()) -> dict[str, Any]:
    """What these programs get while only they work, and `apart` on another card."""
    for program in (*programs, *apart):
        program.say("go")
    bed.sample(SETTLE_SECONDS, step_s=0.1)
    record = bed.sample(seconds, step_s=0.1)
    for program in (*programs, *apart):
        program.say("stop")
    for program in apart:
        program.heard()
    begin, end = int(record.at_ns[0]), int(record.at_ns[-1])
    shares = record.shares()
    return {
        program.name: {"busy": shares[program.name], **told(json.loads(program.heard()), begin, end)}
        for program in programs
    }


def told(said: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    """What a program says that it did, and the processor's time of each step of its stretch."""
    return {**rate(said["done"], begin, end), "cpu_ms": said["cpu_ns"] / 1e6 / max(1, len(said["done"]))}


def rate(done: list[tuple[int, int]], begin: int, end: int) -> dict[str, Any]:
    """Steps a second in this window, those at its edges in part; how long those took that ended in it."""
    spans = np.array(done, dtype=np.int64).reshape(-1, 2)
    inside = np.minimum(spans[:, 1], end) - np.maximum(spans[:, 0], begin)
    parts = np.clip(inside / np.maximum(spans[:, 1] - spans[:, 0], 1), 0, 1)
    took_ms = (spans[:, 1] - spans[:, 0])[(spans[:, 1] > begin) & (spans[:, 1] <= end)] / 1e6
    answer: dict[str, Any] = {"rate": float(parts.sum() / (end - begin) * 1e9)}
    if len(took_ms):
        answer["ms"] = {"p50": float(np.percentile(took_ms, 50)), "p99": float(np.percentile(took_ms, 99))}
    return answer


def turns(beds: dict[str, Bed], programs: dict[str, list[Program]], seconds: float) -> dict[str, Any]:
    """One run: on each card each program alone, all, and each while the others are on the other card."""
    found: dict[str, Any] = {arm: {"alone": {}} for arm in ARMS}
    with Probe() as probe:
        for number in range(len(programs[NONE])):
            stretches: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
            for pair, place in itertools.product(range(PAIRS), range(len(ARMS))):
                arm = ARMS[(pair + place) % len(ARMS)]
                stretches[arm].append(together(beds[arm], [programs[arm][number]], seconds / PAIRS))
            for arm in ARMS:
                found[arm]["alone"] |= middle_of(stretches[arm])
        for arm, other in zip(ARMS, reversed(ARMS), strict=True):
            found[arm]["both"] = together(beds[arm], programs[arm], seconds)
            found[arm]["apart"] = {}
            for number, one in enumerate(programs[arm]):
                others = [program for place, program in enumerate(programs[other]) if place != number]
                found[arm]["apart"] |= together(beds[arm], [one], seconds, others) if others else {}
    return found | {"stalls": len(probe.stalls)}


def middle_of(stretches: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a program alone: the medians over its stretches, and the rate of each."""
    (name,) = stretches[0]
    rates = [stretch[name]["rate"] for stretch in stretches]
    answer: dict[str, Any] = {"rate": float(np.median(rates)), "rates": rates}
    answer["cpu_ms"] = [stretch[name]["cpu_ms"] for stretch in stretches]
    took = [stretch[name]["ms"] for stretch in stretches if "ms" in stretch[name]]
    if took:
        answer["ms"] = {part: float(np.median([ms[part] for ms in took])) for part in ("p50", "p99")}
    return {name: answer}


def judged(case: tuple[Torch, ...], one: dict[str, Any]) -> dict[str, Any]:
    """The ratios of one run."""
    names = [f"t{number}" for number in range(len(case))]
    alone = {name: one[NONE]["alone"][name]["rate"] for name in names}
    for arm in ARMS:
        both = one[arm]["both"]
        busy = sum(both[name]["busy"] for name in names) or 1.0
        due = sum(program.request for program in case)
        one[arm]["by_alone"] = [both[name]["rate"] / alone[name] for name in names]
        one[arm]["sum"] = sum(one[arm]["by_alone"])
        one[arm]["apart_by_alone"] = [one[arm]["apart"][name]["rate"] / alone[name] for name in one[arm]["apart"]]
        one[arm]["card_busy"] = busy
        one[arm]["by_due_pp"] = [
            100 * (both[name]["busy"] / busy - program.request / due) for name, program in zip(names, case, strict=True)
        ]
    one["sum_by_native"] = one[GEMINI]["sum"] / one[NONE]["sum"]
    one["alone_pairs"] = [pairs(one, name, "rates") for name in names]
    one["alone_by_native"] = [float(np.median(ratios)) for ratios in one["alone_pairs"]]
    one["cpu_by_native"] = [float(np.median(pairs(one, name, "cpu_ms"))) for name in names]
    return one


def pairs(one: dict[str, Any], name: str, what: str) -> list[float]:
    """With Gemini by without, in each pair of stretches in which this program was alone."""
    own, native = (one[arm]["alone"][name][what] for arm in (GEMINI, NONE))
    return [a / b for a, b in zip(own, native, strict=True)]


def measure(case: tuple[Torch, ...], seconds: float, runs: int, python: str) -> Iterator[dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        beds = {arm: stack.enter_context(open_bed(arm, sim="profile=h200")) for arm in ARMS}
        programs = {
            arm: [Program(beds[arm], f"t{number}", what, python) for number, what in enumerate(case)] for arm in ARMS
        }
        for program in itertools.chain(*programs.values()):
            program.heard()
        for _ in range(runs):
            yield judged(case, turns(beds, programs, seconds))


def line(one: dict[str, Any]) -> str:
    """A run, for a person who waits for the next."""

    def figures(values: Any) -> str:
        return ", ".join(f"{value:.3f}" for value in values)

    native, own = one[NONE], one[GEMINI]
    text = f"by native {one['sum_by_native']:.3f}; native: {figures(native['by_alone'])} of alone, "
    text += f"card {native['card_busy']:.2f} busy; Gemini: {figures(own['by_alone'])}, card {own['card_busy']:.2f}; "
    text += f"alone with Gemini {figures(one['alone_by_native'])}, processor {figures(one['cpu_by_native'])}"
    if native["apart_by_alone"]:
        text += f"; apart {figures(native['apart_by_alone'])}, with Gemini {figures(own['apart_by_alone'])}"
    return text + f"; {one['stalls']} stalls"


def slowest(one: dict[str, Any], arm: str, what: str) -> float:
    """A server's request at the 99th percentile, by that of a server alone without the library."""
    return float(one[arm][what]["t0"]["ms"]["p99"] / one[NONE]["alone"]["t0"]["ms"]["p99"])


def claims(name: str, case: tuple[Torch, ...], runs: list[dict[str, Any]]) -> list[Claim]:
    def middle(pick: Any) -> float:
        return float(np.median([pick(one) for one in runs]))

    row = [claim("torch.alone", middle(lambda one: min(one["alone_by_native"])), name)]
    if len(case) == 1:
        return row
    row.append(claim("torch.native", middle(lambda one: one["sum_by_native"]), name))
    if all(program.words == CARD_BOUND for program in case):
        row.append(claim("torch.turn", middle(lambda one: one[GEMINI]["sum"]), name))
        row.append(claim("torch.share", middle(lambda one: max(map(abs, one[GEMINI]["by_due_pp"]))), name))
    if case[0].latency:
        row.append(
            claim(
                "torch.latency",
                middle(lambda one: slowest(one, GEMINI, "both")),
                name,
                "beside the same work on another card, the processors are all that it shares: the floor",
                middle(lambda one: slowest(one, NONE, "apart")),
            )
        )
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8, help="of both at once, and of each alone")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this one; may be repeated")
    args = parser.parse_args()
    python = python_of("torch-cu13")
    if python is None:
        print("bench: PyTorch is not there; fetch it by python -m tests.frameworks.environment", file=sys.stderr)
        return 2
    found: dict[str, Any] = {}
    rows: list[Claim] = []
    for name in args.case or CASES:
        found[name] = []
        for one in measure(CASES[name], args.seconds, args.runs, str(python)):
            found[name].append(one)
            print(f"{name:36} {line(one)}", file=sys.stderr, flush=True)
        rows += claims(name, CASES[name], found[name])
    return report(QUESTION, {"cases": found}, {}, rows)


if __name__ == "__main__":
    sys.exit(main())
