"""What a trace says of turns."""

from __future__ import annotations

from pathlib import Path

from bench import story
from libhook.observer import Segment
from scheduler_backend import trace
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec


def test_a_lease_that_is_prolonged_while_its_holder_drains_is_no_more_quota(tmp_path: Path) -> None:
    """A turn that ran over by 80 ms seemed to do so by 10, the time since it was last heard of."""
    node = Node(1, Policy(), 100, 0)
    recorder = trace.Recorder(tmp_path / "trace.jsonl", trace.header(Policy(), [{"uuid": "x"}], 100, 0, 7))
    now_ns, granted = 0, dict[int, ev.Grant]()

    def do(event: ev.Event) -> None:
        actions = node.handle(event, now_ns)
        recorder.record(now_ns, event, actions)
        granted.update({action.client: action for action in actions if isinstance(action, ev.Grant)})

    for client, name in ((1, "a"), (2, "b")):
        do(ev.TenantAdded(TenantSpec(name, 500_000, 1_000_000, 0)))
        do(ev.ClientJoined(name, client, (0,), (), ((0, 0),)))
        do(ev.TokenAsked(client, 0, 0, 0))
    first, quota_ns = granted[1], Policy().quota_ns  # another waits for it by now
    for _ in range(8):
        now_ns += 10 * MS
        do(ev.TokenRenewed(1, 0, first.epoch, draining=True, foreseen=True))
    now_ns += 10 * MS
    do(ev.TokenReturned(1, 0, first.epoch, want_more=True))
    while granted[1] is first:  # b is owed that time, and has turns until it had as much
        now_ns += 10 * MS
        do(ev.TokenReturned(2, 0, granted[2].epoch, want_more=True))
    recorder.close()
    own = [turn for turn in story.turns(tmp_path / "trace.jsonl") if turn.tenant == "a"]
    assert own[0].quota_until_ns == quota_ns
    work = [Segment(1, 0, 90 * MS, 18, 0)]
    assert story.observed_overuse_ns(own, work) == [90 * MS - quota_ns]
