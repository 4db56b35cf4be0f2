"""Programs of other languages and C libraries: gated as any other, left alone, or stopped with a clear message."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.bed import HOOK, Bed
from tests.libhook.hooks.guest import APPS, inside


def test_a_rust_program_that_resolves_each_symbol_by_dlsym_is_gated(tmp_path: Path) -> None:
    rustc = shutil.which("rustc") or shutil.which("rustc", path=str(Path.home() / ".cargo" / "bin"))
    if rustc is None:
        pytest.skip("needs rustc")
    program = tmp_path / "driver"
    alone = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # a sanitizer's runtime
    subprocess.run([rustc, "--edition=2021", "-o", str(program), str(APPS / "driver.rs")], env=alone, check=True)
    with Bed(sim="memory=8GiB") as bed:
        bed.tenant("t", 0.5, 1.0)
        process = bed.spawn("t", [program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        assert out.split() == ["worked", str(process.pid)]
        assert bed.busy()[1]["t"] == 40 * 50_000
        bed.end()
        assert bed.trace.read_text().count('"ClientJoined",["t"') == 1


def test_a_static_pie_is_left_alone(tmp_path: Path) -> None:
    program = tmp_path / "plain"
    made = subprocess.run(["gcc", "-static-pie", "-o", str(program), str(APPS / "plain.c")], capture_output=True)
    if made.returncode:
        pytest.skip("no static C library here")
    done = subprocess.run([str(program)], env=inside(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_a_musl_program_is_told_clearly_that_the_library_is_not_for_it(tmp_path: Path) -> None:
    """Its loader takes no library that was linked for glibc: it names the library and does not start the program."""
    if shutil.which("musl-gcc") is None:
        pytest.skip("needs musl-gcc")
    program = tmp_path / "plain"
    subprocess.run(["musl-gcc", "-o", str(program), str(APPS / "plain.c")], check=True)
    done = subprocess.run([str(program)], env=inside(), capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert str(HOOK) in done.stderr
    assert len(done.stderr.splitlines()) == 1
