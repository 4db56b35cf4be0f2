"""gemini check: each finding of a machine that is not as it should be, with what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gemini.cli import check, nvml
from gemini.cli.assumptions import ASSUMPTIONS
from gemini.cli.node import Node
from tests.gemini.cli.conftest import Place


def card(**more: object) -> dict[str, object]:
    return {
        "name": "H200",
        "memory_bytes": 1 << 37,
        "uuid": "GPU-1",
        "exclusive": False,
        "prohibited": False,
        "mig": False,
        **more,
    }


@pytest.mark.parametrize(
    ("fault", "verdict", "mend"),
    [("exclusive", check.FAIL, "-c DEFAULT"), ("prohibited", check.FAIL, "-c DEFAULT"), ("mig", check.WARN, "-mig 0")],
)
def test_modes_of_a_card_that_hinder_sharing_are_said(
    monkeypatch: pytest.MonkeyPatch, fault: str, verdict: str, mend: str
) -> None:
    monkeypatch.setattr(nvml, "devices", lambda: [card(**{fault: True})])
    lines = list(check.sharing(Node(Path("/"))))
    assert lines
    assert lines[0][0] == verdict
    assert mend in lines[0][1]


def test_mps_and_other_interposers_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvml, "devices", lambda: [card()])
    (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert [verdict for verdict, _ in check.sharing(Node(Path("/")))] == [check.WARN]
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libvgpu.so:/usr/lib/libjemalloc.so")
    verdicts = dict((text.split()[1], verdict) for verdict, text in check.interposers(Node(Path("/"))))
    assert verdicts == {"/usr/lib/libvgpu.so": check.WARN, "/usr/lib/libjemalloc.so": check.OK}


def test_a_simulated_machine_that_is_none_is_said() -> None:
    ((verdict, text),) = check.driver(Node(Path("/"), "nonsense"))
    assert verdict == check.FAIL
    assert "--sim='nonsense'" in text
    assert "gpus=2" in text


def test_a_left_over_socket_and_a_long_path_are_said(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "control.sock"))
    assert [verdict for verdict, _ in check.daemon(Node(tmp_path))] == [check.WARN]
    lines = list(check.daemon(Node(tmp_path / ("d" * 100))))
    assert lines[0][0] == check.FAIL
    assert "shorter" in lines[0][1]


def test_a_simulated_card_needs_no_driver() -> None:
    assert list(check.sharing(Node(Path("/"), "gpus=1"))) == []


def test_check_says_what_is_there(place: Place) -> None:
    done = place.gemini("check")
    assert done.returncode == 0, done.stdout
    assert "simulated" in done.stdout
    assert all(line.split()[0] in ("ok", "warn") for line in done.stdout.splitlines())


def test_what_is_assumed_of_the_driver_is_asked_of_it(place: Place) -> None:
    lines = [line for line in place.gemini("check").stdout.splitlines() if "assumed:" in line]
    assert len(lines) == 1, lines
    assert f"{len(ASSUMPTIONS)} of {len(ASSUMPTIONS)} assumptions hold" in lines[0]


def test_an_assumption_that_does_not_hold_is_said_with_what_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"card_name": "X", "context_bytes": 600 << 20, "ptx_sm_50": 0}
    monkeypatch.setattr(check.assumptions, "harmless", lambda _environment: {"answers": seen})
    (_, told), (verdict, text) = check.assumed(Node(Path("/"), "gpus=1"))
    assert told.startswith(f"assumed: 1 of {len(ASSUMPTIONS)} assumptions hold; not told: ")
    assert verdict == check.WARN
    assert "a context takes at most 512 MiB: where NVML hides pids" in text


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_check_without_a_driver_says_what_to_do() -> None:
    done = subprocess.run([sys.executable, "-m", "gemini", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--sim" in done.stdout
