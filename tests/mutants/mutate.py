"""Mutants: copies of the tree in which one patch has taken a defence of the library out.

A patch is the form that `diff -u` makes, with one line before it that says what is gone. It is applied by its words
alone: the old lines must stand in the file exactly once, wherever that is; else the patch is stale, and that is an
error. `python -m tests.mutants.mutate PATCH...` runs the tests of the named patches and prints what they said.

In a copy only the preload library is built anew, from objects that are shared by all mutants as far as they are the
same; the rest of what is built is a link to this tree's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FOLDERS = ("libhook", "scheduler_backend", "gemini", "bench", "tests")
WAYS = "tests/libhook/ways/test_ways.py"
# What is compiled is judged by what it does, not by how fast, and by no warning.
COMPILE = "-O1 -g0 -w"
BUILD = "from libhook import build; build.build_hook()"


class StalePatch(Exception):
    """The patch does not fit the sources any more."""


@dataclass(frozen=True)
class Hunk:
    file: str
    old: str
    new: str


def read_patch(text: str) -> list[Hunk]:
    """The hunks of a unified diff; context lines belong to both sides."""
    hunks: list[tuple[str, list[str], list[str]]] = []
    file = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("--- ") or not (file or line.startswith("+++ ")):
            continue
        if line.startswith("+++ "):
            file = line[4:].strip().removeprefix("b/")
        elif line.startswith("@@"):
            hunks.append((file, [], []))
        else:
            if line[0] in " -":
                hunks[-1][1].append(line[1:])
            if line[0] in " +":
                hunks[-1][2].append(line[1:])
    return [Hunk(file, "".join(old), "".join(new)) for file, old, new in hunks]


def apply_patch(patch: Path, tree: Path) -> list[str]:
    """Change the files of `tree`; their names."""
    hunks = read_patch(patch.read_text())
    if not hunks:
        raise StalePatch(f"{patch.name} has no hunks")
    for hunk in hunks:
        target = tree / hunk.file
        text = target.read_text() if target.exists() else ""
        if text.count(hunk.old) != 1:
            found = "is not there" if hunk.old not in text else "stands there more than once"
            raise StalePatch(
                f"{patch.name} no longer fits {hunk.file}: what it changes {found}. Find where the defence stands now "
                f"and write the patch anew; its first line says what it takes out. It looked for:\n{hunk.old}"
            )
        target.write_text(text.replace(hunk.old, hunk.new))
    return [hunk.file for hunk in hunks]


class Workshop:
    """Where mutants are made: a folder with the objects that they share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def copy(self, name: str) -> Path:
        """A copy of the tree, with what is built linked into it, but for the library."""
        tree = self.folder / name
        skipped = shutil.ignore_patterns("lib", "__pycache__", "*.so", "out", "e2e")
        for folder in FOLDERS:
            shutil.copytree(ROOT / folder, tree / folder, ignore=skipped)
        shutil.copyfile(ROOT / "pyproject.toml", tree / "pyproject.toml")
        for built in [*(ROOT / "libhook").glob("_core_*"), *(ROOT / "libhook" / "lib").iterdir()]:
            place = tree / built.relative_to(ROOT)
            place.parent.mkdir(exist_ok=True)
            if built.name != "libgemini_hook.so" and not place.exists():
                place.symlink_to(built)
        objects = self.folder / "objects"
        objects.mkdir(exist_ok=True)
        (tree / "build").mkdir()
        (tree / "build" / "objects").symlink_to(objects)
        return tree

    def build(self, tree: Path) -> None:
        """Make the copy's library; only what no other copy had is compiled."""
        environment = {**os.environ, "PYTHONPATH": str(tree), "GEMINI_CFLAGS": COMPILE}
        with self._lock:  # so that what all have is compiled once
            command = [sys.executable, "-c", BUILD]
            subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.DEVNULL)

    def tried(self, patch: Path | None) -> subprocess.CompletedProcess[str]:
        """Run the tests of the patch's number in a copy that it changed; without a patch, in one like this tree."""
        name = patch.stem if patch else "unchanged"
        tree = self.copy(name)
        if patch:
            apply_patch(patch, tree)
        self.build(tree)
        chosen = f"test_way_{name[:2]}_" if patch else "test_way_03_ or test_way_17_"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", WAYS, "-k", chosen]
        command += ["--force-reruns=0"] if patch else []  # it is to fail: soon, and once
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if patch:
            environment["GEMINI_WAYS_PATIENCE"] = "5"
        for _ in range(2 if patch else 1):  # where all is slow a lost wake-up, say, may do no harm once
            done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=600)
            if failed_as_it_should(done):
                break
        shutil.rmtree(tree)
        return done


def failed_as_it_should(done: subprocess.CompletedProcess[str]) -> bool:
    """A test of the library failed, rather than the set-up around it."""
    return done.returncode == 1 and re.search(r"^1 failed", done.stdout.splitlines()[-1]) is not None


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gemini-mutants-") as folder:
        workshop = Workshop(Path(folder))
        survivors = 0
        for patch in map(Path, sys.argv[1:]):
            done = workshop.tried(patch)
            survived = not failed_as_it_should(done)
            survivors += survived
            said = done.stdout.splitlines()
            errors = [line for line in said if line.startswith("E  ")]
            print(f"{patch.stem}: {'SURVIVED' if survived else 'killed'}: {(errors or said)[0]}", flush=True)
        return survivors


if __name__ == "__main__":
    sys.exit(main())
