"""The trace replays, and names the first action that differs."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_backend import trace
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.problem import Problem
from scheduler_backend.simulation.programs import Program, spec
from scheduler_backend.simulation.world import World


def record(path: Path) -> None:
    """Two tenants taking turns, a tenant with memory, a client's fault, deaths: through a recorder."""
    head = trace.header(Policy(), [{"uuid": "x"}], 100, 0, 7)
    recorder = trace.Recorder(path, head)
    node = Node(1, Policy(), 100, 0)
    now_ns = 0

    def do(event: ev.Event) -> list[ev.Action]:
        try:
            actions = node.handle(event, now_ns)
        except ev.RemoteProtocolError as error:
            recorder.record(now_ns, event, [], str(error))
            return []
        recorder.record(now_ns, event, actions)
        return actions

    for client, name in ((1, "a"), (2, "b")):
        do(ev.TenantAdded(TenantSpec(name, 400_000, 1_000_000, 1000)))
        do(ev.ClientJoined(name, client, (0,), (), ((0, 5),)))
        do(ev.MemoryAsked(client, 0, 500, 300, 3))
    holder = 0
    for client in (1, 2):
        for action in do(ev.TokenAsked(client, 0, 3 * MS, MS)):
            if isinstance(action, ev.Grant):
                holder, epoch = action.client, action.epoch
    for turn in range(20):
        now_ns += 9 * MS
        do(ev.Tick())
        if turn == 5:
            do(ev.TokenReturned(1, 0, 99_999))
            do(ev.TenantChanged(TenantSpec("b", 200_000, 900_000, 2000)))
        now_ns += MS
        for action in do(ev.TokenReturned(holder, 0, epoch, True)):
            if isinstance(action, ev.Grant):
                holder, epoch = action.client, action.epoch
    do(ev.ClientDied(1))
    do(ev.TenantRemoved("b"))
    recorder.close()


def test_a_trace_replays_to_the_same_actions(tmp_path: Path):
    record(tmp_path / "trace.jsonl")
    count, difference = trace.replay(tmp_path / "trace.jsonl")
    assert difference is None
    assert count > 45


def test_with_one_constant_changed_the_first_difference_is_named(tmp_path: Path):
    record(tmp_path / "trace.jsonl")
    _, difference = trace.replay(tmp_path / "trace.jsonl", {"quota_ns": 5 * MS})
    assert difference is not None
    assert "quota_ns=" in difference.recorded
    assert difference.recorded != difference.replayed
    assert difference.line > 2
    with pytest.raises(Problem, match="'speed' is unknown"):
        trace.replay(tmp_path / "trace.jsonl", {"speed": 1})


def test_a_line_that_was_cut_off_ends_the_trace_and_a_damaged_one_is_named(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    record(path)
    whole = path.read_text()
    path.write_text(whole[:-10])
    assert trace.replay(path)[1] is None
    lines = whole.splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "garbage\n", *lines[4:]]))
    with pytest.raises(Problem, match=r":4 is no event"):
        trace.replay(path)
    for other in (b"not json\n", b"\x89PNG\r\n\x1a\n\xff\n"):
        path.write_bytes(other)
        with pytest.raises(Problem, match="no trace"):
            trace.read(path)
    with pytest.raises(Problem, match="No such file"):
        trace.read(tmp_path / "none")


def test_a_line_without_end_is_not_read_to_its_end(tmp_path: Path):
    with pytest.raises(Problem, match="/dev/zero is no trace"):
        trace.read(Path("/dev/zero"))
    path = tmp_path / "trace.jsonl"
    record(path)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.truncate(file.tell() + (1 << 40))
    with pytest.raises(Problem, match=r"is no event of a trace"):
        trace.replay(path)


class Recording:
    """Watches a simulated node; writes what happens, and pauses for that where `may_pause`."""

    def __init__(self, recorder: trace.Recorder, may_pause: Callable[[Node], bool]) -> None:
        self.recorder, self.may_pause = recorder, may_pause
        self.pauses = 0

    def on_actions(self, world: World, event: ev.Event, actions: list[ev.Action]) -> None:
        self.recorder.record(world.event_ns, event, actions)
        if self.may_pause(world.node):
            self.pauses += 1
            while self.recorder.flush():
                pass

    def on_work(self, *work: object) -> None: ...


def crowded(node: Node) -> bool:
    """Is there all at once that a state may hold?"""
    one, two, three = node.machines
    return (
        three.prepared is not None  # and one that holds
        and any(member.granted_ns for member in three.seats["p"].members.values())
        and one.holder is not None
        and two.holder is not None
        and bool(node.gangs.gangs["gang"].parts)
        and any(seat.throttled for seat in one.waiting.values())
        and bool(node.accounts["p", 2].wake_ns)
    )


