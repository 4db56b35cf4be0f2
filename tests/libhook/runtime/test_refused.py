"""Each kernel feature that may be refused has something in its place, or one clear line (docs/failures.md).

A daemon to which it is refused serves tenants to which it is refused, with shares and a memory limit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.bed import LOAD, Bed, wait_for
from tests.libhook.runtime.refuse import CANNOT, FEATURES

ROOT = Path(__file__).resolve().parents[3]
GIB = 1 << 30
NEEDED = {"eventfd"}  # what nothing stands in for


def around(feature: str) -> tuple[str, ...]:
    return sys.executable, "-m", "tests.libhook.runtime.refuse", feature


@pytest.fixture(scope="module", autouse=True)
def _filters_may_be_set() -> None:
    done = subprocess.run([*around("userfaultfd"), "true"], cwd=ROOT, check=False)
    if done.returncode == CANNOT:
        pytest.skip("no seccomp here")


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("feature", sorted(set(FEATURES) - NEEDED))
def test_what_the_kernel_refuses_costs_nobody_his_share(feature: str) -> None:
    bed = Bed(sim="memory=8GiB")
    bed.around = around(feature)
    with bed:
        for name, request in (("a", 0.7), ("b", 0.3)):
            bed.tenant(name, request, 1.0, memory=GIB)
            words = [*around(feature), LOAD, "--seconds=0"]
            child = bed.spawn(name, words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            assert child.poll() is None
        bed.until_busy("a", "b")
        bed.until_shares({"a": 0.7, "b": 0.3}, 0.04)
        assert all(tenant["enforced"] == "yes" for tenant in bed.state()["tenants"])
        (pid, (_, killed)), *_ = [one for one in bed.children.items() if one[1][0] == "a"]
        killed.kill()
        killed.wait()
        wait_for(lambda: not bed.state()["tenants"][0]["clients"], 30, f"end of process {pid} in the books")
        bed.until_shares({"a": 0.0, "b": 1.0}, 0.02)
        bed.end()
        assert "Traceback" not in (bed.state_dir / "daemon.log").read_text()
        for _, child in bed.children.values():
            assert child.stderr is not None
            assert child.stderr.read() == "", "a guest is silent where all goes well"


def test_a_daemon_without_eventfds_says_so_in_one_line(tmp_path: Path) -> None:
    words = [*around("eventfd"), sys.executable, "-m", "gemini", "serve", "--sim", "--state-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "eventfd" in done.stderr


def test_the_table_has_each_of_them_and_no_other() -> None:
    page = (ROOT / "docs" / "failures.md").read_text()
    table = page.partition("## What a kernel may refuse")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.M)) == set(FEATURES)
