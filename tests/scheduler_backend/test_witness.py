"""What cards say that tenants use, and when they are asked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from bench.bed import LOAD, Bed
from scheduler_backend import witness
from scheduler_backend.core import events as ev
from scheduler_backend.devices import Gpu, Untold
from scheduler_backend.witness import Witness
from tests.scheduler_backend.serve import GPUS


class Asked:
    """A witness of two GPUs, what it asked and what it said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: dict[int, int] | Untold) -> None:
        self.now_ns = 10**15
        self.answers = list(answers)
        self.since: list[tuple[int, int]] = []
        self.said: list[ev.Weighed] = []
        monkeypatch.setattr(witness.time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(witness.time, "time_ns", lambda: self.now_ns + 5_000)
        self.witness = Witness(GPUS, lambda: {7: "a", 8: "a", 9: "b"}, self.said.append, self.ask)

    def ask(self, gpu: Gpu, since_us: int) -> dict[int, int]:
        self.since.append((gpu.index, since_us))
        answer = self.answers.pop(0)
        if isinstance(answer, Untold):
            raise answer
        return answer

    def weigh(self, wanted: dict[int, list[str]], later_ns: int = 1_000_000_000) -> list[ev.Weighed]:
        self.now_ns += later_ns
        del self.said[:]
        asyncio.run(self.witness.weigh(wanted))
        return self.said


def test_what_a_tenant_used_is_the_sum_of_its_processes_since_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, {7: 50}, {7: 20, 8: 30, 9: 5, 10: 40})
    assert asked.weigh({0: ["a", "b"]}) == [ev.Weighed("a", 0, 0, 0), ev.Weighed("b", 0, 0, 0)]
    first_us = asked.now_ns // 1000
    assert asked.weigh({0: ["a", "b"]}) == [
        ev.Weighed("a", 0, 500_000_000, 1_000_000_000),
        ev.Weighed("b", 0, 50_000_000, 1_000_000_000),
    ]
    assert [gpu for gpu, _ in asked.since] == [0, 0]
    assert abs(asked.since[1][1] - first_us) <= 5


def test_what_a_process_used_that_has_ended_since_is_its_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one whose processes take turns of a second each would use what nobody counts."""
    asked = Asked(monkeypatch, {}, {6: 40}, {6: 40}, {6: 40}, {})
    asked.witness.left(5, "a")
    asked.weigh({0: ["a"]})
    asked.witness.left(6, "a")
    assert [said.card_ns for said in asked.weigh({0: ["a"]})] == [400_000_000]
    asked.weigh({0: ["a"]})
    assert [said.card_ns for said in asked.weigh({0: ["a"]})] == [0], "by now another may have its number"


def test_it_is_not_asked_too_often_and_after_a_pause_it_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, {}, {}, {})
    asked.weigh({0: ["a"]})
    assert asked.weigh({0: ["a"]}, 250_000_000) == []
    assert asked.weigh({}) == []
    assert asked.weigh({0: ["a"]}) == [ev.Weighed("a", 0, 0, 0)]
    assert len(asked.answers) == 1


def test_a_card_that_does_not_say_it_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, Untold("Not Supported"), {})
    assert asked.weigh({0: ["a"], 1: ["b"]}) == [ev.Weighed("b", 1, 0, 0)]
    assert asked.weigh({0: ["a"], 1: ["b"]}, 250_000_000) == []  # no sooner than where it says it


def test_without_nvml_nothing_can_be_said() -> None:
    assert not witness.is_able(GPUS)


def test_the_simulated_card_says_which_process_ran() -> None:
    with Bed() as bed:
        bed.tenant("a", 0.5, 1.0)
        child = bed.spawn("a", [LOAD, "--seconds", "0"], stdout=subprocess.DEVNULL)
        bed.until_busy("a")
        bed.sample(1.0)
        asking = "from scheduler_backend import devices, witness; import json, time; [gpu] = devices.inventory(None);"
        asking += "found = devices.utilization(gpu, time.time_ns() // 1000 - 1_000_000);"
        asking += "print(json.dumps([witness.is_able([gpu]), found]))"
        told = subprocess.run([sys.executable, "-c", asking], env=bed.environment(), capture_output=True, check=True)
        able, found = json.loads(told.stdout)
        assert able
        assert found.pop(str(child.pid)) > 50
        assert not found
