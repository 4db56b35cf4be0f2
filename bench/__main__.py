"""`python -m bench [NAME]... [OPTION]...`: the named benches one after another, all of them when none is named.

Names come first; the options after them go to each of the benches (`fairness handover --runs 1`).

Each bench's JSON goes to out/bench/NAME.json, its progress to stderr; at the end stands one table of goal versus
measured and which rows fall short. The exit status is 0 where all that was claimed held. All of them take hours: with
`--table` nothing is run, and the table is of what lies in out/bench, from however many runs, with its commits.
With `--profile=h200` they run on a card that is as unkind as that one is thought to be (docs/simulator.md): its JSON is
NAME.h200.json, and the table has the figures that the kind card gave before beside it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import goals
from bench.bed import CARD

BENCHES = (
    "launch_overhead",
    "handover",
    "overuse",
    "limit",
    "convergence",
    "come_and_go",
    "early_return",
    "closed_loop",
    "hostbound",
    "lengths",
    "streams",
    "conservation",
    "memory_limit",
    "recovery",
    "latency_class",
    "startup",
    "release",
    "campaign",
    "hostile",
    "tenants",
    "fairness",
    "best_effort",
    "placement",
    "extender",
    "replicas",
    "scale",
    "gangs",
)
OUT = Path(__file__).resolve().parent.parent / "out" / "bench"


def kept_in(name: str, profile: str) -> Path:
    """Where the JSON of a bench lies; `profile` "" is the kind card."""
    return OUT / f"{name}{'.' if profile else ''}{profile}.json"


def run(name: str, options: list[str], profile: str = "") -> tuple[int, dict[str, Any] | None]:
    """One bench: its exit status and its JSON, which is kept; None where it gave none."""
    words = [sys.executable, "-m", f"bench.{name}", *options]
    environment = {**os.environ, **({CARD: f"profile={profile}"} if profile else {})}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as bench:

        def stop(number: int, _frame: object) -> None:
            bench.terminate()  # and leaving the block waits for it
            sys.exit(128 + number)

        signal.signal(signal.SIGTERM, stop)
        said, _ = bench.communicate()
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError:
        return max(1, bench.returncode), None
    OUT.mkdir(parents=True, exist_ok=True)
    kept_in(name, profile).write_text(said)
    return bench.returncode, answer


def kept(profile: str = "") -> dict[str, dict[str, Any]]:
    """What lies in out/bench, by bench."""
    files = {name: kept_in(name, profile) for name in BENCHES}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def beside(answers: dict[str, dict[str, Any]], profile: str, names: list[str]) -> dict[str, dict[str, Any]]:
    """The figures of a profile's card, each bench's behind those that the kind card gave before."""
    found = {name: kind for name, kind in kept().items() if name in names}
    for name, answer in answers.items():
        rows = [{**row, "case": f"{row['case']} ({profile})".strip()} for row in answer.get("rows", [])]
        passed = {text if text.startswith("row ") else f"{text} ({profile})": held
                  for text, held in answer["passed"].items()}  # fmt: skip
        before = found.get(name, {"passed": {}})
        found[name] = {"rows": [*before.get("rows", []), *rows], "passed": {**before["passed"], **passed}}
    return found


def table(answers: dict[str, dict[str, Any]], broken: list[str]) -> list[str]:
    """Goals versus measured of these benches, and what else did not hold."""
    rows = [{**row, "bench": name} for name, answer in answers.items() for row in answer.get("rows", [])]
    others = [(name, *one) for name, answer in answers.items() for one in answer["passed"].items()]
    failed = [f"{name}: {text}" for name, text, held in others if not held and not text.startswith("row ")]
    return [*goals.lines(rows, broken), *(f"did not hold: {text}" for text in failed)]


def main() -> int:
    words = sys.argv[1:]
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    names, options = words[:first], words[first:]
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"bench: {unknown[0]} is no bench; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    late = [word for word in options if word in BENCHES]
    if late:
        print(f"bench: {late[0]} stands behind {options[0]}; name benches before options", file=sys.stderr)
        return 2
    names = names or list(BENCHES)
    profile = next((word.partition("=")[2] for word in options if word.startswith("--profile=")), "")
    options = [word for word in options if not word.startswith("--profile=")]
    status, answers, broken, asked = 0, {}, [], names
    if "--table" in options:
        answers = {name: answer for name, answer in kept(profile).items() if name in names}
        status = int(not all(held for answer in answers.values() for held in answer["passed"].values()))
        commits = sorted({answer["commit"] for answer in answers.values()})
        print(f"measured before, at {', '.join(commits) or 'no commit: there is nothing in ' + str(OUT)}")
        names = []
    for name in names:
        print(f"--- {name}", file=sys.stderr, flush=True)
        result, answer = run(name, options, profile)
        status = max(status, result)
        if answer is None:
            broken.append(name)
        else:
            answers[name] = answer
    print("\n".join(table(beside(answers, profile, asked) if profile else answers, broken)))
    print(f"JSON of each bench: {OUT}")
    return status


if __name__ == "__main__":
    sys.exit(main())
