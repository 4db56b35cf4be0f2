"""A trace becomes programs that do in the simulator what the recorded processes did."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from scheduler_backend.core.policy import MS
from scheduler_backend.problem import Problem
from scheduler_backend.simulation.programs import ENDLESS, SECOND, Program, spec
from scheduler_backend.simulation.recorded import recorded
from scheduler_backend.simulation.watch import Timeline
from scheduler_backend.simulation.world import World
from tests.scheduler_backend.simulation.recording import Record, run

PROGRAMS = [
    Program(spec("busy", 0.3, gpus=(0,))),
    Program(spec("loop", 0.3, gpus=(0,)), "closed_loop", 5 * MS, 10 * MS),
    Program(spec("bursty", 0.1, gpus=(0,)), "bursty", 8 * MS, 12 * MS),
    Program(spec("guest", 0.2, 0.2, gpus=(0,)), start_ns=5 * SECOND, stop_ns=12 * SECOND),
    Program(spec("gang", 0.5, gpus=(1, 2)), "closed_loop", 20 * MS, 5 * MS, MS, True),
    Program(spec("beside", 0.4, gpus=(1,))),
    Program(spec("rank", 0.1, gpus=(0, 2)), "closed_loop", 3 * MS, 20 * MS, gpus=(2,)),
]


def test_a_recorded_run_is_played_again_with_the_shares_it_had(tmp_path: Path) -> None:
    was = run(tmp_path / "trace.jsonl", PROGRAMS, 3, 20)
    record = recorded(tmp_path / "trace.jsonl")
    assert record.gpus == 3
    assert record.seconds == pytest.approx(20, abs=0.1)
    now = Timeline(100 * MS)
    world = World([], gpus=record.gpus, watchers=[now], seed=9)
    record.fill(world)
    world.run(20)
    assert set(now.bins) == {key for key in was.bins if was.bins[key]}
    for name, gpu in was.bins:
        share = was.share(name, 0, 20, gpu)
        assert share > 0.05
        assert record.share(name, gpu) == pytest.approx(share, abs=0.02), f"{name} as it was told"
        assert now.share(name, 0, 20, gpu) == pytest.approx(share, abs=0.03), f"{name} on GPU {gpu}"
    assert now.share("guest", 0, 5) == now.share("guest", 12.5, 20) == 0


def test_the_bursts_of_one_long_grant_are_told_apart(tmp_path: Path) -> None:
    programs = [
        Program(spec("loop", 0.5), "closed_loop", 3 * MS, 6 * MS),
        Program(spec("late", 0.5), start_ns=5 * SECOND),
    ]
    run(tmp_path / "trace.jsonl", programs, 1, 8)
    loop, late = recorded(tmp_path / "trace.jsonl").programs
    assert len(loop.steps) > 600
    works, gaps = zip(*loop.steps, strict=True)
    assert statistics.median(works) == pytest.approx(3 * MS, rel=0.1)
    assert statistics.median(gaps) == pytest.approx(6 * MS, rel=0.2)
    assert late.steps == ((ENDLESS, 0),)
    assert late.start_ns == pytest.approx(5 * SECOND, abs=20 * MS)
    assert late.kernel_ns == pytest.approx(100_000, rel=0.1)


def test_a_promise_that_changed_changes_again(tmp_path: Path) -> None:
    timeline, record = Timeline(), Record(tmp_path / "trace.jsonl", 1)
    world = World([Program(spec("a", 0.5)), Program(spec("b", 0.2))], watchers=[timeline, record])
    world.at(3 * SECOND, world.promise, spec("a", 0.2))
    world.run(6)
    record.recorder.close()
    again = Timeline()
    world = World([], watchers=[again])
    recorded(tmp_path / "trace.jsonl").fill(world)
    world.run(6)
    for start_s, end_s in ((1, 3), (4, 6)):
        assert again.share("a", start_s, end_s) == pytest.approx(timeline.share("a", start_s, end_s), abs=0.03)
    assert again.share("a", 1, 3) > again.share("a", 4, 6) + 0.15


def test_a_later_part_begins_with_who_was_there(tmp_path: Path) -> None:
    timeline, record = Timeline(), Record(tmp_path / "trace.jsonl", 1)
    record.recorder._most_bytes = 450_000
    programs = [Program(spec("a", 0.6)), Program(spec("b", 0.3), "closed_loop", 5 * MS, 15 * MS)]
    world = World(programs, watchers=[timeline, record])
    record.recorder.node = world.node
    world.run(12)
    record.recorder.close()
    (tmp_path / "trace.jsonl.1").unlink()
    part = recorded(tmp_path / "trace.jsonl")
    assert 0.2 < part.seconds < 11
    assert [program.spec.name for program in part.programs] == ["a", "b"]
    again = Timeline(100 * MS)
    world = World([], watchers=[again], policy=part.policy)
    part.fill(world)
    world.run(part.seconds)
    for name in "ab":
        assert again.share(name, 0, part.seconds) == pytest.approx(timeline.share(name, 1, 12), abs=0.05)


def test_what_is_no_whole_trace_or_tells_of_nobody_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    run(path, [], 1, 1)
    with pytest.raises(Problem, match="ever ran anything"):
        recorded(path)
    path.write_text(path.read_text().replace('"part":0', '"part":2'))
    with pytest.raises(Problem, match="part 2 of a longer trace"):
        recorded(path)
