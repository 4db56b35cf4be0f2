"""gemini-load on the simulated driver, without Gemini: it does what its options say and reports what it did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libhook.observer import Timeline

LIB = Path(__file__).resolve().parents[3] / "libhook" / "lib"
Load = Callable[..., dict[str, Any]]


@pytest.fixture
def machine() -> Iterator[dict[str, str]]:
    name = f"load-{uuid.uuid4().hex[:8]}"
    yield {**os.environ, "GEMINI_SIM": f"memory=1GiB,id={name}", "LD_LIBRARY_PATH": str(LIB / "sim")}
    for path in Path("/dev/shm").glob(f"gemini-sim-*{name}*"):
        path.unlink(missing_ok=True)


@pytest.fixture
def load(machine: dict[str, str]) -> Load:
    def run(*options: str, status: int = 0) -> dict[str, Any]:
        words = [str(LIB / "gemini-load"), "--seconds=0.5", "--json=-", *options]
        done = subprocess.run(words, env=machine, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


@pytest.mark.flaky(reruns=4)
def test_back_to_back_launches_keep_the_card_busy(load: Load) -> None:
    answer = load("--kernel-us=200")
    assert answer["errors"] == {}
    assert answer["gpu_seconds"] == pytest.approx(answer["launches"] * 200e-6)
    assert answer["gpu_seconds"] / answer["seconds"] > 0.7
    assert 0 < answer["launch_ns"]["p50"] <= answer["launch_ns"]["p99"]
    assert answer["burst_ms"]["p50"] is None


@pytest.mark.flaky(reruns=4)
def test_bursts_last_their_kernels_and_leave_gaps(load: Load) -> None:
    answer = load("--kernel-us=500", "--burst=4", "--gap-us=5000")
    assert answer["launches"] % 4 == 0
    assert answer["burst_ms"]["p50"] >= 2.0
    assert answer["gpu_seconds"] / answer["seconds"] < 0.5


def test_each_burst_is_told_by_its_times(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "bursts"
    answer = load("--kernel-us=500", "--burst=4", "--gap-us=5000", f"--bursts={file}")
    bursts = np.fromfile(file, dtype=np.uint64).reshape(-1, 2).astype(np.int64)
    assert len(bursts) == answer["launches"] // 4
    assert (bursts[:, 1] - bursts[:, 0] >= 2_000_000).all()  # 4 kernels
    assert (bursts[1:, 0] - bursts[:-1, 1] >= 5_000_000).all()
    load("--burst=4", f"--bursts={tmp_path}", status=2)


def test_graphs_count_their_kernels(load: Load) -> None:
    answer = load("--graph=10", "--kernel-us=100", "--sync-every=5")
    assert answer["errors"] == {}
    assert answer["launches"] % 10 == 0
    assert answer["launches"] > 0


@pytest.mark.flaky(reruns=4)
@pytest.mark.parametrize("streams", ["3", "legacy", "per-thread"])
def test_threads_and_streams_of_all_kinds(load: Load, streams: str) -> None:
    answer = load("--threads=4", f"--streams={streams}", "--kernel-us=50")
    assert answer["errors"] == {}
    assert answer["launches"] > 4


def test_what_the_card_cannot_give_is_an_error_in_the_report(load: Load) -> None:
    answer = load(f"--alloc={2 << 30}", status=1)
    assert answer["errors"] == {"CUDA_ERROR_OUT_OF_MEMORY": 1}
    assert answer["launches"] > 0


def test_a_simulated_card_leaves_its_stamps_empty(load: Load, tmp_path: Path) -> None:
    answer = load(f"--stamps={tmp_path / 'stamps'}")
    stamps = (tmp_path / "stamps").read_bytes()
    assert len(stamps) == min(answer["launches"], 1 << 22) * 16
    assert not any(stamps)


def test_sigterm_ends_an_endless_run_with_its_report(machine: dict[str, str], tmp_path: Path) -> None:
    words = [str(LIB / "gemini-load"), "--seconds=0", f"--json={tmp_path / 'report'}"]
    process = subprocess.Popen(words, env=machine)
    with Timeline(machine["GEMINI_SIM"]) as timeline:
        while not timeline.busy()[1].get(process.pid):
            assert process.poll() is None
            time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert json.loads((tmp_path / "report").read_text())["launches"] > 0


@pytest.mark.parametrize(
    ("words", "hold"),
    [
        (["--seconds", "x"], "--seconds x"),
        (["--streams", "0"], "--streams 0"),
        (["--kernel-us", "nan"], "--kernel-us nan"),
        (["--graph", "3", "--streams", "legacy"], "legacy"),
        (["word"], "word"),
    ],
)
def test_bad_options_are_one_line(machine: dict[str, str], words: list[str], hold: str) -> None:
    done = subprocess.run([str(LIB / "gemini-load"), *words], env=machine, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert hold in done.stderr
