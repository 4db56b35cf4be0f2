"""PyTorch processes go on when one of them dies, or the daemon: in the middle of what such programs do."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import Bed
from gemini.cli.node import sim_front
from tests.frameworks.environment import python_of

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]
PROGRAM = Path(__file__).parent / "torch_long.py"
MANY = 20
GIB = 1 << 30


class Process:
    """One torch_long.py, and what it says."""

    def __init__(self, bed: Bed, tenant: str, does: str, holds: int = 1) -> None:
        python = python_of("torch-cu13")
        if python is None:
            pytest.fail("torch-cu13 is not there; make frameworks fetches it")
        first = bed.environment(tenant)["LD_PRELOAD"]
        env = {"LD_PRELOAD": " ".join([first, *sim_front()]), "HOLD": str(holds), "OMP_NUM_THREADS": "1"}
        self.errors = bed.state_dir / f"{tenant}-{does}.err"
        with self.errors.open("ab") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
            self.process = bed.spawn(tenant, [python, PROGRAM, does], env=env, **pipes)

    def heard(self) -> str:
        assert self.process.stdout is not None
        line = str(self.process.stdout.readline())
        if not line:
            raise AssertionError(f"it ended, {self.process.wait()}: {self.errors.read_text()[-2000:]}")
        return line.rstrip()

    def says(self, wanted: str) -> None:
        assert self.heard() == wanted

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def goes_on(self) -> None:
        self.tell()
        self.says("5 steps more")

    def ends(self, held: int = 1) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.says(f"held {held}")
        assert self.process.wait() == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def bed() -> Iterator[Bed]:
    with Bed(sim="profile=h200,context=32MiB,growth=0,memory=32GiB") as made:
        yield made


def test_twenty_that_import_torch_at_once_all_train_and_end(bed: Bed) -> None:
    names = [f"t{number}" for number in range(MANY)]
    for name in names:
        bed.tenant(name, 1 / MANY, 1.0, memory=GIB)
    programs = [Process(bed, name, "steps") for name in names]
    for program in programs:
        program.says("ready")
    for program in programs:  # all are there and work: this one has its part beside 19 others
        program.goes_on()
    for program in programs:
        program.ends()
    assert bed.daemon is not None
    assert bed.daemon.poll() is None


def test_who_is_killed_in_a_backward_pass_leaves_the_card_and_its_memory_to_the_others(bed: Bed) -> None:
    bed.tenant("a", 0.5, 1.0, memory=3 * GIB)
    bed.tenant("b", 0.5, 1.0, memory=3 * GIB)
    other, sibling = Process(bed, "b", "steps"), Process(bed, "a", "steps")
    other.says("ready")
    sibling.says("ready")
    victim = Process(bed, "a", "backward", holds=2 * GIB)
    victim.says("in backward")
    other.goes_on()
    heir = Process(bed, "a", "steps", holds=2 * GIB)
    heir.says("no room")  # the victim has it
    victim.kill()
    other.goes_on()
    sibling.goes_on()
    heir.says("ready")
    heir.goes_on()
    for program, held in ((other, 1), (sibling, 1), (heir, 2 * GIB)):
        program.ends(held)


def test_a_capture_goes_on_where_the_daemon_is_killed_in_it(bed: Bed) -> None:
    bed.tenant("a", 0.5, 1.0, memory=3 * GIB)
    bed.tenant("b", 0.5, 1.0, memory=3 * GIB)
    captures, trains = Process(bed, "a", "capture"), Process(bed, "b", "steps")
    trains.says("ready")
    captures.says("capturing")
    assert bed.daemon is not None
    bed.daemon.send_signal(signal.SIGKILL)
    bed.daemon.wait()
    captures.tell()
    captures.says("captured")  # nobody is asked for what only is recorded
    bed.start_daemon()
    captures.tell()
    captures.says("replayed [7.0]")
    trains.goes_on()
    captures.ends()
    trains.ends()
