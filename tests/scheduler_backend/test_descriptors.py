"""Descriptors that are left are counted, and as many as may be are taken."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys

import pytest

from scheduler_backend import descriptors


def test_each_open_descriptor_is_one_less() -> None:
    before = descriptors.left()
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    try:
        assert descriptors.left() == before - 5
    finally:
        for one in held:
            os.close(one)


def test_where_not_even_the_count_may_be_opened_none_is_left() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(64, descriptors.used() + 8), hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        assert descriptors.left() <= 0  # those beyond a limit that was lowered stay open
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_they_are_counted_where_they_may_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((100, 150, 310, 280))
    limits = [600]
    monkeypatch.setattr(descriptors, "used", lambda: next(counts))
    monkeypatch.setattr(descriptors, "limit", lambda: limits[0])
    room = descriptors.Room()
    assert room.count()
    assert room.take(350)  # 150 are held back
    assert room.take(1), "the others were given back: 150 are used"
    limits[0] = 400
    assert not room.take(151)
    assert room.count()


def test_a_quarter_of_a_low_limit_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held_back = []
    for limit in (100, 1024, 1 << 20):
        monkeypatch.setattr(descriptors, "limit", lambda limit=limit: limit)
        held_back.append(descriptors.reserve())
    assert held_back == [64, 256, 1024]


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
        "from scheduler_backend import descriptors\n"
        "print(descriptors.raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["200", "200"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 200
