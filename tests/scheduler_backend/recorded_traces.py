"""Traces of simulated days that pin what the token machine decides, to its last action.

`python -m tests.scheduler_backend.recorded_traces` records them anew into tests/golden/traces, after a change that is
meant to decide otherwise; a change of structure must not need it. Each trace is of one mix of programs, and goes
through the same file format and the same replay as a real daemon's.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scheduler_backend import trace
from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS
from scheduler_backend.simulation.daemon import Network
from scheduler_backend.simulation.process import Process
from scheduler_backend.simulation.programs import SECOND, Program, spec
from scheduler_backend.simulation.world import World

FOLDER = Path(__file__).parents[1] / "golden" / "traces"


class Scene(NamedTuple):
    """What is simulated, and for how long."""

    programs: tuple[Program, ...]
    seconds: float
    gpus: int = 1
    strike: Callable[[World], None] = lambda world: None  # plans what goes wrong
    prepared: bool = True  # hand-overs are decided ahead
    life: int = 1  # of the daemon, that is recorded


def _loop(name: str, request: float, burst_ms: float, gap_ms: float, *, latency: bool = False) -> Program:
    return Program(spec(name, request, latency=latency), "closed_loop", int(burst_ms * MS), int(gap_ms * MS))


def _bursty(name: str, request: float, burst_ms: float, gap_ms: float, limit: float = 1.0) -> Program:
    return Program(spec(name, request, limit), "bursty", int(burst_ms * MS), int(gap_ms * MS))


def _trouble(world: World) -> None:
    """Each second a process stops for longer than its lease, one loses its connection, and shares change."""
    for second in range(4):
        at_ns = second * SECOND
        world.at(at_ns + 300 * MS, lambda: world.freeze(_process(world, "a"), 400 * MS))
        world.at(at_ns + 500 * MS, lambda: world.cut(_process(world, "b")))
        request = 0.2 if second % 2 else 0.3
        world.at(at_ns + 700 * MS, world.promise, spec("c", request, 0.5))
    world.at(3500 * MS, lambda: world.kill(_process(world, "b")))


def _crash(world: World) -> None:
    """The daemon dies, and is back before the leases that are out have ended."""
    world.at(SECOND, world.crash, 60 * MS)


def _process(world: World, name: str) -> Process:
    return next(process for process in world.processes.values() if process.name == name)


_GANG = spec("gang", 0.5, gpus=(0, 1))
SCENES: dict[str, Scene] = {
    "demo": Scene((Program(spec("a", 0.7)), Program(spec("b", 0.3))), 4),
    "closed-loop": Scene((_loop("a", 0.2, 1, 1), _loop("b", 0.3, 5, 10), _loop("c", 0.5, 20, 2)), 3),
    "by-messages": Scene((_loop("a", 0.3, 3, 4), Program(spec("b", 0.3)), Program(spec("c", 0.4))), 3, prepared=False),
    "limits": Scene((Program(spec("a", 0.5, 0.6)), _bursty("b", 0.2, 10, 10, 0.3), Program(spec("c", 0.1, 0.1))), 3),
    "best-effort": Scene(
        (Program(spec("a", 0.0)), _bursty("b", 0.4, 20, 30), Program(spec("c", 0.0, 0.3)), _loop("d", 0.3, 4, 30)), 3
    ),
    "latency": Scene(
        (_loop("a", 0.2, 6, 10, latency=True), _bursty("b", 0.3, 15, 15), Program(spec("c", 0.3)), _loop("d", 0, 3, 9)),
        3,
    ),
    "gangs": Scene(
        (
            Program(_GANG, "closed_loop", 20 * MS, 5 * MS, MS, True),
            Program(spec("other", 0.3, gpus=(0, 1)), "bursty", 15 * MS, 15 * MS, MS, True),
            Program(spec("one", 0.2, gpus=(0,))),
            Program(spec("two", 0.1, latency=True, gpus=(1,)), "closed_loop", 3 * MS, 20 * MS),
        ),
        3,
        2,
    ),
    "beside": Scene(
        (
            *(Program(spec(name, 0.2), "closed_loop", 300_000, 3 * MS) for name in "abc"),
            Program(spec("d", 0.2), start_ns=SECOND),
        ),
        2,
    ),
    "faults": Scene(
        (_loop("a", 0.3, 8, 2), _bursty("b", 0.2, 30, 5), Program(spec("c", 0.2, 0.5)), Program(spec("c", 0.2, 0.5))),
        4,
        strike=_trouble,
    ),
    "restart": Scene((Program(spec("a", 0.5)), _loop("b", 0.3, 8, 2), _loop("b", 0.3, 2, 8)), 4, strike=_crash, life=2),
}


class _Recorded:
    """A watcher that writes one life of the daemon."""

    def __init__(self, path: Path, life: int) -> None:
        self.path = path
        self.life = life
        self.lives: list[object] = []
        self.recorder: trace.Recorder | None = None

    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None: ...

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        node = world.node
        if not self.lives or self.lives[-1] is not node:
            self.lives.append(node)
            if len(self.lives) == self.life:
                began_ns = 0 if self.life == 1 else world.event_ns  # a restarted one hears of its tenants at once
                head = trace.header(node.policy, [{}] * len(node.machines), node.epochs.last, began_ns, self.life)
                self.recorder = trace.Recorder(self.path, head)
        if len(self.lives) == self.life and self.recorder is not None:
            self.recorder.record(world.event_ns, event, actions)
            self.recorder.flush()


def record(name: str, path: Path) -> None:
    """Simulate the scene and write its trace."""
    scene = SCENES[name]
    watcher = _Recorded(path, scene.life)
    world = World(scene.programs, gpus=scene.gpus, watchers=[watcher], network=Network(prepared=scene.prepared))
    scene.strike(world)
    world.run(scene.seconds)
    assert watcher.recorder is not None
    watcher.recorder.close()


def main(folder: Path = FOLDER) -> None:
    """Record all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name in SCENES:
            plain = Path(temporary) / f"{name}.jsonl"
            record(name, plain)
            lines = plain.read_bytes()
            packed = gzip.compress(lines, 9, mtime=0)
            (folder / f"{name}.jsonl.gz").write_bytes(packed)
            print(f"{name}: {lines.count(10) - 1} events, {len(packed) // 1024} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
