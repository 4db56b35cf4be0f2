"""What every bench prints: one JSON object with its figures, its claims, and where and how it was measured."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.goals import Claim
from libhook import info

ROOT = Path(__file__).resolve().parent.parent


def machine() -> dict[str, Any]:
    """What a figure was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), platform.machine())
    return {"cpu": cpu, "cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}


def commit() -> str:
    """The commit that was measured, with a + when the tree differs from it."""
    if not (ROOT / ".git").exists():  # unpacked: a repository around it is another's
        return info.commit()

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()

    try:
        return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "--porcelain") else "")
    except FileNotFoundError:
        return "unknown"


def report(question: str, figures: dict[str, Any], passed: dict[str, bool], claims: Sequence[Claim] = ()) -> int:
    """Print the JSON object of a bench; the exit status is 0 when every claim held, else 1.

    `claims` are figures set against the table of goals (bench/goals.py), shown as "rows" and in "passed"; `passed`
    holds what else must be so.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem
    head = {
        "bench": question,
        "command": " ".join(["python", "-m", name, *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "rows": [_finite(claim.as_json()) for claim in claims],
    }
    passed = {**{claim.text(): claim.met for claim in claims}, **passed}
    print(json.dumps({**head, **figures, "passed": passed}, indent=1, default=float))
    return 0 if all(passed.values()) else 1


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: what could not be measured is null."""
    return {**row, "measured": row["measured"] if math.isfinite(row["measured"]) else None}
