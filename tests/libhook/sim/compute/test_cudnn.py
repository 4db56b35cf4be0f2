"""The stand-in for cuDNN: frameworks that need a handle to start have one, and what would launch is refused by name."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from ctypes import byref, c_int, c_void_p
from typing import Any

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import LIB, Cuda

CUDNN = str(LIB / "sim" / "libcudnn.so.9")
NOT_INITIALIZED, BAD_PARAM, NOT_SUPPORTED = 1001, 2000, 3000


def text(library: Any, status: int) -> str:
    library.cudnnGetErrorString.restype = ctypes.c_char_p
    return str(library.cudnnGetErrorString(status).decode())


def test_a_handle_keeps_its_stream(machine: Machine) -> None:
    def work() -> list[object]:
        Cuda()
        library, handle, stream = ctypes.CDLL(CUDNN), c_void_p(), c_void_p()
        codes = [
            library.cudnnCreate(byref(handle)),
            library.cudnnSetStream(handle, c_void_p(2)),
            library.cudnnGetStream(handle, byref(stream)),
            library.cudnnDestroy(handle),
            library.cudnnCreate(None),
            library.cudnnSetStream(None, None),
        ]
        return [codes, stream.value]

    assert machine.run(work) == [[0, 0, 0, 0, BAD_PARAM, BAD_PARAM], 2]


def test_its_version_is_said_in_one_number_and_in_parts() -> None:
    library = ctypes.CDLL(CUDNN)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    parts = [c_int() for _ in range(3)]
    assert [library.cudnnGetProperty(what, byref(part)) for what, part in enumerate(parts)] == [0, 0, 0]
    major, minor, patch = (part.value for part in parts)
    assert library.cudnnGetVersion() == major * 10000 + minor * 100 + patch
    assert major == 9
    assert library.cudnnGetProperty(3, byref(parts[0])) == BAD_PARAM
    assert text(library, NOT_SUPPORTED) == "CUDNN_STATUS_NOT_SUPPORTED"
    assert text(library, 77) == "CUDNN_UNKNOWN_STATUS"


def test_what_would_launch_is_refused_by_name_once() -> None:
    script = (
        f"import ctypes; d = ctypes.CDLL({CUDNN!r}); print(d.cudnnConvolutionForward(), d.cudnnConvolutionForward())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(NOT_SUPPORTED)] * 2
    assert done.stderr.count("cudnnConvolutionForward is not there") == 1
