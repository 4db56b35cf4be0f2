"""Which CPU cores a container gets that asks for the N nearest to its card (`gemini.io/cpu-bind`).

Pure. Nearest are the cores that the Device names for the card, else those of its NUMA node; of equally near ones those
bound least so far, then the lowest. Which cores those are is read from the host by host.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


def parse_cpus(text: str) -> set[int]:
    """0-3,8 as Linux writes it. Raises ValueError."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        cores.update(range(int(low), int(high or low) + 1))
    return cores


def write_cpus(cores: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def nearest(count: int, allowed: Collection[int], near: Collection[int], load: Mapping[int, int]) -> set[int]:
    """`count` of the allowed cores. `load`: how many containers are bound to a core already. Raises ValueError."""
    if count > len(allowed):
        raise ValueError(f"{count} cores are asked, containers may use {len(allowed)} here; ask for fewer")
    return set(sorted(allowed, key=lambda core: (core not in near, load.get(core, 0), core))[:count])
