"""What the commands ask NVML, with a stand-in for pynvml: cards, and a machine that has none."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from gemini.cli import nvml


def stand_in(monkeypatch: pytest.MonkeyPatch, **functions: object) -> None:
    module = types.ModuleType("pynvml")
    module.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, module.NVML_COMPUTEMODE_PROHIBITED = 3, 2  # type: ignore[attr-defined]
    basics = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: b"GPU-1",
    }
    for name, function in {**basics, **functions}.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "pynvml", module)


def test_what_a_card_does_not_say_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, nvmlDeviceGetName=lambda handle: b"H200", nvmlDeviceGetComputeMode=lambda handle: 3)
    (card,) = nvml.devices()
    assert (card["name"], card["uuid"], card["exclusive"], card["prohibited"]) == ("H200", "GPU-1", True, False)
    assert (card["memory_bytes"], card["mig"]) == (None, None)


def test_a_machine_without_nvml_has_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no library")

    stand_in(monkeypatch, nvmlInit=broken)
    assert nvml.devices() == []
    assert nvml.driver_version() is None
    assert nvml.local_cores("0") == set()


def test_cores_near_a_card_are_read_from_sysfs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read_text(path: Path) -> str:
        asked.append(str(path))
        return "0-2,8\n"

    monkeypatch.setattr(Path, "read_text", read_text)
    stand_in(monkeypatch, nvmlDeviceGetPciInfo=lambda handle: types.SimpleNamespace(busId=b"00000000:3B:00.0"))
    assert nvml.local_cores("GPU-1") == {0, 1, 2, 8}
    assert asked == ["/sys/bus/pci/devices/0000:3b:00.0/local_cpulist"]
    assert nvml.local_cores("7") == set()
