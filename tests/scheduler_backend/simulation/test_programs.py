"""Programs are made of steps, and the same seed gives the same ones."""

from __future__ import annotations

import itertools
import random

import pytest

from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.programs import ENDLESS, KINDS, Program, spec


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_positive_and_repeat_with_the_seed(kind: str) -> None:
    program = Program(spec("a", 0.5), kind, steps=((MS, 2 * MS), (3 * MS, 0)))
    once, again = (list(itertools.islice(KINDS[kind](program, random.Random(3)), 50)) for _ in range(2))
    assert once == again
    assert all(work_ns > 0 and gap_ns >= 0 for work_ns, gap_ns in once)


def test_busy_never_ends_and_a_recording_starts_again() -> None:
    assert next(KINDS["busy"](Program(spec("a", 1)), random.Random(1))) == (ENDLESS, 0)
    recorded = KINDS["recorded"](Program(spec("a", 1), steps=((1, 2), (3, 4))), random.Random(1))
    assert list(itertools.islice(recorded, 3)) == [(1, 2), (3, 4), (1, 2)]
