"""Lines for people: written at once, or lost."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from tests.libhook.runtime.seams import Seams

ERROR, WARN, INFO, DEBUG = range(4)


@pytest.fixture
def log(seams: Seams, tmp_path: Path) -> Any:
    """Return a function that logs at a level, to the file `log` of this test."""
    seams.function("log_configure", None, ctypes.c_int, ctypes.c_char_p)(WARN, str(tmp_path / "log").encode())
    return seams.function("log_line", None, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)


def test_a_line_is_one_line_with_our_name(log: Any, tmp_path: Path) -> None:
    log(ERROR, b"%s", b"one")
    log(WARN, b"%s", b"two")
    assert (tmp_path / "log").read_text() == "gemini: one\ngemini: two\n"


def test_what_nobody_asked_for_is_not_written(log: Any, seams: Seams, tmp_path: Path) -> None:
    log(INFO, b"%s", b"one")
    assert not (tmp_path / "log").exists()
    wants = seams.function("log_wants", ctypes.c_bool, ctypes.c_int)
    assert [wants(level) for level in (ERROR, WARN, INFO, DEBUG)] == [True, True, False, False]


def test_a_long_line_is_cut_and_still_ends(log: Any, tmp_path: Path) -> None:
    log(ERROR, b"%s", b"x" * 2000)
    text = (tmp_path / "log").read_text()
    assert (len(text), text[:10], text[-2:]) == (511, "gemini: xx", "x\n")
