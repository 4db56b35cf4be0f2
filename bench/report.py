"""What every bench prints: one JSON object with its figures, its claims, and where and how it was measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def machine() -> dict[str, Any]:
    """What a figure was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), platform.machine())
    return {"cpu": cpu, "cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}


def commit() -> str:
    """The commit that was measured, with a + when the tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()

    try:
        return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "--porcelain") else "")
    except FileNotFoundError:
        return "unknown"


def report(question: str, figures: dict[str, Any], passed: dict[str, bool]) -> int:
    """Print the JSON object of a bench; the exit status is 0 when every claim in `passed` held, else 1."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec else Path(sys.argv[0]).stem
    head = {
        "bench": question,
        "command": " ".join(["python", "-m", name, *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
    }
    print(json.dumps({**head, **figures, "passed": passed}, indent=1, default=float))
    return 0 if all(passed.values()) else 1
