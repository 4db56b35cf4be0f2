"""What a build says of itself: the library's own build id, and the commit of a checkout or of a wheel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from libhook import build, info


def test_the_build_id_is_the_one_that_readelf_shows() -> None:
    for path in (info.LIBRARY, Path(sys.executable).resolve()):
        shown = subprocess.run(["readelf", "-n", str(path)], capture_output=True, text=True, check=True).stdout
        found = re.search(r"Build ID: ([0-9a-f]+)", shown)
        assert info.build_id(path) == (found[1] if found else info.UNKNOWN)
    assert info.build_id(info.LIBRARY) != info.UNKNOWN


def test_what_is_no_elf_file_or_a_cut_one_has_none(tmp_path: Path) -> None:
    cut = tmp_path / "cut.so"
    whole = info.LIBRARY.read_bytes()
    for content in (b"", b"text", whole[:40], whole[:64], whole[: len(whole) // 2]):
        cut.write_bytes(content)
        assert info.build_id(cut) == info.UNKNOWN
    assert info.build_id(tmp_path / "nothing") == info.UNKNOWN


def test_without_a_checkout_the_commit_is_the_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(info, "ROOT", tmp_path / "libhook")
    monkeypatch.setattr(info, "COMMIT", tmp_path / "commit")
    assert info.commit() == info.UNKNOWN
    (tmp_path / "commit").write_text("abc1234\n")
    assert info.commit() == "abc1234"


def test_what_is_built_here_loads_on_the_floor_and_a_newer_need_is_found(tmp_path: Path) -> None:
    build.check_floor()
    source = tmp_path / "new.c"
    text = "int dlopen_new(void); int f(void) { return dlopen_new(); }\n"
    source.write_text(text + '__asm__(".symver dlopen_new,dlopen@GLIBC_2.34");\n')
    (tmp_path / "lib").mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "lib" / "new.so"), str(source)], check=True)
    with pytest.raises(ValueError, match=r"new\.so needs dlopen of glibc 2\.34"):
        build.check_floor(tmp_path)
