"""What README and the quick start for one machine tell a reader to type works, as it stands, on a clean Debian."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import Block, Step, blocks, steps
from tests.docs.reader import Reader
from tests.docs.room import USER, CannotHave, debian, room
from tests.libhook.processes.conftest import may_mount as may_mount

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/quickstart-workstation.md"
README = ROOT / "README.md"
NOT_CLONED = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis", "_core_*")
BUILT = {ROOT / "out", ROOT / "build", ROOT / "libhook/lib"}
# Of README, what is not typed here: it is what CI runs beside this.
ELSEWHERE = ("make test",)
# The programs that README takes for the reader's own.
OWN = 'import os\n\nos.execvp("gemini", ["gemini", "load", "--seconds", "2"])\n'


def cloned(target: Path) -> None:
    """The sources as a clone has them: nothing built, nothing cached."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        return NOT_CLONED(folder, names) | {name for name in names if Path(folder, name) in BUILT}

    shutil.copytree(ROOT, target, ignore=left_out, symlinks=True)


def readme() -> list[Step]:
    """What README says to type. Its first block shows what one types once all is set up: it comes after that."""
    first, second, *others = [block for block in blocks(README) if steps(block)]
    typed = (step for block in (second, first, *others) for step in steps(block))
    return [step for step in typed if not step.command.startswith(ELSEWHERE)]


def test_every_block_of_these_pages_says_what_it_is() -> None:
    nameless: list[Block] = [block for page in (README, PAGE) for block in blocks(page) if not block.language]
    assert not [block.where for block in nameless]


@pytest.mark.timeout(1500)
def test_readme_and_quick_start_work_as_they_stand_on_a_clean_debian(tmp_path: Path, may_mount: None) -> None:
    script = [step for block in blocks(PAGE) for step in steps(block)]
    packages = [word for step in script if step.root for word in step.command.removeprefix("apt-get install ").split()]
    assert packages, "the page says what to install"
    try:
        root = debian(packages)
    except CannotHave as why:
        pytest.skip(str(why))
    home = tmp_path / "home/reader"
    home.mkdir(parents=True)
    cloned(home / "gemini")
    for name in ("train.py", "serve.py"):
        (home / "gemini" / name).write_text(OWN)
    with Reader(room(root, tmp_path), home / "gemini", owner=USER, limit=900) as reader:
        reader.type("cd gemini")
        reader.type("export COLUMNS=120")  # as wide as what the pages show was drawn
        reader.follow(step for step in script if not step.root)
        reader.follow(readme())
