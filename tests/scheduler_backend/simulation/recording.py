"""Records what a simulated daemon hears and does, as a real one records itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scheduler_backend import trace
from scheduler_backend.core import events as ev
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.simulation.process import Process
from scheduler_backend.simulation.programs import Program
from scheduler_backend.simulation.watch import Timeline
from scheduler_backend.simulation.world import World


class Record:
    """A watcher that writes the trace."""

    def __init__(self, path: Path, gpus: int) -> None:
        self.recorder = trace.Recorder(path, trace.header(Policy(), [{}] * gpus, 0, 0, 1))

    def on_work(self, world: World, process: Process, gpu: int, start_ns: int, end_ns: int) -> None: ...

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        self.recorder.record(world.event_ns, event, actions)
        self.recorder.flush()


def run(path: Path, programs: Sequence[Program], gpus: int, seconds: float) -> Timeline:
    timeline, record = Timeline(100 * MS), Record(path, gpus)
    world = World(programs, gpus=gpus, watchers=[timeline, record])
    world.run(seconds)
    record.recorder.close()
    assert trace.replay(path)[1] is None
    return timeline
