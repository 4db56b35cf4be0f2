"""Compiles C sources to objects in build/objects, each once for what it is made of, and links them (see build.py).

An object is named for its source, the command, and what is in each file of ours that the compiler read for it. So the
same text gives the same object, in a copy of the tree too, and what was edited and taken back is not compiled again.
Which files were read stands beside the objects of a source, as the compiler says it. A library is linked again where
its objects, its command or a linker script are others than those it was last made of.

Sources that are missing are compiled at once on all processors, the last edited first: its faults show soonest.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent
TREE = ROOT.parent
OBJECTS = TREE / "build" / "objects"
LINKED = TREE / "build" / "linked"
KEPT_S = 24 * 3600  # objects of sources as they were are kept for a day


@cache
def _content(path: Path, _changed_ns: int, _bytes: int) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def _digest(words: Sequence[str], files: Iterable[Path]) -> str:
    """A name for a command and what is in these files. Raises FileNotFoundError."""
    whole = hashlib.sha256(shlex.join(words).encode())
    for path in files:
        state = path.stat()
        whole.update(_content(path, state.st_mtime_ns, state.st_size))
    return whole.hexdigest()[:20]


def _read_for(rule: Path) -> list[Path]:
    """The files that a compiler's rule (-MMD) names behind the colon. Raises FileNotFoundError."""
    return [TREE / word for word in shlex.split(rule.read_text().partition(":")[2].replace("\\\n", " "))]


class Compiler:
    """A command that makes objects, as `gcc -O2`; the tree is its working folder."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command]
        self._folder = OBJECTS / hashlib.sha256(shlex.join(command).encode()).hexdigest()[:12]

    def _rule(self, source: Path) -> Path:
        return self._folder / f"{source.relative_to(TREE)}.d"

    def object(self, source: Path) -> Path | None:
        """The object of a source as it and its headers are now; None where it is to be compiled."""
        rule = self._rule(source)
        try:
            found = rule.with_name(f"{source.name}-{_digest(self._command, _read_for(rule))}.o")
        except FileNotFoundError:  # never compiled, or a header is gone
            return None
        return found if found.exists() else None

    def compile(self, source: Path) -> Path:
        """Its object, compiled now. Raises CalledProcessError."""
        rule = self._rule(source)
        rule.parent.mkdir(parents=True, exist_ok=True)
        own = f"{os.getpid()}.tmp"
        made, read = rule.with_name(f"{source.name}.{own}.o"), rule.with_name(f"{source.name}.{own}.d")
        words = [*self._command, "-MMD", "-MF", str(read), "-c", "-o", str(made), str(source.relative_to(TREE))]
        subprocess.run(words, cwd=TREE, check=True)
        target = rule.with_name(f"{source.name}-{_digest(self._command, _read_for(read))}.o")
        made.replace(target)
        read.replace(rule)
        for older in rule.parent.glob(f"{source.name}-*.o"):
            if older != target and time.time() - older.stat().st_mtime > KEPT_S:
                older.unlink(missing_ok=True)
        return target


def _compile_all(missing: list[tuple[Compiler, Path]]) -> list[Path]:
    """The objects of these, in their order. Raises CalledProcessError by the first that fails."""
    by_age = sorted(missing, key=lambda one: -one[1].stat().st_mtime)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        made = {id(one): pool.submit(one[0].compile, one[1]) for one in by_age}
        for one in by_age:
            made[id(one)].result()
        return [made[id(one)].result() for one in missing]
    finally:
        pool.shutdown(cancel_futures=True)


def link(
    target: Path,
    inputs: Sequence[tuple[Compiler, Path]],
    command: Sequence[str],
    flags: Sequence[str],
    scripts: Sequence[Path],
) -> None:
    """Make `target` by `command` of the objects of `inputs`, and `flags` behind them, unless it was made of just these
    and `scripts` (the linker's) are as they were. Raises CalledProcessError."""
    name = target.relative_to(TREE)
    stamp = LINKED / name

    def recipe(objects: list[Path]) -> str:
        return _digest([*command, *(str(path.relative_to(OBJECTS)) for path in objects), *flags], scripts)

    found = [compiler.object(source) for compiler, source in inputs]
    ready = [path for path in found if path is not None]
    if len(ready) == len(found) and target.exists() and stamp.exists() and stamp.read_text() == recipe(ready):
        return
    print(f"  CC  {name}", flush=True)
    made = iter(_compile_all([one for one, path in zip(inputs, found, strict=True) if path is None]))
    objects = [path or next(made) for path in found]
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + f".{os.getpid()}.tmp")
    subprocess.run([*command, "-o", str(temporary), *map(str, objects), *flags], cwd=TREE, check=True)
    temporary.replace(target)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(recipe(objects))
