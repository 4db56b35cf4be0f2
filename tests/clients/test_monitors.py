"""Monitors that others wrote, started by a tenant: they show its own memory, processes and share of the card's time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.bed import Bed

MIB = 1 << 20


class Busy:
    """Two tenants at work on one card: `a` with a fifth of it, `b` with the rest."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        bed.tenant("a", 0.2, 1.0, memory=1024 * MIB)
        bed.tenant("b", 0.8, 1.0, memory=4096 * MIB)
        self.a = bed.load("a", "--seconds", 0, "--alloc", 200 * MIB).pid
        self.b = bed.load("b", "--seconds", 0, "--alloc", 500 * MIB).pid
        bed.until_busy("a", "b")
        self.shares = bed.sample(1.2).shares()  # NVML's figures are those of the last second

    def run(self, *command: str, tenant: str | None = "a") -> str:
        env = self.bed.environment(tenant) | {"COLUMNS": "150", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        words = [sys.executable, "-m", *command]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def busy() -> Iterator[Busy]:
    with Bed(sim="memory=8GiB") as bed:
        yield Busy(bed)


def test_gpustat_shows_a_tenant_its_own_figures(busy: Busy) -> None:
    pytest.importorskip("gpustat")
    (card,) = json.loads(busy.run("gpustat", "--json"))["gpus"]
    assert (card["memory.total"], card["memory.used"]) == (1024, 232)
    assert [(process["pid"], process["gpu_memory_usage"]) for process in card["processes"]] == [(busy.a, 232)]
    (whole,) = json.loads(busy.run("gpustat", "--json", tenant=None))["gpus"]
    assert whole["memory.total"] == 8192
    assert {process["pid"] for process in whole["processes"]} == {busy.a, busy.b}


def test_nvitop_shows_a_tenant_its_own_figures(busy: Busy) -> None:
    pytest.importorskip("nvitop")
    out = busy.run("nvitop", "--once", "--no-unicode")
    assert "232.0MiB / 1024MiB" in out
    assert [int(pid) for pid in re.findall(r"^\|\s+0\s+(\d+) C ", out, re.M)] == [busy.a]


READ = """
import json, sys, time, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
since = time.time_ns() // 1000 - 1_000_000
print(json.dumps({
    "card": pynvml.nvmlDeviceGetUtilizationRates(card).gpu,
    "samples": {s.pid: s.smUtil for s in pynvml.nvmlDeviceGetProcessUtilization(card, since)},
    "infos": {s.pid: s.smUtil for s in pynvml.nvmlDeviceGetProcessesUtilizationInfo(card, since)},
}))
"""


@pytest.mark.flaky(reruns=4)
def test_the_time_of_the_card_is_the_tenants_own_in_each_of_nvmls_figures(busy: Busy) -> None:
    def read(tenant: str | None) -> dict[str, dict[str, int]]:
        env = busy.bed.environment(tenant)
        words = [sys.executable, "-c", READ]
        return json.loads(subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout)

    own, whole = read("a"), read(None)
    assert set(own["samples"]) == set(own["infos"]) == {str(busy.a)}
    assert set(whole["samples"]) == set(whole["infos"]) == {str(busy.a), str(busy.b)}
    assert own["card"] == pytest.approx(own["samples"][str(busy.a)], abs=10)  # of two moments
    assert own["samples"][str(busy.a)] < whole["samples"][str(busy.b)]
    idle = Bed(sim="memory=8GiB")
    with idle:
        idle.tenant("c", 0.5, 1.0)
        answer = subprocess.run(
            [sys.executable, "-c", "import pynvml as p; p.nvmlInit(); "
             "print(p.nvmlDeviceGetUtilizationRates(p.nvmlDeviceGetHandleByIndex(0)).gpu)"],
            env=idle.environment("c"), capture_output=True, text=True, check=True)  # fmt: skip
        assert answer.stdout.strip() == "0"
