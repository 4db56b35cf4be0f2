"""The servers as programs: addresses, certificates, and what a person did wrong in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def gemini(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gemini", *words], text=True, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["extender", "--kubeconfig", "/nowhere"], "/nowhere"),
        (["extender", "--tls-cert", "x"], "--tls-cert and --tls-key go together"),
        (["extender", "--client-ca", "x"], "--client-ca needs --tls-cert"),
        (["extender", "--policies", "best"], "'best' is no policy"),
        (["webhook"], "HTTPS only; give --tls-cert and --tls-key"),
        (["webhook", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "give a PEM certificate"),
    ],
)
def test_wrong_use_is_one_line_and_no_traceback(words: list[str], said: str, tmp_path: Path) -> None:
    done = gemini(*words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
