"""All checks in the order of their worth: when time runs out, the last ones are left out, and say so."""

from __future__ import annotations

from collections.abc import Callable

from bench.gpu_check import checks, programs
from bench.gpu_check.context import Context

CHECKS: dict[str, tuple[Callable[[Context], None], float]] = {  # name -> (check, seconds it may take)
    "probe": (programs.probed, 130),
    "identify": (checks.identify, 60),
    "addresses": (checks.addresses, 30),
    "coverage": (programs.coverage, 90),
    "two-loads": (checks.two_loads, 80),
    "training": (checks.training, 150),
    "memory": (checks.memory, 90),
    "contexts": (programs.contexts, 60),
    "captures": (programs.captures, 60),
    "persistent": (programs.persistent, 60),
    "stalled": (programs.stalled, 60),
    "streams": (programs.streams, 60),
    "graph": (checks.graph, 90),
    "compiled": (checks.compiled, 120),
    "training-inference": (checks.training_inference, 130),
    "launch-cost": (checks.launch_cost, 60),
    "segments": (programs.segments, 90),
    "workers": (programs.workers, 120),
    "three-loads": (checks.three_loads, 80),
    "starts": (programs.starts, 120),
    "alone": (checks.alone, 130),
}
