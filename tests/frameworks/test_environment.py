"""What `python -m tests.frameworks.environment` does with its words, in a cache of its own; nothing is fetched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.environment import ENVIRONMENTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def environment(cache: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run it; what it would fetch fails before that."""
    env = {**os.environ, "GEMINI_FRAMEWORKS_CACHE": str(cache), **more}
    command = [sys.executable, "-m", "tests.frameworks.environment", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("words", [("--help",), ("--list",), ("--list", "jax")])
def test_who_only_asks_fetches_nothing(words: tuple[str, ...], cache: Path) -> None:
    done = environment(cache, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in ENVIRONMENTS if name not in done.stdout] == []
    assert not cache.exists()


def test_a_name_that_is_none_is_said_in_one_line_before_anything_is_fetched(cache: Path) -> None:
    done = environment(cache, "jax", "jacks")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gemini: no environment is called jacks; --list names all\n"
    assert not cache.exists()


def test_what_cannot_be_had_is_said_in_one_line(cache: Path, tmp_path: Path) -> None:
    """The last one of what failed; and only what was named is tried."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf 'much text\\nno room on the disk\\n' >&2\nexit 1\n")
    python.chmod(0o755)
    done = environment(cache, "torch-newer-python", GEMINI_NEWER_PYTHON=str(python))
    assert (done.returncode, done.stdout.count("  PIP  ")) == (1, 1)
    assert done.stderr == "gemini: torch-newer-python cannot be had: no room on the disk\n"


def test_a_cache_that_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = environment(tmp_path / "file" / "cache", "bitsandbytes")
    assert done.returncode == 1
    assert done.stderr.startswith("gemini: bitsandbytes cannot be had: ")
    assert done.stderr.count("\n") == 1
