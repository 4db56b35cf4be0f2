"""The bed: what it started ends with it, however it ends itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

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
        bed.send_signal(signal.SIGTERM)
        assert bed.wait(60) == 128 + signal.SIGTERM
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60, "end of what the bed had started")
    assert not Path(folder).exists()
