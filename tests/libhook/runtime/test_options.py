"""The option parser by itself: what a value may look like."""

from __future__ import annotations

import ctypes
import errno
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOCKET_MAX = 108


class Options(ctypes.Structure):
    _fields_ = (
        ("socket", ctypes.c_char * SOCKET_MAX),
        ("memory_limit_bytes", ctypes.c_uint64),
        ("run_on_loss", ctypes.c_bool),
        ("log_level", ctypes.c_int),
        ("log_file", ctypes.c_char * 256),
    )


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("options") / "options.so"
    sources = [str(ROOT / "libhook" / "runtime" / name) for name in ("options.c", "log.c")]
    subprocess.run(["gcc", "-std=gnu11", "-shared", "-fPIC", f"-I{ROOT}", "-o", str(library), *sources], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("value", ["1", "0", "17179869184", str(2**64 - 1)])
def test_a_memory_limit_is_a_number_of_bytes(parser: ctypes.CDLL, value: str) -> None:
    options = Options()
    assert parser.options_parse(ctypes.byref(options), b"GEMINI_MEMORY_LIMIT", value.encode()) == 0
    assert options.memory_limit_bytes == int(value)


@pytest.mark.parametrize("value", ["", " -1", "-1", "+7", "\n3", " 3", "3 ", "1e9", "0x10", "16GiB", str(2**64)])
def test_what_is_no_number_of_bytes_is_refused_and_changes_nothing(parser: ctypes.CDLL, value: str) -> None:
    options = Options(memory_limit_bytes=5)
    assert parser.options_parse(ctypes.byref(options), b"GEMINI_MEMORY_LIMIT", value.encode()) == -errno.EINVAL
    assert options.memory_limit_bytes == 5


@pytest.mark.parametrize("prefix", ["", "ipc://"])
def test_a_sockets_path_may_fill_its_room_and_no_more(parser: ctypes.CDLL, prefix: str) -> None:
    options = Options()
    longest = "/" + "x" * (SOCKET_MAX - 2)
    assert parser.options_parse(ctypes.byref(options), b"GEMINI_SOCKET", (prefix + longest).encode()) == 0
    assert options.socket.decode() == longest
    for wrong in (longest + "x", "relative/path", ""):
        assert parser.options_parse(ctypes.byref(options), b"GEMINI_SOCKET", (prefix + wrong).encode()) == -errno.EINVAL
    assert options.socket.decode() == longest
