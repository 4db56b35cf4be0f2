"""The program that runs other people's unittest modules: what it tells of tests that end, hang, and stand still."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("unittest_program.py")
MODULES = {
    "ends": "def test_well(self): pass\n    def test_badly(self): self.fail()",
    "stands_still": "def test_long(self): time.sleep(2.5)",
    "burns": "def test_for_ever(self):\n        while True: pass",
}


def test_a_test_is_given_processor_time_not_time(tmp_path: Path) -> None:
    for name, body in MODULES.items():
        text = f"import time, unittest\nclass T(unittest.TestCase):\n    {body}\n"
        (tmp_path / f"{name}.py").write_text(text)
    out = tmp_path / "outcomes"
    command = [sys.executable, PROGRAM, out, "2", "unittest", *MODULES]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True, timeout=120)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {name: outcome for name, outcome in lines} == {
        "ends.T.test_badly": "failed",
        "ends.T.test_well": "passed",
        "stands_still.T.test_long": "passed",
        "burns.T.test_for_ever": "unfinished",
    }
