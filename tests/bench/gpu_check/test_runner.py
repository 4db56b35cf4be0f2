"""gpu-check's script on a simulated card: its checks run, say PASS or FAIL with a figure, and leave their results."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu_check import runner

ROOT = Path(__file__).resolve().parents[3]


def run(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.gpu_check.runner", "--sim", "--out", str(out), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=280,
        check=False,
    )


@pytest.mark.flaky(reruns=2)
def test_checks_that_a_simulated_card_can_run_pass_and_leave_results(tmp_path: Path) -> None:
    done = run(tmp_path, "--only=identify", "--only=addresses", "--only=graph", "--only=memory", "--scale=0.3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS  gemini-load:" in done.stdout
    assert "SKIP  PyTorch" in done.stdout
    results = json.loads((tmp_path / "results.json").read_text())
    assert [check["check"] for check in results["checks"]] == ["identify", "addresses", "memory", "graph"]
    assert results["checks"][1]["figures"]["differ"] == []


@pytest.mark.flaky(reruns=2)
def test_shares_of_loads_are_measured_under_both_arms(tmp_path: Path) -> None:
    done = run(tmp_path, "--only=two-loads", "--scale=0.3")
    figures = json.loads((tmp_path / "results.json").read_text())["checks"][0]["figures"]
    assert set(figures) == {"gemini", "native"}, done.stdout
    assert figures["gemini"]["shares"][0] > figures["gemini"]["shares"][1]
    assert (tmp_path / "shares-x-y.png").exists()


def test_a_check_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    args = argparse.Namespace(out=tmp_path, sim="gpus=1", scale=10.0)
    answer = runner.run("two-loads", 3.0, args)
    assert [finding["verdict"] for finding in answer["findings"]] == ["FAIL"]
    assert "did not end within 3 s" in answer["findings"][0]["text"]
    mark = f"GEMINI_CHECK={runner.mark_of(tmp_path)}".encode()
    left = [entry.name for entry in Path("/proc").glob("[0-9]*") if mark in environment_of(entry)]
    assert left == []


def environment_of(process: Path) -> list[bytes]:
    try:
        if (process / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return []
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
