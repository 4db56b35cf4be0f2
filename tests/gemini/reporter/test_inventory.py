"""The inventory as the simulated NVML gives it, by NVIDIA's own binding; NVLinks and MIG by a driver made here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemini.placement.model import Link
from gemini.reporter import inventory
from tests.gemini.reporter.conftest import Ask

LOOK = """
import dataclasses, json
from pathlib import Path
from gemini.reporter.inventory import answers, look
seen = look(Path("/nonexistent"))
uuids = [card.uuid for card in seen.cards]
print(json.dumps([dataclasses.asdict(seen), answers([*uuids, "GPU-none"])]))
"""


def test_A3_count_memory_and_places_of_cards_come_from_nvml(ask: Ask) -> None:
    seen, answered = json.loads(ask(LOOK))
    cards = seen["cards"]
    assert [(card["minor"], card["memory"], card["model"]) for card in cards] == [
        (minor, 80 << 30, "NVIDIA H200") for minor in range(4)
    ]
    assert len({card["uuid"] for card in cards}) == 4
    switches = [card["place"]["pcie"] for card in cards]
    assert switches[0] == switches[1] != switches[2] == switches[3]
    assert all(card["place"]["numa"] == "0" and card["place"]["cpus"] for card in cards)
    kinds = {(link["a"], link["b"]): link["kind"] for link in seen["links"]}
    assert kinds == {(0, 1): "PIX", (2, 3): "PIX", (0, 2): "PHB", (0, 3): "PHB", (1, 2): "PHB", (1, 3): "PHB"}
    assert answered == {**{card["uuid"]: True for card in cards}, "GPU-none": False}


def test_waiting_for_xids_ends_when_told_to(ask: Ask) -> None:
    program = """
from gemini.reporter.inventory import look, watch_xids
times = []
watch_xids([look().cards[0].uuid], print, lambda: times.append(0) or len(times) > 2)
print("ended", len(times))
"""
    assert ask(program).strip() == "ended 3"


def test_machine_without_nvml_cannot_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(inventory.CannotLook, match="NVML: "):
        inventory.look()
    assert inventory.answers(["GPU-0"]) == {"GPU-0": False}


class Driver(ModuleType):
    """As much of the binding as look() asks, for machines that the simulator does not model: cards 0 and 1 with two
    direct NVLinks, cards 2 and 3 at an NVSwitch, card 4 in MIG mode."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        switch = "00000000:C0:00.0"
        self._ends = {0: [self._bus(1)] * 2, 1: [self._bus(0)] * 2, 2: [switch] * 4, 3: [switch] * 3}
        for name in ("nvmlInit", "nvmlShutdown"):
            setattr(self, name, lambda: None)
        self.nvmlDeviceGetHandleByIndex = lambda index: index
        self.nvmlDeviceGetCount = lambda: 5
        self.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}".encode()
        self.nvmlDeviceGetName = lambda handle: "H200"
        self.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=1 << 30)
        self.nvmlDeviceGetPciInfo = lambda handle: SimpleNamespace(busId=self._bus(handle).encode())
        self.nvmlDeviceGetMinorNumber = lambda handle: 4 - handle
        self.nvmlDeviceGetMigMode = lambda handle: [int(handle == 4), 0]
        self.nvmlDeviceGetTopologyCommonAncestor = lambda a, b: 50

    @staticmethod
    def _bus(handle: int) -> str:
        return f"00000000:0{handle + 1}:00.0"

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= len(self._ends[handle]):
            raise self.NVMLError("no such link")
        return 1

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        return SimpleNamespace(busId=self._ends[handle][link].encode())


def test_nvlinks_are_counted_directly_or_through_switches_and_mig_cards_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver())
    seen = inventory.look(tmp_path)
    assert seen.mig == ("GPU-4",)
    assert [(card.uuid, card.minor, card.index) for card in seen.cards] == [(f"GPU-{i}", 4 - i, i) for i in range(4)]
    nvlinks = [link for link in seen.links if link.kind == "NVLINK"]
    assert nvlinks == [Link(3, 4, "NVLINK", 2), Link(1, 2, "NVLINK", 3)]  # by minor
    assert sum(link.kind == "SYS" for link in seen.links) == 6
