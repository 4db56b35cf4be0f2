"""A child that is bound goes with who started it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gemini.cli.conftest import until

STARTS = """
import subprocess, sys, time
from gemini.cli.bound import bound_to_us
child = subprocess.Popen(["sleep", "600"], preexec_fn=bound_to_us(), start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_bound_child_is_killed_with_its_parent(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        parent.send_signal(number)
    try:
        until(lambda: not Path(f"/proc/{child}").exists())
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise
