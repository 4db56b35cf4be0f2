"""Processes that come and go at once: each has a seat of its own on the machine (libhook/sim/model/machine.c)."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIB = ROOT / "libhook" / "lib"
SITS = r"""
#include <stdio.h>
#include "libhook/sim/model/seat.h"
int main(int count, char **text) {
    static struct sim_seat seat;
    char why[256];
    int error = sim_sit(&seat, text[1], true, why, sizeof(why));
    if (error || count < 2)
        return 1;
    printf("fatal_exit=%u fatal_handle=%u\n", seat.machine->spec.fatal_exit, seat.machine->spec.fatal_handle);
    return 0;
}
"""


@pytest.fixture
def machine() -> str:
    name = f"seats-{uuid.uuid4().hex[:8]}"
    yield name
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
        path.unlink()


def test_a_seat_that_was_just_claimed_is_not_taken_for_a_dead_ones(machine: str) -> None:
    """A claimer was its seat's owner before its start time stood there: others read the time of the one before, gave
    the seat away again, and two live processes wrote one ring."""
    env = {**os.environ, "GEMINI_SIM": f"id={machine}", "LD_LIBRARY_PATH": str(LIB / "sim")}
    command = [str(LIB / "gemini-load"), "--seconds", "0.03", "--kernel-us", "50"]
    for _ in range(12):
        loads = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(4)]
        try:
            assert [load.wait(60) for load in loads] == [0] * 4
        finally:
            for load in loads:
                load.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may begin to count processes anew")
def test_a_process_of_whose_number_proc_says_nothing_is_not_taken_for_dead(machine: str) -> None:
    """Where processes are counted anew without a /proc of their own, some were: the seat was given away, and no kernel
    ever ran."""
    env = {**os.environ, "GEMINI_SIM": f"id={machine}", "LD_LIBRARY_PATH": str(LIB / "sim")}
    script = 'mount -t tmpfs none /proc && { "$@" & first=$!; "$@" & wait $first && wait $!; }'
    load = [str(LIB / "gemini-load"), "--seconds=0.5", "--kernel-us=200"]
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "sh", "-c", script, "sh", *load]
    done = subprocess.run(enter, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_nothing_is_read_of_a_machine_whose_build_had_its_fields_elsewhere(machine: str, tmp_path: Path) -> None:
    """It may be as large as this build's, and outlast its processes: kernels took minutes to load, once."""
    said = []
    for name, text in (("now", f"id={machine},fatal_exit=on"), ("later", f"id={machine}")):
        model = tmp_path / name / "libhook" / "sim" / "model"
        shutil.copytree(ROOT / "libhook" / "sim" / "model", model)
        if name == "later":
            header = (model / "spec.h").read_text()
            swapped = (
                header.replace("fatal_exit;", "?").replace("fatal_handle;", "fatal_exit;").replace("?", "fatal_handle;")
            )
            assert swapped != header
            (model / "spec.h").write_text(swapped)
        (tmp_path / name / "sits.c").write_text(SITS)
        command = ["gcc", "-std=gnu11", "-O1", f"-I{tmp_path / name}", f"-I{ROOT}", "-o", "sits", "sits.c"]
        subprocess.run([*command, *map(str, model.glob("*.c")), "-lm", "-lpthread"], cwd=tmp_path / name, check=True)
        ran = subprocess.run([tmp_path / name / "sits", text], capture_output=True, text=True, check=True)
        said.append(ran.stdout)
    assert said == ["fatal_exit=1 fatal_handle=0\n", "fatal_exit=0 fatal_handle=0\n"]
