"""The local node: where its state lies, and what it adds to environments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemini.cli.node import HOOK, SIM, Node, sim_environment, simulation, tenant_environment
from scheduler_backend.config import default_state_dir


def test_the_default_state_directory_depends_on_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where XDG_RUNTIME_DIR is another user's, as su and sudo leave it."""
    mine = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_state_dir() == Path("/run/gemini")
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    monkeypatch.setattr(os, "getuid", lambda: 7)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_state_dir() == Path("/tmp/gemini-7")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_state_dir() == Path("/tmp/gemini-7")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if mine == 0:
        os.chown(tmp_path, 7, -1)
        assert default_state_dir() == tmp_path / "gemini"


def test_the_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_SIM", raising=False)
    assert (simulation(None), simulation(""), simulation("gpus=2")) == (None, "gpus=1", "gpus=2")
    monkeypatch.setenv("GEMINI_SIM", "gpus=3")
    assert (simulation(None), simulation(""), simulation("gpus=2")) == ("gpus=3", "gpus=3", "gpus=2")


def test_environments_keep_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    front = [str(SIM / f"libcudart.so.{major}") for major in (12, 13)]
    monkeypatch.setenv("LD_PRELOAD", f"/lib/other.so:{HOOK}:{front[0]}")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    made = tenant_environment(Node(Path("/x"), "gpus=1"), "/x/s", (0.3, 1.0), 5, ["GPU-1"])
    *ours, last = made["LD_PRELOAD"].split()
    assert (ours[0], last, ours.count(front[0])) == (str(HOOK), "/lib/other.so", 1)
    assert set(front) <= set(ours)  # published packages would find NVIDIA's own beside themselves otherwise
    real = tenant_environment(Node(Path("/x")), "/x/s", (0.3, 1.0))
    assert [p for p in real["LD_PRELOAD"].split() if p not in front] == [str(HOOK), "/lib/other.so"]
    assert made["LD_LIBRARY_PATH"].split(":")[1:] == ["/opt/lib"]
    assert (made["GEMINI_MEMORY_LIMIT"], made["CUDA_VISIBLE_DEVICES"]) == ("5", "GPU-1")
    assert "GEMINI_MEMORY_LIMIT" not in tenant_environment(Node(Path("/x")), "/x/s", (0.3, 1.0))
    assert sim_environment("gpus=1")["GEMINI_SIM"] == "gpus=1"
