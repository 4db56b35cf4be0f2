"""gpu-check may be killed at any moment: what it had stays, and the next run goes on behind it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.gpu_check.test_runner import ROOT, environment_of

KILLS = 20
CHECKS = ("identify", "addresses", "coverage", "contexts", "graph")


def start(out: Path) -> subprocess.Popen[bytes]:
    words = [f"--only={name}" for name in CHECKS]
    return subprocess.Popen(
        [sys.executable, "-m", "bench.gpu_check.runner", "--sim", "--out", str(out), "--scale=0.3", *words],
        cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def had(out: Path) -> list[Any]:
    return list(json.loads((out / "results.json").read_text())["checks"]) if (out / "results.json").exists() else []


def whole(out: Path) -> bool:
    return (out / "results.json").exists() and bool(json.loads((out / "results.json").read_text())["whole"])


def test_twenty_kills_at_random_moments_lose_nothing_that_was_known(tmp_path: Path) -> None:
    """Each run has a little longer, so that something is done at last; none does again what is done."""
    moments, before = random.Random(28), []
    for number in range(KILLS):
        run = start(tmp_path)
        time.sleep(moments.uniform(0.1, 1 + number / 4))
        run.send_signal(signal.SIGKILL)
        run.wait()
        now = had(tmp_path)
        assert now[: len(before)] == before, "what was known is still there, as it was"
        before = now
        if whole(tmp_path):  # it came to its end before the kill
            break
    assert before, "something was done between the kills"
    if not whole(tmp_path):
        start(tmp_path).wait(200)
    now = had(tmp_path)
    assert [check["check"] for check in now] == list(CHECKS)
    assert now[: len(before)] == before
    assert whole(tmp_path)
    seen = [entry.name for entry in Path("/proc").glob("[0-9]*") if marked(entry, tmp_path)]
    assert seen == [], "nothing is left of the runs that were killed"


def marked(process: Path, out: Path) -> bool:
    from bench.gpu_check.runner import mark_of

    return f"GEMINI_CHECK={mark_of(out)}".encode() in environment_of(process)


def test_a_whole_run_is_done_anew_and_another_one_beside_is_refused(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bench.gpu_check.runner", "--sim", "--out", str(tmp_path), *words],
            cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    for _ in range(2):
        assert "going on" not in run("--only=identify").stdout
        assert len(had(tmp_path)) == 1
    first = start(tmp_path)
    try:
        while not (tmp_path / "doing").exists():
            time.sleep(0.01)
        done = run("--only=identify")
        assert done.returncode == 2
        assert "another run" in done.stderr
    finally:
        os.kill(first.pid, signal.SIGTERM)
        first.wait()
