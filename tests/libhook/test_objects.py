"""What is compiled anew: what changed in its text, its headers or its command, and nothing else."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from libhook import objects
from libhook.objects import Compiler

COMMAND = ("gcc", "-O0", "-fPIC", "-I.")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source, its header, and another source."""
    for name, folder in (("TREE", ""), ("OBJECTS", "build/objects"), ("LINKED", "build/linked")):
        monkeypatch.setattr(objects, name, tmp_path / folder)
    (tmp_path / "one.h").write_text("#define ONE 1\n")
    (tmp_path / "one.c").write_text('#include "one.h"\nint one(void) { return ONE; }\n')
    (tmp_path / "two.c").write_text("int two(void) { return 2; }\n")
    return tmp_path


def linked(tree: Path, *flags: str) -> float:
    """Make the library of both; when it was made."""
    compiler, target = Compiler(COMMAND), tree / "lib" / "both.so"
    sources = [(compiler, tree / name) for name in ("one.c", "two.c")]
    objects.link(target, sources, ["gcc", "-shared"], flags, [*tree.glob("*.map")])
    return target.stat().st_mtime


def made(tree: Path) -> set[Path]:
    return set((tree / "build" / "objects").rglob("*.o"))


def test_what_is_as_it_was_is_not_made_again(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = linked(tree)
    assert capsys.readouterr().out == "  CC  lib/both.so\n"
    for path in tree.glob("*.[ch]"):
        path.touch()
    assert (linked(tree), len(made(tree)), capsys.readouterr().out) == (first, 2, "")


def test_a_header_makes_anew_who_includes_it_and_taken_back_it_costs_nothing(tree: Path) -> None:
    linked(tree)
    before = made(tree)
    (tree / "one.h").write_text("#define ONE 11\n")
    linked(tree)
    (new,) = made(tree) - before
    assert new.name.startswith("one.c-")
    (tree / "one.h").write_text("#define ONE 1\n")
    linked(tree)
    assert made(tree) == before | {new}


def test_a_header_that_is_gone_is_said_by_the_compiler(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    linked(tree)
    (tree / "one.h").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        linked(tree)
    assert "one.h" in capfd.readouterr().err


def test_another_command_or_linker_script_links_anew(tree: Path) -> None:
    times = [linked(tree), linked(tree, "-Wl,-z,now")]
    (tree / "exports.map").write_text("{ local: *; };\n")
    times += [linked(tree, "-Wl,-z,now"), linked(tree, "-Wl,-z,now")]
    assert times[0] < times[1] < times[2] == times[3]
    assert Compiler(COMMAND).object(tree / "one.c") is not None
    assert Compiler([*COMMAND, "-g"]).object(tree / "one.c") is None


def test_a_copy_of_the_tree_takes_the_objects_along(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked(tree)
    copy = tree.with_name("copy")
    tree.rename(copy)
    for name, folder in (("TREE", ""), ("OBJECTS", "build/objects")):
        monkeypatch.setattr(objects, name, copy / folder)
    assert Compiler(COMMAND).object(copy / "one.c") in made(copy)


def test_objects_of_sources_as_they_were_are_taken_away_after_a_day(tree: Path) -> None:
    linked(tree)
    old = {path for path in made(tree) if path.name.startswith("one.c-")}
    for path in old:
        hours = time.time() - 25 * 3600
        subprocess.run(["touch", "-d", f"@{hours:.0f}", str(path)], check=True)
    (tree / "one.h").write_text("#define ONE 12\n")
    linked(tree)
    assert not old & made(tree)
