"""What Linux says of PCI devices and RDMA adapters, read below a `root` that is /sys in life.

Reads files only. What is not there is None or left out; nothing raises.

A PCIe switch is named by its upstream port: the bridge above the bridge that a device hangs on. A device that hangs on
a root port directly is behind no switch; its root port's name stands for it then, which no other device has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SYS = Path("/sys")
NVIDIA_VENDOR = "0x10de"
ACTIVE = "4: ACTIVE"  # of a port's state


@dataclass(frozen=True)
class Place:
    """Where a PCI device sits; None: unknown."""

    numa: str | None = None
    pcie: str | None = None
    cpus: tuple[int, ...] = ()  # its nearest cores, ascending


@dataclass(frozen=True)
class Adapter:
    """An RDMA adapter, such as mlx5_0. `health`: some port of it is active."""

    name: str
    health: bool
    place: Place


def place_of(root: Path, address: str, vendor: str | None = None) -> Place | None:
    """The place of the PCI device at `address` (0000:3b:00.0); None where there is none, or one of another vendor."""
    device = root / "bus/pci/devices" / address.lower()
    if not device.exists() or (vendor is not None and _text(device / "vendor") != vendor):
        return None
    return _place(device)


def adapters(root: Path) -> list[Adapter]:
    """The RDMA adapters of the machine, by name."""
    found = []
    for folder in sorted((root / "class/infiniband").glob("*"), key=lambda path: _natural(path.name)):
        ports = [_text(port / "state") for port in sorted((folder / "ports").glob("*"))]
        place = _place(folder / "device") if (folder / "device").exists() else Place()
        found.append(Adapter(folder.name, ACTIVE in ports, place))
    return found


def parse_cpus(text: str) -> tuple[int, ...]:
    """`0-3,8` -> 0, 1, 2, 3, 8; () for what is no such list."""
    cpus: set[int] = set()
    for part in filter(None, (word.strip() for word in text.split(","))):
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()):
            return ()
        cpus.update(range(int(low), int(high or low) + 1))
    return tuple(sorted(cpus))


def write_cpus(cpus: tuple[int, ...]) -> str:
    """The inverse: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _place(device: Path) -> Place:
    numa = _text(device / "numa_node")
    return Place(
        numa=numa if numa.isdecimal() else None,  # -1: Linux does not know either
        pcie=_switch(device),
        cpus=parse_cpus(_text(device / "local_cpulist")),
    )


def _switch(device: Path) -> str | None:
    """.../pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:10.0/0000:3f:00.0 -> 0000:3b:00.0: root port, the switch's
    upstream port, one of its downstream ports, the device."""
    try:
        parts = device.resolve(strict=True).parts
    except OSError:
        return None
    start = next((i for i, part in enumerate(parts) if part.startswith("pci") and ":" in part), None)
    if start is None:
        return None
    bridges = parts[start + 1 : -1]
    return bridges[-2] if len(bridges) >= 3 else bridges[-1] if bridges else parts[-1]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _natural(name: str) -> tuple[str, int]:
    """mlx5_2 before mlx5_10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1)
