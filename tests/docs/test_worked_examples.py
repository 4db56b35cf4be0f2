"""docs/worked-examples.md: each example carried out in a copy of the tree, and again with one part left out at a time.

The words in the code of an example's heading are what a failure has to name, whichever part is missing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tests.mutants.mutate import FOLDERS, ROOT, Hunk, read_patch

PAGE = ROOT / "docs" / "worked-examples.md"
KEPT = "libraries"  # beside the copy: what is built of the sources as they are
COMPILE = "-O0 -g0"  # judged by what it does, not by how fast
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Example:
    words: tuple[str, ...]
    hunks: tuple[Hunk, ...]
    commands: tuple[str, ...]

    @property
    def parts(self) -> list[str]:
        """What may be forgotten: one of several files, or a command that is no test."""
        files = list(dict.fromkeys(hunk.file for hunk in self.hunks))
        return (files if len(files) > 1 else []) + [c for c in self.commands if "pytest" not in c]


def read(page: Path) -> dict[str, Example]:
    """By the first word in the heading's code."""
    heads = [(n, line) for n, line in enumerate(page.read_text().splitlines(), 1) if line.startswith("## ")]
    found = {}
    for (start, head), (end, _) in zip(heads, [*heads[1:], (1 << 30, "")], strict=True):
        here = [block for block in blocks(page) if start < block.line < end]
        words = tuple(re.findall(r"`([^`]+)`", head))
        diff = "\n".join(block.text for block in here if block.language == "diff")
        typed = "\n".join(block.text for block in here if block.language == "sh").splitlines()
        commands = tuple(line for line in typed if line.startswith("python "))
        found[words[0]] = Example(words, tuple(read_patch(diff + "\n")), commands)
    return found


EXAMPLES = read(PAGE)
LEFT_OUT = [(name, part) for name, example in EXAMPLES.items() for part in example.parts]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy in which Python reads the modules as they stand; what is built of C is a copy of this tree's."""
    made = tmp_path_factory.mktemp("examples") / "tree"
    kept = made.parent / KEPT
    skipped = shutil.ignore_patterns("lib", "__pycache__", "*.so", "out")
    for folder in (*FOLDERS, "docs"):
        shutil.copytree(ROOT / folder, made / folder, ignore=skipped)
    shutil.copyfile(ROOT / "pyproject.toml", made / "pyproject.toml")
    for built in (ROOT / "libhook").glob("_core_*"):
        if not (made / "libhook" / built.name).exists():
            (made / "libhook" / built.name).symlink_to(built)
    shutil.copytree(ROOT / "libhook" / "lib", kept)
    shutil.copytree(kept, made / "libhook" / "lib")
    yield made
    shutil.rmtree(made.parent)


def put_back_libraries(tree: Path) -> None:
    """Those of the sources as they are, and no word on what they were made of. Objects are named for their content."""
    shutil.rmtree(tree / "libhook" / "lib")
    shutil.rmtree(tree / "build" / "linked", ignore_errors=True)
    shutil.copytree(tree.parent / KEPT, tree / "libhook" / "lib")


def carried_out(example: Example, tree: Path, left_out: str = "") -> tuple[int, str]:
    """What the commands end with and say; the tree is as before afterwards."""
    kept: dict[Path, str] = {}
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "GEMINI_CFLAGS": COMPILE}
    pages = [tree / "docs" / name for name in ("configuration.md", "protocol.md")]
    try:
        for path in pages:
            kept[path] = path.read_text()
        for hunk in example.hunks:
            path = tree / hunk.file
            kept.setdefault(path, path.read_text())
            if hunk.file != left_out:
                old, new = hunk.old.removesuffix("\n"), hunk.new.removesuffix("\n")
                assert path.read_text().count(old) == 1, f"{hunk.file} has not once:\n{old}"
                path.write_text(path.read_text().replace(old, new))
        said = ""
        for command in example.commands:
            if command == left_out:
                continue
            words = [sys.executable, *shlex.split(command)[1:]]
            words += ["-p", "no:cacheprovider", "--tb=short"] if "pytest" in words else []
            done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, check=False)
            said += done.stdout + done.stderr
            if done.returncode:
                return done.returncode, said
        return 0, said
    finally:
        for path, text in kept.items():
            path.write_text(text)
        if any("libhook.build" in command for command in example.commands):
            put_back_libraries(tree)


def test_the_examples_are_read() -> None:
    assert list(EXAMPLES) == ["lifo", "cuMemsetZeroAsync", "gemini_waiting", "gpu-numa"]
    assert all(example.hunks and example.commands for example in EXAMPLES.values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_passes_as_it_is_written(name: str, tree: Path) -> None:
    status, said = carried_out(EXAMPLES[name], tree)
    assert status == 0, said


@pytest.mark.parametrize(("name", "part"), LEFT_OUT)
def test_a_part_that_is_forgotten_fails_a_test_that_names_it(name: str, part: str, tree: Path) -> None:
    example = EXAMPLES[name]
    status, said = carried_out(example, tree, left_out=part)
    assert status != 0, f"nobody misses {part}"
    assert any(word in said for word in (*example.words, part)), said
