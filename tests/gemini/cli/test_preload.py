"""Whether the library loads into a program is known before the program starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemini.cli.preload import behind_script, interpreter, problem_of


@pytest.fixture
def library(tmp_path: Path) -> Path:
    source = tmp_path / "lib.c"
    source.write_text("int answer(void) { return 42; }\n")
    target = tmp_path / "libanswer.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True)
    return target


def test_a_dynamic_program_names_its_loader() -> None:
    loader = interpreter(Path(sys.executable).resolve())
    assert loader is not None
    assert "ld-linux" in loader or "ld-musl" in loader


def test_scripts_are_followed_to_what_runs_them(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env -S python3 -u\n")
    assert behind_script(script).name.startswith("python3")
    script.write_text("#!/bin/sh\n")
    assert behind_script(script) == Path("/bin/sh") or behind_script(script).name == "sh"


def test_a_library_that_loads_is_no_problem(library: Path) -> None:
    assert problem_of(library, shutil.which("true") or "/bin/true") is None


def test_a_library_that_is_missing_is_said(tmp_path: Path) -> None:
    assert "make build" in (problem_of(tmp_path / "none.so", "/bin/true") or "")


def test_a_library_of_another_libc_is_said_with_the_mend(library: Path) -> None:
    library.write_bytes(library.read_bytes()[:200])  # the loader cannot read it, as it cannot read one of another libc
    problem = problem_of(library, shutil.which("true") or "/bin/true")
    assert problem is not None
    assert "glibc" in problem
    assert "\n" not in problem


def test_a_static_program_is_let_through(tmp_path: Path, library: Path) -> None:
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    done = subprocess.run(["gcc", "-static", "-o", tmp_path / "static", source], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("no static C library here")
    assert problem_of(library, str(tmp_path / "static")) is None
