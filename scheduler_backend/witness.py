"""What the cards themselves say that each tenant uses, beside what its library says.

A tenant that is host-bound is charged what its library says that it used, and a library is in the hands of whoever
runs it. The card knows better, if coarsely: NVML has for each process the part of the last second or so in which its
kernels ran. So while tenants are host-bound the daemon asks once a second, from a thread, for the driver may take its
time; the machine compares that with what it charged (core/duty.py). A tenant that said too little has turns from then
on. Where NVML does not say it, only tenants without a limit run beside others: those keep no more than their promise
from anybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from scheduler_backend import devices
from scheduler_backend.core import events as ev
from scheduler_backend.devices import Gpu, Untold

log = logging.getLogger("gemini.witness")

LEAST_SPAN_NS = 900_000_000  # NVML's samples are of a second or less
LEFT_NS = 3 * LEAST_SPAN_NS  # a process is remembered for so long after its end


def is_able(gpus: Sequence[Gpu]) -> bool:
    """Do all cards say what each process uses?"""
    try:
        for gpu in gpus:
            devices.utilization(gpu, time.time_ns() // 1000 - 1_000_000)
    except Untold as reason:
        log.info("no-figures-of-processes reason=%s", reason)
        return False
    return True


class Witness:
    """Asks the cards. `clients` says pid -> tenant; `handle` takes the events."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        clients: Callable[[], dict[int, str]],
        handle: Callable[[ev.Weighed], None],
        ask: Callable[[Gpu, int], dict[int, int]] = devices.utilization,
    ) -> None:
        self._gpus, self._clients, self._handle, self._ask = gpus, clients, handle, ask
        self._since_ns: dict[int, int] = {}  # GPU -> when it was last asked
        self._left: dict[int, tuple[str, int]] = {}  # pid -> tenant, and when it ended

    def left(self, pid: int, tenant: str) -> None:
        """This client has ended. What the card says of it in the next answer is its tenant's: else who lets others of
        its processes work each second would use what nobody counts."""
        if pid and self._since_ns:
            self._left[pid] = tenant, time.monotonic_ns()

    async def weigh(self, wanted: dict[int, list[str]]) -> None:
        """Ask for these tenants of each GPU. The first answer of a GPU, or the first after a pause, says from where to
        count, and is none.
        """
        for gpu in [gpu for gpu in self._since_ns if gpu not in wanted]:
            del self._since_ns[gpu]
        for index, names in wanted.items():
            before_ns, now_ns = self._since_ns.get(index), time.monotonic_ns()
            if before_ns is not None and now_ns - before_ns < LEAST_SPAN_NS:
                continue
            try:
                found = await asyncio.to_thread(self._ask, self._gpus[index], _wall_us(before_ns))
            except Untold as reason:
                if before_ns is None:
                    log.warning("no-figures-of-processes gpu=%d reason=%s", index, reason)
                self._since_ns[index] = now_ns
                continue
            self._since_ns[index] = now_ns
            span_ns = 0 if before_ns is None else now_ns - before_ns
            self._left = {pid: left for pid, left in self._left.items() if now_ns - left[1] < LEFT_NS}
            owners = {**{pid: tenant for pid, (tenant, _) in self._left.items()}, **self._clients()}
            for name in names:
                percent = min(100, sum(part for pid, part in found.items() if owners.get(pid) == name))
                self._handle(ev.Weighed(name, index, span_ns * percent // 100, span_ns))


def _wall_us(monotonic_ns: int | None) -> int:
    """The wall clock's time of then, for NVML counts by that; now where there is none."""
    passed_ns = 0 if monotonic_ns is None else time.monotonic_ns() - monotonic_ns
    return (time.time_ns() - passed_ns) // 1000
