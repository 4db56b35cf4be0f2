"""Descriptors that are left are counted, and as many as may be are taken."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from scheduler_backend import descriptors


def test_each_open_descriptor_is_one_less() -> None:
    before = descriptors.left()
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    try:
        assert descriptors.left() == before - 5
    finally:
        for one in held:
            os.close(one)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
        "from scheduler_backend import descriptors\n"
        "print(descriptors.raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["200", "200"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 200
