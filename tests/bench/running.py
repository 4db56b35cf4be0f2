"""Benches as tests run them: a process group of their own, which ends with one that hangs, and the JSON they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 280.0


def answer_of(module: str, *words: str) -> tuple[dict[str, Any], str]:
    """What the bench answers, and what it says on stderr. One that has no answer is an error with all that it said."""
    bench = subprocess.Popen(
        [sys.executable, "-m", module, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        process_group=0,
    )  # fmt: skip
    try:
        out, err = bench.communicate(timeout=PATIENCE_S)
    except BaseException:
        os.killpg(bench.pid, signal.SIGKILL)
        bench.wait()
        raise
    assert bench.returncode in (0, 1), f"{module} ended with {bench.returncode}: {out}{err}"
    assert out, f"{module} has no answer: {err}"
    return json.loads(out), err
