"""The simulated driver through ctypes, for tests: `cuda = Cuda()`, then `cuda.cuMemAlloc_v2(byref(p), 16)` and so on.

A call that fails raises CudaError with the driver's code. Handles are c_void_p, device pointers c_uint64.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

LIB = Path(__file__).resolve().parents[3] / "libhook" / "lib"
PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 table[16];
.visible .entry gemini_spin(.param .u64 nanoseconds)
{ ret; }
.visible .entry gemini_collective(.param .u64 nanoseconds, .param .u64 group, .param .u32 peers)
{ ret; }
.visible .entry _ZN4test3addEPKfS1_Pf(.param .u64 a, .param .align 8 .b8 shape[24], .param .u32 n)
{ ret; }
"""
MS = 1_000_000
LEGACY, PER_THREAD = c_void_p(1), c_void_p(2)
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


class CudaError(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(name, code)
        self.code = code


class Cuda:
    """The driver, with its first device's primary context current and the test kernels loaded unless `bare`."""

    def __init__(self, bare: bool = False, device: int = 0) -> None:
        self.lib = ctypes.CDLL(str(LIB / "sim" / "libcuda.so.1"))
        if not bare:
            self.cuInit(0)
            self.ctx = c_void_p()
            self.cuDevicePrimaryCtxRetain(byref(self.ctx), device)
            self.cuCtxSetCurrent(self.ctx)
            self.module = c_void_p()
            self.cuModuleLoadData(byref(self.module), PTX)
            self.spin_function = self.function("gemini_spin")

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self.lib, name)

        def call(*arguments: Any) -> None:
            code = function(*arguments)
            if code:
                raise CudaError(name, code)

        return call

    def code(self, name: str, *arguments: Any) -> int:
        """The code that a call answers, errors included."""
        return int(getattr(self.lib, name)(*arguments))

    def function(self, name: str) -> c_void_p:
        found = c_void_p()
        self.cuModuleGetFunction(byref(found), self.module, name.encode())
        return found

    def launch(self, function: c_void_p, *arguments: Any, stream: Any = None, suffix: str = "") -> None:
        pointers = (c_void_p * max(len(arguments), 1))(*(ctypes.addressof(a) for a in arguments))
        getattr(self, "cuLaunchKernel" + suffix)(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    def spin(self, ns: int, stream: Any = None, suffix: str = "") -> None:
        """Keep the compute engine busy for so long."""
        self.launch(self.spin_function, c_uint64(ns), stream=stream, suffix=suffix)

    def stream(self, flags: int = 0) -> c_void_p:
        made = c_void_p()
        self.cuStreamCreate(byref(made), flags)
        return made

    def event(self, flags: int = 0) -> c_void_p:
        made = c_void_p()
        self.cuEventCreate(byref(made), flags)
        return made

    def elapsed_ms(self, start: c_void_p, end: c_void_p) -> float:
        value = c_float()
        self.cuEventElapsedTime(byref(value), start, end)
        return value.value

    def malloc(self, size: int) -> int:
        pointer = c_uint64()
        self.cuMemAlloc_v2(byref(pointer), c_size_t(size))
        return pointer.value

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value

    def capturing(self, stream: c_void_p) -> int:
        status = c_int()
        self.cuStreamIsCapturing(stream, byref(status))
        return status.value


def timed_ms(work: Callable[[], Any]) -> float:
    start = time.monotonic()
    work()
    return (time.monotonic() - start) * 1e3
