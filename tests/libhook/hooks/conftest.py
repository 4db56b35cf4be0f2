"""C programs and libraries compiled by the tests, once a session."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.libhook.hooks.guest import APPS, HERE, ROOT, Build


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile `source` to a file called `output` (a folder of its own for each set of arguments, once a session)."""
    base = tmp_path_factory.mktemp("built")

    def compiled(source: Path, output: str, *flags: str) -> Path:
        key = hashlib.sha256(repr((source, output, flags)).encode()).hexdigest()[:12]
        target = base / key / output
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", f"-I{ROOT}", "-o", str(target), str(source)]
            subprocess.run([*command, *flags, "-ldl", "-lpthread"], check=True)
        return target

    return compiled


@pytest.fixture(scope="session")
def shared(build: Build) -> Build:
    """The same for a shared library."""

    def compiled(source: Path, output: str, *flags: str) -> Path:
        return build(source, output, "-shared", "-fPIC", f"-Wl,-soname,{output}", *flags)

    return compiled


@pytest.fixture(scope="session")
def lookup(build: Build) -> Path:
    """tests/apps/lookup.c, not linked against any driver."""
    return build(APPS / "lookup.c", "lookup")


@pytest.fixture(scope="session")
def look(shared: Build) -> Path:
    """tests/apps/look.c: a library that looks up by itself."""
    return shared(APPS / "look.c", "liblook.so")


@pytest.fixture(scope="session")
def fake(shared: Build) -> Callable[..., Path]:
    """The folder of a libcuda.so.1 made from fake_cuda.c with these flags."""
    return lambda *flags: shared(HERE / "fake_cuda.c", "libcuda.so.1", *flags).parent
