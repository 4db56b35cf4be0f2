"""Programs over the driver API for the checks: ordinary ones, which know nothing of Gemini.

    python driver_work.py counted|persistent|streams|stalled|once|captures|contexts --json FILE [--seconds S]

Each writes one JSON report. The kernel is gemini-load's: it runs as long as its argument says.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry gemini_spin(.param .u64 gemini_spin_param_0)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [gemini_spin_param_0];
    mov.u64 %rd2, %globaltimer;
$spin:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra $spin;
    ret;
}
.visible .entry gemini_nothing() { ret; }
"""
US, MS = 1_000, 1_000_000
NON_BLOCKING, GLOBAL_CAPTURE, NO_TIMING = 1, 0, 2


class Card:
    """The first card: its primary context, two kernels, and calls that must succeed."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.must("cuInit", 0)
        self.context, module = c_void_p(), c_void_p()
        self.must("cuDevicePrimaryCtxRetain", byref(self.context), 0)
        self.must("cuCtxSetCurrent", self.context)
        self.must("cuModuleLoadData", byref(module), PTX)
        self.spin, self.nothing = c_void_p(), c_void_p()
        self.must("cuModuleGetFunction", byref(self.spin), module, b"gemini_spin")
        self.must("cuModuleGetFunction", byref(self.nothing), module, b"gemini_nothing")

    def must(self, name: str, *arguments: Any) -> None:
        code = getattr(self.lib, name)(*arguments)
        if code != 0:
            raise SystemExit(f"{name} answered {code}")

    def stream(self) -> c_void_p:
        made = c_void_p()
        self.must("cuStreamCreate", byref(made), NON_BLOCKING)
        return made

    def event(self) -> c_void_p:
        made = c_void_p()
        self.must("cuEventCreate", byref(made), NO_TIMING)
        return made

    def launch(self, ns: int, stream: c_void_p | None = None, blocks: int = 1) -> None:
        length = c_uint64(ns)
        parameters = (c_void_p * 1)(ctypes.addressof(length))
        self.must("cuLaunchKernel", self.spin, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, None)

    def tiny(self, stream: c_void_p | None = None) -> None:
        self.must("cuLaunchKernel", self.nothing, 1, 1, 1, 1, 1, 1, 0, stream, None, None)


def counted(card: Card, _seconds: float) -> dict[str, Any]:
    """A known number of kernels on two streams, then a rest, so that the token goes back."""
    streams_, launches = [card.stream(), None], 0
    for _ in range(1000):
        for stream in streams_:
            card.launch(20 * US, stream)
            card.tiny(stream)
            launches += 2
    card.must("cuCtxSynchronize")
    time.sleep(2)
    return {"launches": launches}


def persistent(card: Card, seconds: float) -> dict[str, Any]:
    """One function and grid whose length changes each second between 20 us and 5 ms, in turns with another kernel."""
    stream, begin, launches = card.stream(), time.monotonic(), 0
    while (now := time.monotonic() - begin) < seconds:
        ns = 20 * US if launches < 20 or int(now) % 2 else 5 * MS
        card.launch(ns, stream, blocks=132)
        card.tiny(stream)
        launches += 1
        if launches % 400 == 0:
            card.must("cuStreamSynchronize", stream)
    card.must("cuStreamSynchronize", stream)
    return {"launches": launches, "seconds": time.monotonic() - begin}


def streams(card: Card, seconds: float) -> dict[str, Any]:
    """Eight streams of 200 us kernels of one block each, which fit beside each other on a card."""
    made, done = [card.stream() for _ in range(8)], 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        for stream in made:
            for _ in range(8):
                card.launch(200 * US, stream)
        for stream in made:
            card.must("cuStreamSynchronize", stream)
        done += 64
    taken = time.monotonic() - begin
    return {"kernels": done, "seconds": taken, "kernels_per_second": done / taken}


def stalled(card: Card, seconds: float) -> dict[str, Any]:
    """A training loop whose host takes time: 10 ms of kernels at once, 5 ms of host, a look at the loss."""
    stream, steps = card.stream(), 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        for _ in range(50):
            card.launch(200 * US, stream)
        busy_until = time.monotonic() + 0.005
        while time.monotonic() < busy_until:
            pass
        card.must("cuStreamSynchronize", stream)
        steps += 1
    return {"steps": steps, "gpu_seconds": steps * 0.010, "seconds": time.monotonic() - begin}


def once(card: Card, _seconds: float) -> dict[str, Any]:
    """One kernel, and the end of the process with work still outstanding."""
    card.launch(5 * MS)
    card.must("cuCtxSynchronize")
    card.launch(1 * MS)
    return {"pid": os.getpid()}


def captures(card: Card, _seconds: float) -> dict[str, Any]:
    """Who asked NVML before CUDA captures in the strictest mode, while another thread's work is outstanding."""
    beside, stream, ended = card.stream(), card.stream(), []
    for _ in range(20):
        card.launch(20 * MS, beside)
        event = card.event()
        card.must("cuEventRecord", event, beside)
        graph = c_void_p()
        card.must("cuStreamBeginCapture_v2", stream, GLOBAL_CAPTURE)
        length = c_uint64(10 * US)
        parameters = (c_void_p * 1)(ctypes.addressof(length))
        for _ in range(50):  # in a capture that was made void these are refused, too: its end tells
            card.lib.cuLaunchKernel(card.spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)
            time.sleep(0.0002)
        ended.append(card.lib.cuStreamEndCapture(stream, byref(graph)))
        card.must("cuStreamSynchronize", beside)
    return {"ended": ended, "failed": sum(code != 0 for code in ended)}


def contexts(card: Card, _seconds: float) -> dict[str, Any]:
    """What a context takes of a limit that the program sees, before and after its first kernels."""
    seen = []
    for _ in range(2):
        free, total = c_size_t(), c_size_t()
        card.must("cuMemGetInfo_v2", byref(free), byref(total))
        seen.append(total.value - free.value)
        for _ in range(100):
            card.launch(100 * US)
        card.must("cuCtxSynchronize")
        time.sleep(1.2)  # the daemon looks once a second
    return {"counted": seen, "total": total.value}


def ask_nvml() -> None:
    """As a program that looks for the card with most room does, before it starts CUDA."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = c_void_p(), (c_uint64 * 3)()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
    nvml.nvmlDeviceGetMemoryInfo(device, memory)


WORK: dict[str, Callable[[Card, float], dict[str, Any]]] = {
    "counted": counted, "persistent": persistent, "streams": streams, "stalled": stalled, "once": once,
    "captures": captures, "contexts": contexts,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=sorted(WORK))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    if args.work == "captures":
        ask_nvml()
        threading.Event().wait(0.2)  # the library's own thread has begun
    args.json.write_text(json.dumps(WORK[args.work](Card(), args.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
