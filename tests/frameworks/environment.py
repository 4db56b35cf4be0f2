"""Published frameworks in environments of their own: `python -m tests.frameworks.environment [NAME ...]` fetches them.

Each environment lies in a folder of the cache that is named by what is in it, and is made once; it has its name when it
is whole. One that is over another adds its packages to those of that, and shares them. One for a newer Python is made
where there is one: $GEMINI_NEWER_PYTHON, else the newest python3.N on PATH or of pyenv. The cache is
$GEMINI_FRAMEWORKS_CACHE, else gemini-frameworks in the user's cache folder. PyTorch is 3 GB to fetch and 5.4 GB on the
disk, that of CUDA 12 a GB more, that for PyTorch's own tests 5.3; JAX is 4.4 GB there, vLLM 8.4, ONNX Runtime 0.6.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.frameworks import own_source
from tests.frameworks.own_source import CannotFetch

OWN_TESTS_NEED = ("expecttest==0.3.0", "psutil==7.1.3", "setuptools==80.9.0")
# name -> what pip installs
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "torch-cu13": ("torch==2.15.0", "numpy==2.4.6"),
    "torch-cu12": ("torch==2.8.0", "numpy==2.4.6"),
    "jax": ("jax[cuda13]==0.10.2", "numpy==2.4.6"),
    "onnx": ("onnxruntime-gpu==1.31.0", "onnx==1.23.2", "nvidia-curand==10.4.5.25", "numpy==2.4.6"),
    "bitsandbytes": ("bitsandbytes==0.50.2", "packaging==25.0"),
    "torch-newer-python": ("torch==2.15.0", "numpy==2.4.6"),
    "vllm": ("vllm==0.32.0",),
    "torch-own-tests": (f"torch=={own_source.VERSION}", "numpy==2.4.6", "nvidia-ml-py==13.615.71", *OWN_TESTS_NEED),
}
OVER = {"bitsandbytes": "torch-cu13"}
NEWER_PYTHON = {"torch-newer-python"}
WITH_SOURCE = "torch-own-tests"  # needs own_source.py's files as well


def cache_folder() -> Path:
    named = os.environ.get("GEMINI_FRAMEWORKS_CACHE")
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else users / "gemini-frameworks"


def version_of(python: Path) -> str:
    """Its "3.N"; empty where it does not run, as a shim for a version that is not chosen."""
    words = [str(python), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


@functools.cache
def newer_python() -> Path | None:
    """An interpreter that is newer than this one."""
    named = os.environ.get("GEMINI_NEWER_PYTHON")
    if named:
        return Path(named)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in range(sys.version_info.minor + 3, sys.version_info.minor, -1):
        called = f"python3.{minor}"
        on_path = shutil.which(called)
        for python in [*map(Path, filter(None, [on_path])), *sorted(pyenv.glob(f"3.{minor}.*/bin/{called}"))]:
            if version_of(python) == f"3.{minor}":
                return python
    return None


def maker(name: str) -> Path | None:
    """The interpreter that the environment is made by; None where there is none."""
    return newer_python() if name in NEWER_PYTHON else Path(sys.executable)


def place(name: str) -> Path:
    """Where the environment is, or will be."""
    made_by = maker(name)
    python = version_of(made_by) if made_by and name in NEWER_PYTHON else f"3.{sys.version_info.minor}"
    under = ENVIRONMENTS[OVER[name]] if name in OVER else ()
    said = hashlib.sha256(" ".join((python, *ENVIRONMENTS[name], *under)).encode()).hexdigest()[:12]
    return cache_folder() / f"{name}-{said}"


def python_of(name: str) -> Path | None:
    """Its interpreter; None where it was not fetched."""
    python = place(name) / "bin" / "python"
    return python if (place(name) / "whole").exists() else None


def packages(name: str) -> Path:
    (folder,) = place(name).glob("lib/python*/site-packages")
    return folder


def run(words: list[str]) -> None:
    """Run it; CannotFetch with the last line that it said where it fails."""
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"{words[0]} ended with {done.returncode}"]
        raise CannotFetch(said[-1])


def fetch(name: str) -> None:
    """Make the environment, unless it is there; CannotFetch or OSError where it cannot be had."""
    folder = place(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = maker(name)
    if python is None:
        print(f"gemini: {name} is left out: no Python newer than this one is on PATH or of pyenv", file=sys.stderr)
        return
    if name in OVER:
        fetch(OVER[name])
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if python_of(name) is not None:
            return
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        print(f"  PIP  {' '.join(ENVIRONMENTS[name])}, in {folder}", flush=True)
        run([str(python), "-m", "venv", str(folder)])
        with tempfile.TemporaryDirectory(dir=folder.parent) as wheels:  # not kept twice
            pip = [str(folder / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check", "--no-input"]
            alone = ["--no-deps"] if name in OVER else []
            run([*pip, "install", "--cache-dir", wheels, *alone, *ENVIRONMENTS[name]])
        if name in OVER:
            (packages(name) / "under.pth").write_text(f"{packages(OVER[name])}\n")
        (folder / "whole").touch()


def show() -> None:
    """One line for each environment: its name, whether it is there, and what is in it."""
    for name, wanted in ENVIRONMENTS.items():
        print(f"{name:20} {'fetched' if python_of(name) else 'not yet':8} {' '.join(wanted)}")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.frameworks.environment",
        description=f"Fetch published frameworks into {cache_folder()}, once: 36 GB if all are wanted.\n"
        "$GEMINI_FRAMEWORKS_CACHE names another folder, $GEMINI_NEWER_PYTHON an interpreter that is newer.",
        epilog="\n  ".join(["names:", *ENVIRONMENTS]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="which, of those below (default: all)")
    made.add_argument("--list", action="store_true", help="say which are there and what is in them, and fetch nothing")
    return made


def main(words: list[str] | None = None) -> int:
    asked = parser().parse_args(words)
    unknown = [name for name in asked.names if name not in ENVIRONMENTS]
    if unknown:
        print(f"gemini: no environment is called {', '.join(unknown)}; --list names all", file=sys.stderr)
        return 2
    if asked.list:
        show()
        return 0
    names = asked.names or list(ENVIRONMENTS)
    for name in names:
        try:
            fetch(name)
        except (OSError, CannotFetch) as error:
            print(f"gemini: {name} cannot be had: {error}", file=sys.stderr)
            return 1
    if WITH_SOURCE not in names:
        return 0
    try:
        own_source.fetch(cache_folder())
    except CannotFetch as error:
        print(f"gemini: PyTorch's own tests are left out: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
