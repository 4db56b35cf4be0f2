"""The version is raised by one command, in all places where it stands."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "version.py"
OTHERS = {"go.mod", "go.sum", "CHANGELOG.md", "constraints.txt", "test_version.py", "version.py"}
FOLDERS = ("bench", "deploy", "docs", "gemini", "libhook", "scheduler_backend", "tests")


def load() -> ModuleType:
    found = importlib.util.spec_from_file_location("version", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


version = load()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (*version.FILES, version.CHANGES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def texts() -> dict[str, str]:
    """Sources and pages of this tree, by name; neither what is built nor others' numbers."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    found = {}
    for path in files:
        built = {"lib", "__pycache__"} & set(path.relative_to(ROOT).parts) or path.suffix in (".so", ".png", ".svg")
        if not built and path.name not in OTHERS and "results" not in path.parts:
            found[str(path.relative_to(ROOT))] = path.read_text(errors="replace")
    return found


def test_it_stands_nowhere_but_where_the_list_says() -> None:
    now = version.version_of(ROOT)
    assert {name for name, text in texts().items() if version.standing(now).search(text)} == set(version.FILES)


def test_one_command_raises_it_everywhere(tree: Path) -> None:
    now = version.version_of(tree)
    assert version.raise_to("7.8.9", tree) == [*version.FILES, version.CHANGES]
    assert version.version_of(tree) == "7.8.9"
    for name in version.FILES:
        before, after = (ROOT / name).read_text(), (tree / name).read_text()
        assert not version.standing(now).search(after)
        assert len(version.standing("7.8.9").findall(after)) == len(version.standing(now).findall(before))
        assert len(after.splitlines()) == len(before.splitlines())
    assert "## Unreleased\n\n## 7.8.9\n" in (tree / version.CHANGES).read_text()


@pytest.mark.parametrize("bad", ["", "1", "0.0.1", "1.2.x", "v1.2.3"])
def test_what_is_no_later_version_is_refused_in_one_line_and_nothing_changes(bad: str) -> None:
    before = texts()
    done = subprocess.run([sys.executable, str(SCRIPT), bad], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("gemini: ")
    assert texts() == before