def busy_world(path: Path, seconds: float, most_bytes: int) -> Recording:
    """Three GPUs: shares, a limit, a gang, a latency tenant, two that take turns as prepared, memory that is short."""
    recorder = trace.Recorder(path, trace.header(Policy(), [{}, {}, {}], 0, 0, 7), most_bytes)
    recording = Recording(recorder, crowded)
    pair = TenantSpec("p", 400_000, 1_000_000, 1000, False, (2,))
    programs = [
        Program(pair), Program(pair, "idle"), Program(spec("q", 0.5, gpus=(2,))),
        Program(spec("a", 0.3)), Program(spec("b", 0.2, 0.25)), Program(spec("best", 0)),
        Program(spec("l", 0.1, latency=True), "bursty", 2 * MS, 20 * MS),
        Program(spec("gang", 0.2, gpus=(0, 1)), collective=True), Program(spec("c", 0.3, 0.4, gpus=(1,))),
    ]  # fmt: skip
    world = World(programs, gpus=3, watchers=[recording], check_every=50)
    recorder.node = world.node
    for at_ns in range(100 * MS, int(seconds * 1000) * MS, 250 * MS):
        for client in (1, 2):
            world.at(at_ns, world.daemon.handle, ev.MemoryReleased(client, 2, 300, False, True))
            world.at(at_ns + MS, world.daemon.handle, ev.MemoryAsked(client, 2, 600, 0, 1))
    world.run(seconds)
    recorder.close()
    return recording


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The last two of several."""
    path = tmp_path_factory.mktemp("parts") / "trace.jsonl"
    assert busy_world(path, 3.2, 100_000).pauses > 20
    return path.with_name("trace.jsonl.1"), path


def test_each_part_of_a_trace_replays_by_itself_whatever_stood_where_it_begins(parts: tuple[Path, Path]):
    for part in parts:
        head = trace.read(part)[0]
        assert head["part"] >= 2
        assert '"Carried"' in part.read_text()
        node = trace.node_of(part, head)
        node.check()
        assert crowded(node)
        count, difference = trace.replay(part)
        assert difference is None, f"after {count} events: {difference}"
        assert count > 50
        _, difference = trace.replay(part, {"quota_ns": 5 * MS})
        assert difference is not None
        assert difference.recorded != difference.replayed


def test_a_part_continues_the_one_beside_it(parts: tuple[Path, Path], tmp_path: Path):
    before, path = parts
    head, entries = trace.read_joined(path)
    assert head == trace.read(before)[0]
    node = trace.node_of(path, head)
    joined = 0
    for entry in entries:
        assert [type(a).__name__ for a in node.handle(entry.event, entry.now_ns)] == [a for a, _ in entry.actions]
        joined += 1
    assert joined == sum(len(list(trace.read(part)[1])) for part in parts)
    alone = tmp_path / "trace.jsonl"
    alone.write_bytes(path.read_bytes())
    assert trace.read_joined(alone)[0] == trace.read(path)[0]


def beside(path: Path, most_bytes: int = 256 << 20) -> tuple[trace.Recorder, Callable[[int], None]]:
    """A recorder with a node, and what gives a Tick to both."""
    recorder = trace.Recorder(path, trace.header(Policy(), [{}], 0, 0, 0), most_bytes)
    node = recorder.node = Node(1, Policy())

    def tick(now_ns: int) -> None:
        recorder.record(now_ns, ev.Tick(), node.handle(ev.Tick(), now_ns))

    return recorder, tick


def test_a_trace_that_has_grown_to_its_bound_goes_on_in_a_new_file(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    recorder, tick = beside(path, 3000)
    for now_ns in range(200):
        tick(now_ns)
    while recorder.flush():
        pass
    assert trace.replay(tmp_path / "trace.jsonl.1") == (200, None)
    tick(300)
    recorder.close()
    assert trace.replay(path) == (1, None)
    assert trace.read(path)[0]["part"] == 1


def test_a_part_without_a_state_and_one_of_another_version_are_refused(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    recorder, _ = beside(path)
    recorder.begin_anew()
    recorder.close()
    head = json.loads(path.read_text())
    head["state"]["shapes"]["TokenMachine"].append("speed")
    path.write_text(json.dumps(head) + "\n")
    with pytest.raises(Problem, match=r"cannot be read: it is of another version, whose TokenMachine"):
        trace.replay(path)
    del head["state"]
    path.write_text(json.dumps(head) + "\n")
    with pytest.raises(Problem, match="part 1 of a longer trace and has no state"):
        trace.replay(path)
    path.write_text('{"format":1}\n')
    with pytest.raises(Problem, match="header is damaged"):
        trace.replay(path)


def test_a_disk_that_takes_nothing_costs_events_and_nothing_else(tmp_path: Path):
    path = tmp_path / "none" / "trace.jsonl"
    recorder, tick = beside(path)
    for now_ns in range(200_000):
        tick(now_ns)
        if recorder.lost == 3:
            break
    recorder.flush()
    assert recorder.lost == 3
    path.parent.mkdir()
    recorder.flush()
    assert trace.read(path)[0]["lost"] == 0
    tick(200_000)  # before the disk has all of before the gap
    while recorder.flush():
        pass
    for now_ns in range(300_000, 300_010):
        tick(now_ns)
    recorder.close()
    assert trace.replay(path.with_name("trace.jsonl.1")) == (trace._MOST_PENDING, None)
    assert trace.read(path)[0]["lost"] == recorder.lost == 4
    assert trace.replay(path) == (10, None)
    assert trace.read_joined(path)[0]["part"] == 1, "what has a gap is not one trace"


def test_where_the_folder_is_another_the_next_part_begins_in_it(tmp_path: Path):
    folder = tmp_path / "state"
    folder.mkdir()
    recorder, tick = beside(folder / "trace.jsonl")
    tick(1)
    folder.rename(tmp_path / "before")
    folder.mkdir()
    recorder.begin_anew()
    tick(2)
    recorder.close()
    assert trace.replay(tmp_path / "before" / "trace.jsonl") == (1, None)
    assert trace.replay(folder / "trace.jsonl") == (1, None)
    assert recorder.lost == 0


def test_what_the_file_before_does_not_take_is_lost_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "trace.jsonl"
    recorder, tick = beside(path)
    write = os.write
    for now_ns in range(250):  # of which a hundred are lines already
        tick(now_ns)
    monkeypatch.setattr(trace.os, "write", lambda fd, blob: write(fd, blob[:25]))
    assert not recorder.flush()
    monkeypatch.setattr(trace.os, "write", refuse)
    assert not recorder.flush()
    recorder.begin_anew()
    tick(250)
    assert recorder.flush()
    monkeypatch.undo()
    recorder.close()
    kept, difference = trace.replay(path.with_name("trace.jsonl.1"))
    assert difference is None
    assert kept + recorder.lost == 250
    assert trace.replay(path) == (1, None)
    assert trace.read(path)[0]["lost"] == recorder.lost > 200


def refuse(fd: int, blob: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_trace_that_lacks_events_differs_where_it_does(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    busy_world(path, 1, 1 << 20)
    lines = path.read_text().splitlines(keepends=True)
    assert trace.replay(path) == (len(lines) - 1, None)
    first = next(place for place, line in enumerate(lines) if '"Carried"' in line)
    path.write_text("".join([lines[0], *lines[first:]]))
    count, difference = trace.replay(path)
    assert (count, difference is not None and difference.line) == (0, 2)
    assert difference is not None
    assert "LocalProtocolError" in difference.replayed


def test_a_trace_can_be_read_before_anything_happened(tmp_path: Path):
    recorder = trace.Recorder(tmp_path / "trace.jsonl", trace.header(Policy(), [{}], 0, 0, 0))
    assert trace.replay(tmp_path / "trace.jsonl") == (0, None)
    recorder.close()


def test_a_trace_that_no_disk_took_says_that_it_is_empty(tmp_path: Path):
    (tmp_path / "trace.jsonl").touch()
    with pytest.raises(Problem, match=r"is empty.*disk"):
        trace.read(tmp_path / "trace.jsonl")


def test_an_older_trace_is_kept_beside(tmp_path: Path):
    record(tmp_path / "trace.jsonl")
    size = os.path.getsize(tmp_path / "trace.jsonl")
    record(tmp_path / "trace.jsonl")
    assert os.path.getsize(tmp_path / "trace.jsonl.1") == size


def test_every_event_can_be_read_back(tmp_path: Path):
    recorder = trace.Recorder(tmp_path / "t", trace.header(Policy(), [{}], 0, 0, 0))
    said: list[ev.Event] = [
        ev.TenantAdded(TenantSpec("a", gpus=(0, 1))),
        ev.ClientsKnown((("a", 1),), 5),
        ev.ClientJoined("a", 1, (0, 1), ((0, 5),), ((1, 6),)),
        ev.TokenReturned(1, 0, 2, True, False, True, 1, 2, 3, 4),
        ev.MemoryReleased(1, 0, 2, True),
        ev.Tick(),
    ]
    for event in said:
        recorder.record(1, event, [])
    recorder.close()
    _, entries = trace.read(tmp_path / "t")
    assert [entry.event for entry in entries] == said
