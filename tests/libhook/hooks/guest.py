"""What the tests of the library as a guest share: paths, the environment that puts it into a process, running."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from libhook.build import preloaded

ROOT = Path(__file__).resolve().parents[3]
APPS = ROOT / "tests" / "apps"
HERE = Path(__file__).resolve().parent
HOOK = ROOT / "libhook" / "lib" / "libgemini_hook.so"
SIM = ROOT / "libhook" / "lib" / "sim"

Build = Callable[..., Path]


def inside(*preload: Path, path: Path | None = None, **more: str) -> dict[str, str]:
    """The environment of a process with the library (or whatever is named) preloaded and no tenant's socket."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GEMINI_", "LD_"))}
    environment["LD_PRELOAD"] = preloaded(*(preload or (HOOK,)))
    if path is not None:
        environment["LD_LIBRARY_PATH"] = str(path)
    return environment | more


def lines(program: Path, *arguments: str, env: dict[str, str]) -> list[str]:
    """Run to the end; what it printed. Anything on stderr or a bad status fails the test."""
    done = subprocess.run([str(program), *arguments], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.splitlines()
