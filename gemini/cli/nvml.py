"""What the commands ask NVML: cards, their nearest cores, and the utilisation samples of processes on a real GPU.

Every function answers with nothing where NVML is missing or does not support the question; none raises.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def _handles() -> list[Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # NVMLError, or no library: this machine has no such cards
        return []


def _uuid(handle: Any) -> str:
    import pynvml

    text = pynvml.nvmlDeviceGetUUID(handle)
    return text.decode() if isinstance(text, bytes) else str(text)


def devices() -> list[dict[str, Any]]:
    """Name, uuid, memory_bytes and compute mode of each card, in NVML's order."""
    found = []
    for handle in _handles():
        import pynvml

        card: dict[str, Any] = {"uuid": _uuid(handle)}
        for key, question in (
            ("name", lambda h: pynvml.nvmlDeviceGetName(h)),
            ("memory_bytes", lambda h: int(pynvml.nvmlDeviceGetMemoryInfo(h).total)),
            ("exclusive", lambda h: pynvml.nvmlDeviceGetComputeMode(h) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS),
            ("prohibited", lambda h: pynvml.nvmlDeviceGetComputeMode(h) == pynvml.NVML_COMPUTEMODE_PROHIBITED),
            ("mig", lambda h: pynvml.nvmlDeviceGetMigMode(h)[0] == 1),
        ):
            try:
                value = question(handle)
            except Exception:  # this card or driver does not say
                value = None
            card[key] = value.decode() if isinstance(value, bytes) else value
        found.append(card)
    return found


def driver_version() -> str | None:
    if not _handles():
        return None
    import pynvml

    try:
        text = pynvml.nvmlSystemGetDriverVersion()
    except Exception:
        return None
    return text.decode() if isinstance(text, bytes) else str(text)


def minor(uuid: str) -> int | None:
    """The number N of a card's /dev/nvidiaN."""
    for handle in _handles():
        try:
            import pynvml

            if _uuid(handle) == uuid:
                return int(pynvml.nvmlDeviceGetMinorNumber(handle))
        except Exception:
            continue
    return None


def local_cores(gpu: str) -> set[int]:
    """CPU cores on the NUMA node of a card named by index or UUID, from sysfs; empty when unknown."""
    for index, handle in enumerate(_handles()):
        if gpu not in (str(index), _uuid(handle)):
            continue
        try:
            import pynvml

            bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
            address = (bus.decode() if isinstance(bus, bytes) else str(bus)).lower()
            domain, rest = address.split(":", 1)
            text = Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/local_cpulist").read_text().strip()
            cores: set[int] = set()
            for part in filter(None, text.split(",")):
                low, _, high = part.partition("-")
                cores.update(range(int(low), int(high or low) + 1))
            return cores
        except Exception:
            return set()
    return set()
