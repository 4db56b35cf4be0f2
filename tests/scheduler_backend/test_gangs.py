"""Two tenants of two cards each, real processes with collectives: both go on, half and half, and nobody helps them."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bench import story
from bench.arms import compile_program
from bench.bed import ROOT, Bed

SECONDS = 4.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(ROOT / "tests" / "apps" / "deadlocks.c", tmp_path_factory.mktemp("gangs") / "deadlocks")


def overlap_ns(some: list[story.Turn], others: list[story.Turn]) -> int:
    """For how long both are under way."""
    return sum(
        max(0, min(one.ended_ns, other.ended_ns) - max(one.granted_ns, other.granted_ns))
        for one in some
        for other in others
    )


@pytest.mark.flaky(reruns=4)
@pytest.mark.parametrize("kind", ["collective", "together"])
def test_two_tenants_with_collectives_on_two_cards_go_on_together(program: Path, kind: str) -> None:
    with Bed(sim="gpus=2,memory=8GiB") as bed:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        for name in "ab":
            bed.tenant(name, 0.5, 1.0)
        children = [bed.spawn(name, [program, kind], **pipes) for name in "ab"]
        bed.until_busy("a", "b")
        time.sleep(SECONDS)
        for child in children:
            child.send_signal(signal.SIGTERM)
        rounds = []
        for child in children:
            out, err = child.communicate(timeout=60)
            assert child.returncode == 0, err
            rounds.append(int(out))
        metrics = bed.http("GET", "/metrics")[1]
        bed.end()
        turns = [
            {
                name: [turn for turn in story.turns(bed.trace, gpu) if turn.tenant == name and turn.ended_ns]
                for name in "ab"
            }
            for gpu in (0, 1)
        ]
    assert min(rounds) >= 5 * SECONDS, rounds
    assert not re.search(r"^gemini_overruns_total\{[^}]*\} [^0]", metrics, re.MULTILINE)
    # Neither holds the one card while the other holds the other, but before it was seen that both use two.
    crosswise = overlap_ns(turns[0]["a"], turns[1]["b"]) + overlap_ns(turns[0]["b"], turns[1]["a"])
    assert crosswise <= 0.15 * SECONDS * 1e9, crosswise
