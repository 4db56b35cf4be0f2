"""The fault campaign in its short form: one fault of each kind. All of it: `python -m bench.campaign`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.campaign import SHORT
from bench.campaign_faults import FAULTS, MESSAGES
from bench.scene import WORKLOADS
from libhook.core import lib

ROOT = Path(__file__).resolve().parents[2]


def test_there_are_forty_faults_and_three_workloads_and_every_message_is_among_them() -> None:
    assert len(FAULTS) >= 40
    assert len(WORKLOADS) == 3
    tampered = {number for number, *_ in MESSAGES.values()}
    every = {getattr(lib, name) for name in dir(lib) if name.startswith("WIRE_") and name in TYPES}
    assert every - tampered == {lib.WIRE_MEM_RECALL, lib.WIRE_ERROR}  # said only to who is refused something


TYPES = {
    "WIRE_HELLO", "WIRE_WELCOME", "WIRE_TOKEN_REQUEST", "WIRE_GRANT", "WIRE_EXTEND", "WIRE_REVOKE", "WIRE_RETURN",
    "WIRE_MEM_RESERVE", "WIRE_MEM_REPLY", "WIRE_MEM_RELEASE", "WIRE_MEM_RECALL", "WIRE_STATS", "WIRE_ERROR",
}  # fmt: skip


@pytest.mark.parametrize(("fault", "workload"), SHORT, ids=[f"{fault}, {workload}" for fault, workload in SHORT])
def test_all_is_right_again_after(fault: str, workload: str) -> None:
    words = [sys.executable, "-m", "bench.campaign", "--fault", fault, "--workload", workload]
    for _ in range(3):  # shares within 2 pp over half a second: a busy machine may need another try, the rest may not
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=280, check=False)
        failed = json.loads(done.stdout)["results"][0]["failed"]
        if not failed or not all(text.startswith("a share is off") for text in failed):
            break
    assert not failed, done.stderr
