"""What a tenant should ask for, from traces whose right answer is known."""

from __future__ import annotations

from collections.abc import Iterator

from gemini import advise
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.trace import Entry


def played(
    seconds: int,
    work_ms: int,
    rest_ms: int,
    *,
    limit: float = 1.0,
    memory: int = 0,
    refused: bool = False,
    duty: float = 1.0,
) -> list[Entry]:
    """Tenant `a` alone: so long at work, so long away, over and over."""
    node = Node(1, Policy(), 0, 0)
    entries: list[Entry] = []
    now_ns = 1

    def do(event: ev.Event) -> list[ev.Action]:
        entries.append(Entry(len(entries), now_ns, event, []))
        return node.handle(event, now_ns)

    def granted(actions: list[ev.Action]) -> Iterator[int]:
        return (action.epoch for action in actions if isinstance(action, ev.Grant))

    do(ev.TenantAdded(TenantSpec("a", 300_000, round(limit * 1e6), 1 << 30)))
    do(ev.ClientJoined("a", 1, (0,)))
    if memory:
        do(ev.MemoryAsked(1, 0, memory, 0, 1))
    if refused:
        do(ev.MemoryAsked(1, 0, 1 << 31, 0, 2))
    end_ns = seconds * advise.SECOND
    while now_ns < end_ns:
        epoch = next(granted(do(ev.TokenAsked(1, 0))), 0)
        left = work_ms
        while left > 0 and now_ns < end_ns:
            now_ns += MS
            left -= bool(epoch)
            for action in do(ev.Tick()):
                if isinstance(action, ev.Grant):
                    epoch = action.epoch
                elif isinstance(action, ev.Revoke):
                    epoch = 0
            if epoch and left > 0 and work_ms - left and (work_ms - left) % 10 == 0:
                epoch = next(
                    granted(
                        do(
                            ev.TokenReturned(
                                1, 0, epoch, busy_ns=round(duty * 10 * MS), held_ns=10 * MS, want_more=True
                            )
                        )
                    ),
                    0,
                )
        if epoch:
            do(ev.TokenReturned(1, 0, epoch))
        now_ns += rest_ms * MS
    do(ev.Tick())
    return entries


def advised(entries: list[Entry]) -> dict[str, advise.Advice]:
    use = advise.observe(Node(1, Policy(), 0, 0), entries, "a")
    assert use is not None
    return {one.option: one for one in advise.advise(use)}


def test_who_works_a_fifth_of_the_time_is_told_to_ask_for_a_fifth() -> None:
    found = advised(played(10, work_ms=20, rest_ms=80))
    assert 0.19 <= float(found["--request"].value) <= 0.23
    assert float(found["--limit"].value) < 0.4
    assert "0.3 is promised now" in found["--request"].why


def test_who_always_wants_more_is_told_that_any_share_would_be_used() -> None:
    found = advised(played(8, work_ms=10_000, rest_ms=0))
    assert found["--request"].value == "0.3", "what it is promised: nobody is told to ask for all"
    assert "would use any share" in found["--request"].why


def test_who_rests_at_its_limit_is_told_so() -> None:
    found = advised(played(8, work_ms=30, rest_ms=5, limit=0.4))
    assert "rested at its limit of 0.4" in found["--limit"].why
    assert float(found["--limit"].value) > 0.4


def test_memory_is_the_peak_and_a_tenth_and_a_refusal_is_named() -> None:
    found = advised(played(8, work_ms=20, rest_ms=80, memory=500 << 20))
    assert found["--memory"].value == "576MiB"
    found = advised(played(8, work_ms=20, rest_ms=80, memory=500 << 20, refused=True))
    assert found["--memory"].value == "768MiB"
    assert "refused 1 times" in found["--memory"].why


def test_who_leaves_the_card_idle_while_it_holds_it_is_named_host_bound() -> None:
    found = advised(played(8, work_ms=10_000, rest_ms=0, duty=0.4))
    assert found["(duty)"].value == "0.4"
    assert found["(duty)"].why.startswith("host-bound: its work runs for 40 % of the time that it holds the GPU")
    assert "(duty)" not in advised(played(8, work_ms=10_000, rest_ms=0))


def test_who_was_seen_for_too_short_is_advised_nothing_and_who_is_unknown_is_none() -> None:
    assert advised(played(3, work_ms=20, rest_ms=80)) == {}
    assert advise.observe(Node(1, Policy(), 0, 0), played(1, 5, 5), "b") is None
