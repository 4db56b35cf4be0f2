"""What do hostile users cost the others?

    python -m bench.hostile [--attack NAME]... [--seconds 3] [--runs 3] [--list]

Each attack of the table (bench/hostile/attacks.py, `--list`) is played for some seconds beside two busy tenants with
0.6 and 0.4 of the card, in turns with calm windows of the same run. It fails where the daemon ended, grew by more than
10 MiB, has descriptors, threads or children left half a minute after, or filled its log. It fails where files or
processes are left behind, and where the attacker saw a promise broken. And it fails where the others lost more than 0.5
points of their share, or waited more than 2 ms longer at the median or at the 90th percentile than in calm. An attack
after which only shares or waits were off is played again, up to --runs times in all and three times as long, and judged
by the medians of its runs. "control" has calm windows judged as if they were attacks: how often the machine alone is
off. Where the daemon ends, the run goes on with a fresh one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.bed import ROOT
from bench.hostile.attacks import ATTACKS, listing
from bench.hostile.judge import VICTIMS, Range, control, late, middle
from bench.hostile.table import may_play
from bench.report import report

AS_ANOTHER_USER = "no-threads"
AGAIN = 3  # so many times as long is a window in which an attack is played again


class Run:
    """Attacks one after the other, on a fresh bed where the last one ended its daemon."""

    def __init__(self, seconds: float, runs: int) -> None:
        self.seconds, self.runs = seconds, runs
        self.calm: list[dict[str, Any]] = []
        self.beds = 0
        self._range: Range | None = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._range is not None:
            self._range.__exit__()
            self._range = None

    def _ready(self) -> Range:
        if self._range is not None and self._range.daemon.poll() is not None:
            self.__exit__()
        if self._range is None:
            place = Range()
            self._range = place.__enter__()
            self.beds += 1
            self.calm.append(self._range.rest(self.seconds))
        return self._range

    def play(self, name: str) -> dict[str, Any]:
        """One attack, with as many runs as it takes."""
        seen: list[dict[str, Any]] = []
        for run in range(self.runs):
            place = self._ready()
            found = place.play(ATTACKS[name], self.seconds * (AGAIN if run else 1))
            seen.append(found)
            if found["failed"] or "shares" not in found or place.daemon.poll() is not None:
                break
            after = place.rest(self.seconds)
            self.calm.append(after)
            # What an attack did for good shows in the calm behind it: no calm of a broken machine is compared with.
            worse = late(middle([found]), middle(self.calm)) + late(middle([after]), middle(self.calm))
            if not worse:
                break
        whole = [one for one in seen if "shares" in one]
        result: dict[str, Any] = {"failed": seen[-1]["failed"], "runs": seen, "grown_bytes": seen[-1]["grown_bytes"]}
        if whole:
            result |= {"middle": middle(whole), "late": late(middle(whole), middle(self.calm))}
        return result


def closed_folder(folder: Path) -> Path | None:
    """The folder on the way to this one that other users may not enter."""
    return next((one for one in (folder, *folder.parents) if not one.stat().st_mode & 0o001), None)


def in_short(result: dict[str, Any], calm: dict[str, Any], wrong: list[str]) -> dict[str, Any]:
    """One attack as a row: what the daemon grew by, and by how much the others' shares and waits differ from calm."""
    row: dict[str, Any] = {"runs": len(result["runs"]), "grown_mib": round(result["grown_bytes"] / (1 << 20), 1)}
    seen: dict[str, Any] = result.get("middle", {})
    for name in VICTIMS if seen and calm else ():
        row[f"share_{name}_pp"] = round(100 * (seen["shares"][name] - calm["shares"][name]), 2)
        for q in ("p50", "p90"):
            row[f"wait_{name}_{q}_ms"] = round(seen["wait_ms"][name][q] - calm["wait_ms"][name][q], 2)
    return {**row, "wrong": "; ".join(wrong)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attack", action="append", choices=sorted(ATTACKS), metavar="NAME", help="only this one")
    parser.add_argument("--seconds", type=float, default=3, help="of each window (3)")
    parser.add_argument(
        "--runs", type=int, default=3, help="of an attack after which only shares or waits were off (3)"
    )
    parser.add_argument("--liveness", action="store_true", help="do not judge shares and waits")
    parser.add_argument("--list", action="store_true", help="the attacks: name, who can do it, what it does")
    args = parser.parse_args()
    if args.list:
        print(listing(), end="")
        return 0
    names = args.attack or list(ATTACKS)
    left_out = [name for name in names if not may_play(ATTACKS[name])]
    closed = closed_folder(ROOT) if AS_ANOTHER_USER in names and AS_ANOTHER_USER not in left_out else None
    if closed is not None:
        said = f"{AS_ANOTHER_USER} plays as a user who may not enter {closed}; take a checkout elsewhere"
        print(f"python -m bench.hostile: {said}, or other attacks", file=sys.stderr)
        return 2
    results: dict[str, dict[str, Any]] = {}
    passed: dict[str, bool] = {}
    wrongs: dict[str, list[str]] = {}
    with Run(args.seconds, 1 if args.liveness else args.runs) as run:
        for name in names:
            if name in left_out:
                continue
            result = results[name] = run.play(name)
            wrong = wrongs[name] = result["failed"] + ([] if args.liveness else result.get("late", []))
            passed[name] = not wrong
            grown = result["grown_bytes"] / (1 << 20)
            print(
                f"{'FAIL' if wrong else 'ok  '} {name} {grown:+.1f} MiB {'; '.join(wrong)}", file=sys.stderr, flush=True
            )
        beds = run.beds
        calm = middle(run.calm) if run.calm else {}
        quiet = control(run.calm, args.runs)
    figures = {
        "attacks": len(results),
        "failed": [name for name, held in passed.items() if not held],
        "left_out_for_want_of_root": left_out,
        "daemons_that_ended": max(0, beds - 1),
        "grown_mib_median": statistics.median([one["grown_bytes"] for one in results.values()] or [0]) / (1 << 20),
        "baseline": calm,
        "control": quiet,
        "in_short": {name: in_short(result, calm, wrongs[name]) for name, result in results.items()},
        "results": results,
    }
    return report("What do hostile users cost the others?", figures, passed)


if __name__ == "__main__":
    sys.exit(main())
