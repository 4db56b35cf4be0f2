"""The library and the simulated driver are clean under the sanitizers, and the sanitizers see a fault that was put in.

`make sanitize` runs the tests of the library on the sanitized build; here is a short form of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.bed import ROOT
from libhook.build import build_sanitized, sanitizer_runtime
from tests.mutants.mutate import apply_patch
from tests.sanitize.left_out import LEFT_OUT, reason_for
from tests.sanitize.run import copied, players, suite_on

HERE = Path(__file__).parent
NAMES = ("address,undefined", "thread")
# Of the twenty ways those whose programs make the most different calls, and that do not judge by time.
WAYS = "way_01 or way_13 or way_14 or way_16_the_end or way_16_captures or way_17"


@pytest.fixture(params=NAMES)
def names(request: pytest.FixtureRequest) -> str:
    try:
        sanitizer_runtime(request.param)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return str(request.param)


def test_what_is_left_out_is_a_test_and_only_under_its_sanitizer() -> None:
    for sanitizers, name, reason in LEFT_OUT:
        path, function = name.split("[")[0].split("::")
        assert f"def {function}(" in (ROOT / path).read_text()
        for runtime in ("libasan.so.8", "libtsan.so.2", ""):
            left = runtime.split(".")[0] in sanitizers.split()
            assert reason_for(name, f"/usr/lib/{runtime}" if runtime else "") == (reason if left else None)


@pytest.mark.timeout(1200)
def test_two_tenants_with_random_calls_give_the_sanitizers_nothing_to_report(names: str, tmp_path: Path) -> None:
    assert players(names, build_sanitized(names), tmp_path) == []


@pytest.mark.timeout(1200)
def test_programs_of_the_twenty_ways_give_them_nothing_to_report(names: str, tmp_path: Path) -> None:
    done, reports = suite_on(names, tmp_path, "tests/libhook/ways", "-k", WAYS)
    assert reports == []
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("names", "patch", "said"),
    [("address,undefined", "bounds.patch", "account.c"), ("thread", "race.patch", "data race")],
    indirect=["names"],
)
def test_a_fault_that_was_put_in_is_reported(names: str, patch: str, said: str, tmp_path: Path) -> None:
    sanitized = build_sanitized(names)
    lib = tmp_path / "tree" / "build" / "sanitize" / names.replace(",", "-")
    tree = copied(tmp_path, lib)
    shutil.copytree(sanitized, lib)
    for folder in ("objects", "linked"):  # what the patch leaves as it is need not be built again
        shutil.copytree(ROOT / "build" / folder, tree / "build" / folder)
    apply_patch(HERE / patch, tree)
    command = [sys.executable, "-m", "libhook.build", "--sanitize", names]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)
    reports = players(names, lib, tmp_path)
    assert any(said in report and "ended with" not in report for report in reports), reports
