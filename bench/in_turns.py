"""Is a bench's figure worse than at another commit? This tree and that one are measured in turns.

    python -m bench.in_turns COMMIT BENCH... [--runs 3] [-- OPTION...]

Makes a checkout of COMMIT in out/in-turns/, with an environment and a build of its own (minutes, once). Then it runs
each bench there and here so often, in the order a b, b a, a b, with `--runs 1`, where the bench has it, and the options
behind `--`. A figure is worse where each run of this tree is worse than each of the other's; that is 1 in 20 by luck
with three runs each. Nothing else should be at work meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.__main__ import BENCHES
from bench.report import ROOT, report

OUT = ROOT / "out" / "in-turns"
BETTER, WORSE, SAME = "better", "worse", "no different"
Figures = Mapping[tuple[int, str, str], float | None]  # of one run: by row, what and case


class Trouble(Exception):
    """What keeps a bench from being run, in one line."""


class Compared(NamedTuple):
    """One figure: its runs in this tree and in the other, None where a run could not measure it."""

    row: int
    what: str
    case: str
    at_least: bool  # more is better
    now: Sequence[float | None]
    before: Sequence[float | None]

    @property
    def verdict(self) -> str:
        """Which of BETTER, WORSE and SAME it is. What was not measured is worse than any figure."""
        sign = 1.0 if self.at_least else -1.0
        now, before = (
            [float("-inf") if run is None else sign * run for run in runs] for runs in (self.now, self.before)
        )
        if max(now) < min(before):
            return WORSE
        return BETTER if min(now) > max(before) else SAME

    def line(self) -> str:
        """As a person reads it: the medians, and the runs behind them."""
        texts = []
        for runs in (self.now, self.before):
            known = [run for run in runs if run is not None]
            middle = f"{np.median(known):.4g}" if known else "-"
            texts.append(f"{middle} ({', '.join('-' if run is None else f'{run:.4g}' for run in runs)})")
        return f"row {self.row} {self.case}: {self.what}: {texts[0]}, there {texts[1]}: {self.verdict}"


def figures_of(answer: Mapping[str, Any]) -> dict[tuple[int, str, str], float | None]:
    """The claims of a bench's JSON."""
    return {(row["row"], row["what"], row["case"]): row["measured"] for row in answer["rows"]}


def compare(now: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> Iterator[Compared]:
    """Set the answers of a bench in this tree against those in the other; what one of them lacks is left out."""
    here, there = [figures_of(answer) for answer in now], [figures_of(answer) for answer in before]
    goals = {(row["row"], row["what"], row["case"]): row["goal"] for row in now[0]["rows"]}
    for key, goal in goals.items():
        if all(key in figures for figures in (*here, *there)):
            yield Compared(*key, goal.startswith(">="), [each[key] for each in here], [each[key] for each in there])


def checkout(commit: str) -> Path:
    """The tree of a commit, built. Raises Trouble."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    whole = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    if not whole:
        raise Trouble(f"{commit} is no commit of this repository; name one, as `git log --oneline` shows them")
    tree = OUT / whole[:12]
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        carried_out(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(tree), whole], ROOT)
    for target in ("setup", "build"):
        carried_out(["make", "--no-print-directory", target], tree)
    return tree


def carried_out(words: Sequence[str], folder: Path) -> None:
    """Run a command, what it says on stderr. Raises Trouble where it fails."""
    if subprocess.run(words, cwd=folder, stdout=sys.stderr).returncode:
        raise Trouble(f"{' '.join(words)} failed in {folder}; its own words stand above")


def answer_in(tree: Path, name: str, options: Sequence[str]) -> dict[str, Any]:
    """The JSON of one run of a bench in a tree. Raises Trouble."""
    python = Path(sys.executable) if tree == ROOT else tree / ".venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    bench = [str(python), "-m", f"bench.{name}"]
    helped = subprocess.run([*bench, "--help"], cwd=tree, env=environment, capture_output=True, text=True).stdout
    words = [*bench, *(["--runs", "1"] if " --runs " in helped else []), *options]
    said = subprocess.run(words, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True).stdout
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        raise Trouble(f"bench.{name} gave no figures in {tree}; run it there by itself") from None
    return answer


def in_turns(trees: Sequence[Path], name: str, runs: int, options: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The answers of each tree, the trees in one order and then in the other."""
    found: list[list[dict[str, Any]]] = [[] for _ in trees]
    for number in range(runs):
        order = range(len(trees)) if number % 2 == 0 else reversed(range(len(trees)))
        for index in order:
            print(f"--- {name}, run {number + 1} of {runs}, in {trees[index]}", file=sys.stderr, flush=True)
            found[index].append(answer_in(trees[index], name, options))
    return found


def main(words: Sequence[str]) -> int:
    own, options = list(words), []
    if "--" in own:
        at = own.index("--")
        own, options = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(
        prog="python -m bench.in_turns", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", metavar="COMMIT", help="that this tree is compared with")
    parser.add_argument("benches", metavar="BENCH", nargs="+", help=f"one of {', '.join(BENCHES)}")
    parser.add_argument("--runs", type=int, default=3, help="of each bench in each tree (default: %(default)s)")
    args = parser.parse_args(own)
    for name in args.benches:
        if name not in BENCHES:
            parser.error(f"{name} is no bench; there are {', '.join(BENCHES)}")
    if args.runs < 1:
        parser.error(f"--runs {args.runs} measures nothing; give 1 or more")
    compared: list[Compared] = []
    try:
        other = checkout(args.commit)
        for name in args.benches:
            compared += compare(*in_turns([ROOT, other], name, args.runs, options))
    except Trouble as trouble:
        print(f"bench: {trouble}", file=sys.stderr)
        return 2
    for each in compared:
        print(each.line(), file=sys.stderr)
    passed = {f"row {each.row} {each.case}: {each.what}": each.verdict != WORSE for each in compared}
    found = [{**each._asdict(), "verdict": each.verdict} for each in compared]
    return report(f"what is worse than at {args.commit}?", {"with": args.commit, "figures": found}, passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
