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

from libhook.build import BIND_INSIDE, HOOK_DIRS, sources

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FOLDERS = ("libhook", "scheduler_backend", "gemini", "bench", "tests")
WAYS = "tests/libhook/ways/test_ways.py"
# What is compiled is judged by what it does, not by how fast.
COMPILE = (
    "gcc",
    "-std=gnu11",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-w",
    "-include",
    "libhook/driver/floor.h",
    "-I.",
)


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

    def _object_name(self, source: Path) -> str:
        return f"{source.parent.name}-{source.name}.o"

    def shared_objects(self) -> Path:
        """The unchanged library's objects, compiled once."""
        with self._lock:
            made = self.folder / "objects"
            if not made.exists():
                fresh = self.folder / "objects.new"
                fresh.mkdir()
                self._compile(ROOT, sources(*HOOK_DIRS), fresh)
                fresh.rename(made)
            return made

    def _compile(self, tree: Path, files: list[Path], into: Path) -> None:
        for file in files:
            name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.relative_to(tree)
            target = into / self._object_name(file)
            subprocess.run([*COMPILE, "-c", "-o", str(target), str(name)], cwd=tree, check=True)

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
        return tree

    def build(self, tree: Path, changed: list[str]) -> None:
        """Link the copy's library; only what was changed is compiled."""
        objects = self.shared_objects()
        own = tree / "objects"
        own.mkdir()
        everything = any(name.endswith(".h") for name in changed)
        files = [tree / path.relative_to(ROOT) for path in sources(*HOOK_DIRS)]
        stale = [file for file in files if everything or str(file.relative_to(tree)) in changed]
        self._compile(tree, stale, own)
        parts = [own / self._object_name(f) if f in stale else objects / self._object_name(f) for f in files]
        exports = f"-Wl,--version-script={tree / 'libhook' / 'hooks' / 'exports.map'}"
        target = tree / "libhook" / "lib" / "libgemini_hook.so"
        command = ["gcc", "-shared", "-o", target, *parts, exports, "-Wl,-z,defs", "-Wl,-z,now", BIND_INSIDE]
        subprocess.run(list(map(str, command)), check=True)

    def tried(self, patch: Path | None) -> subprocess.CompletedProcess[str]:
        """Run the tests of the patch's number in a copy that it changed; without a patch, in one like this tree."""
        name = patch.stem if patch else "unchanged"
        tree = self.copy(name)
        changed = apply_patch(patch, tree) if patch else []
        self.build(tree, changed)
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
