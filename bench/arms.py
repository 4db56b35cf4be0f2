"""What may stand between the tenants and the card: the arms that a bench compares in one run, and medians over runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.bed import LIB, ROOT, Bed


class Arm(NamedTuple):
    """A daemon or none, its settings, and whether the token page can be had."""

    tokens: bool = True
    config: str = ""
    page: bool = True


GEMINI, LOCK, NONE, ZEROMQ = "gemini", "round-robin lock", "no library", "ZeroMQ alone"
BEHIND = "behind, grants to their end"
WITHOUT = "without"  # a mechanism: a bench puts the arm here that it is switched off in
REPEATED = (GEMINI, ZEROMQ, WITHOUT)
ARMS: dict[str, Arm] = {
    GEMINI: Arm(),
    ZEROMQ: Arm(page=False),
    BEHIND: Arm(config='ordering = "behind"\npreemption = false\n'),
    LOCK: Arm(config='ordering = "fifo"\npreemption = false\n'),  # handed round, grants run to their end
    NONE: Arm(tokens=False),
}


def open_bed(arm: str, **more: Any) -> Bed:
    """A bed with this arm in it."""
    tokens, config, page = ARMS[arm]
    return Bed(tokens=tokens, config=config, page=page, **more)


Runs = dict[str, list[dict[str, Any]]]  # of each arm


def measured(arms: Sequence[str], runs: int, measure: Callable[[str], dict[str, Any]]) -> Runs:
    """All runs of each arm, interleaved, so that a bad minute of the machine hits all alike; baselines run once."""
    found: Runs = {arm: [] for arm in arms}
    for number in range(runs):
        for arm in arms:
            if number == 0 or arm in REPEATED:
                found[arm].append(measure(arm))
    return found


def middle(runs: Sequence[dict[str, Any]], *keys: str) -> float | None:
    """The median over the runs of the figure under these keys; None where no run has it."""
    picked: list[Any] = list(runs)
    for key in keys:
        picked = [run[key] for run in picked if run.get(key) is not None]
    return float(np.median(picked)) if picked else None


def compile_program(source: Path, target: Path, *more: str) -> Path:
    """A small C program, linked against the simulated driver; made anew when it or a header beside it changed."""
    newest = max(path.stat().st_mtime for path in (source, *source.parent.glob("*.h")))
    if not target.exists() or target.stat().st_mtime < newest:
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]
        libraries = more or (f"-L{LIB / 'sim'}", "-l:libcuda.so.1", "-lpthread")
        subprocess.run(["gcc", *flags, "-o", str(target), str(source), *libraries], check=True)
    return target
