"""The node's GPUs, by NVML. A simulated machine (GEMINI_SIM) brings its own NVML, loaded first under its soname."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libhook
from scheduler_backend.problem import Problem

SIM_NVML = Path(libhook.__file__).resolve().parent / "lib" / "sim" / "libnvidia-ml.so.1"
_UUID = re.compile(r"(?:GPU-)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})", re.I)

_LONGEST_INDEX, _LONGEST_TOLD = 9, 80  # characters
TRIES = 3


@dataclass(frozen=True)
class Gpu:
    """One card. `index` is NVML's and the daemon's own number of it, never CUDA's."""

    index: int
    uuid: str  # "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
    name: str
    memory_bytes: int
    simulated: bool = False

    @property
    def uuid_bytes(self) -> bytes:
        """The sixteen bytes that cuDeviceGetUuid gives and the wire carries."""
        return uuid_bytes(self.uuid)


def uuid_bytes(text: str) -> bytes:
    """The bytes of "GPU-..."; raises Problem for what is no UUID."""
    match = _UUID.fullmatch(text.strip())
    if match is None:
        raise Problem(f"{text!r} is no GPU UUID; write it as nvidia-smi -L does, such as GPU-8d2c...")
    return bytes.fromhex("".join(match.groups()))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class Untold(Exception):
    """NVML does not say it on this machine; the text is NVML's reason."""


def inventory(sim: str | None) -> list[Gpu]:
    """All GPUs that NVML shows; with `sim` those of that simulated machine. Raises Problem where there are none."""
    import pynvml

    if sim is not None:
        os.environ["GEMINI_SIM"] = sim
        try:
            ctypes.CDLL(str(SIM_NVML), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise Problem(f"the simulated driver does not load: {error}; run make build") from None
    try:
        pynvml.nvmlInit()
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(
                Gpu(
                    index,
                    _text(pynvml.nvmlDeviceGetUUID(handle)),
                    _text(pynvml.nvmlDeviceGetName(handle)),
                    int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                    sim is not None,
                )
            )
    except pynvml.NVMLError as error:
        if sim is not None:
            raise Problem(f"--sim={sim!r} says no machine: {error}; write it such as gpus=2,memory=80GiB") from None
        raise Problem(f"no GPU: NVML says {error}; install NVIDIA's driver, or add --sim for a simulated GPU") from None
    if not gpus:
        raise Problem("NVML shows no GPU; see nvidia-smi, or add --sim for a simulated one")
    return gpus


def _whole(ask: Callable[[], list[Any]]) -> list[Any]:
    """A list of NVML's, which it is asked for twice, for the size and for the rest: again where processes came in
    between, or whoever starts many would not be told of."""
    import pynvml

    for _ in range(TRIES):
        with contextlib.suppress(pynvml.NVMLError_InsufficientSize):
            return ask()
    return ask()


def used_by(gpu: Gpu, pid: int) -> int:
    """The bytes that NVML says a process holds on a card; 0 where it cannot say."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        for process in _whole(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle)):
            if process.pid == pid and process.usedGpuMemory:
                return int(process.usedGpuMemory)
    except pynvml.NVMLError:
        return 0
    return 0


def running(gpu: Gpu) -> list[int]:
    """The processes that NVML lists on a card; none where it cannot say."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        found = _whole(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return [int(process.pid) for process in found]
    except pynvml.NVMLError:
        return []


def utilization(gpu: Gpu, since_us: int) -> dict[int, int]:
    """pid -> the part of the time since then (microseconds of the wall clock) in which its kernels ran, in percent.

    Processes that ran nothing are not there. Raises Untold where NVML cannot say (MIG, old cards, other systems).
    """
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        samples = _whole(lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, since_us))
    except pynvml.NVMLError_NotFound:
        return {}  # nobody ran anything
    except pynvml.NVMLError as error:
        raise Untold(str(error)) from None
    found: dict[int, list[int]] = {}
    for sample in samples:
        if sample.smUtil <= 100 and sample.timeStamp > since_us:  # drivers give old samples, and ones that are none
            found.setdefault(int(sample.pid), []).append(int(sample.smUtil))
    return {pid: sum(parts) // len(parts) for pid, parts in found.items()}


def find(gpus: list[Gpu], wanted: object) -> int:
    """The index of the GPU that a person named by index or UUID; raises Problem."""
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        if 0 <= wanted < len(gpus):
            return wanted
    elif isinstance(wanted, str):
        if wanted.isdecimal() and len(wanted) <= _LONGEST_INDEX and int(wanted) < len(gpus):
            return int(wanted)
        for gpu in gpus:
            if gpu.uuid.lower() == wanted.lower():
                return gpu.index
    names = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
    told = repr(wanted)
    told = told if len(told) <= _LONGEST_TOLD else f"{told[:_LONGEST_TOLD]}..."
    raise Problem(f"GPU {told} does not exist here; there is {names}")
