"""The bed, and benches that start more than a bed: what they started ends with them, however they end themselves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from bench.bed import ROOT, wait_for

SCENE = """
import json, signal
from bench.bed import Bed
with Bed() as bed:
    bed.start_loads(("a", 1.0, 1.0), options=("--seconds", 0))
    print(json.dumps([bed.daemon.pid, *bed.children, str(bed.state_dir)]), flush=True)
    signal.pause()
"""


def test_a_bed_that_is_told_to_end_leaves_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", SCENE], cwd=ROOT, stdout=subprocess.PIPE, text=True) as bed:
        assert bed.stdout is not None
        *pids, folder = json.loads(bed.stdout.readline())
        while bed.poll() is None:  # told more than once, as by who ends a process group and then its leader
            bed.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        assert bed.returncode == 128 + signal.SIGTERM
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60, "end of what the bed had started")
    assert not Path(folder).exists()


def marked(mark: str) -> dict[int, tuple[str, str]]:
    """Living processes that carry the mark in their environment: pid -> (command line, state)."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"BENCH_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(entry.name)] = command, (entry / "stat").read_text().rpartition(")")[2].split()[0]
    return found


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (["bench.hostile", "--attack=noise", "--seconds=60"], "bench.hostile.attacker noise"),
        (["bench", "hostile", "--attack=noise", "--seconds=60"], "sum(range(1000))"),
        (["bench.gpu_check.runner", "--sim", "--only", "two-loads"], "gemini-load"),
    ],
    ids=["hostile", "all benches", "gpu check"],
)
def test_a_bench_that_is_told_to_end_leaves_nothing(tmp_path: Path, words: list[str], there: str) -> None:
    mark = uuid.uuid4().hex
    more = ["--out", str(tmp_path)] if "bench.gpu_check.runner" in words else []
    bench = subprocess.Popen(
        [sys.executable, "-m", *words, *more], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "BENCH_MARK": mark},
    )  # fmt: skip
    try:

        def begun() -> bool:
            assert bench.poll() is None
            seen = [state for command, state in marked(mark).values() if there in command]
            return bool(seen)

        wait_for(begun, 120, f"{there} that has begun")
        bench.terminate()
        assert bench.wait(60) == 128 + signal.SIGTERM
        wait_for(lambda: not marked(mark), 60, "end of what the bench had started")
    finally:
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        bench.wait()
