"""The trace replays, and names the first action that differs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from scheduler_backend import trace
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.problem import Problem


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


def test_a_trace_that_has_grown_to_its_bound_goes_on_in_a_new_file(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    recorder = trace.Recorder(path, trace.header(Policy(), [{}], 0, 0, 0), most_bytes=3000)
    for now_ns in range(200):
        recorder.record(now_ns, ev.Tick(), [])
    while recorder.flush():
        pass
    assert trace.replay(tmp_path / "trace.jsonl.1") == (200, None)
    recorder.record(300, ev.Tick(), [])
    recorder.close()
    with pytest.raises(Problem, match="part 1 of a longer"):
        trace.replay(path)


def test_a_disk_that_takes_nothing_costs_lines_and_nothing_else(tmp_path: Path):
    path = tmp_path / "none" / "trace.jsonl"
    recorder = trace.Recorder(path, trace.header(Policy(), [], 0, 0, 0))
    for _ in range(200_000):
        recorder.record(1, ev.Tick(), [ev.WakeAt(1), ev.WakeAt(2)])
        if recorder.lost:
            break
    recorder.flush()
    assert recorder.lost
    path.parent.mkdir()
    recorder.flush()
    assert json.loads(path.open().readline())["format"] == trace.FORMAT
    recorder.close()


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
