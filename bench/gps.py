"""The fluid reference: generalised processor sharing among closed-loop programs.

Each program repeats: `work` ns of GPU time, then `host` ns away from the GPU. A fluid server gives all who have work a
rate at once: in proportion to their requests, at most their limit, nothing wasted (gemini.units.entitled says the
rates). No quota, no hand-over: what a real server can only come near to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemini.units import entitled


@dataclass(frozen=True)
class Program:
    """A closed-loop program; host_ns 0 is always busy."""

    request: float
    limit: float
    work_ns: int
    host_ns: int


def shares(programs: Sequence[Program], seconds: float = 20.0) -> list[float]:
    """GPU time / elapsed of each program on the fluid server, over `seconds` from a common start."""
    end = seconds * 1e9
    now = 0.0
    left = [float(program.work_ns) for program in programs]  # of the burst that runs
    back = [0.0] * len(programs)  # when the next burst begins
    given = [0.0] * len(programs)
    while now < end:
        active = [i for i in range(len(programs)) if back[i] <= now]
        rates = dict(zip(active, entitled([(programs[i].request, programs[i].limit) for i in active]), strict=True))
        arrivals = [moment for moment in back if moment > now]
        finishes = [now + left[i] / rate for i, rate in rates.items() if rate > 0]
        until = min([end, *arrivals, *finishes])
        for i, rate in rates.items():
            done = min(left[i], rate * (until - now))
            given[i] += done
            left[i] -= done
            if left[i] < 1e-3:  # of a nanosecond: rounding
                left[i] = float(programs[i].work_ns)
                back[i] = until + programs[i].host_ns
        now = until
    return [amount / end for amount in given]
