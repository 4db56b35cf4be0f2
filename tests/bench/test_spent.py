"""What a tenant took of the card, out of the card's record: pure tables."""

from __future__ import annotations

import numpy as np

from bench.spent import SWITCH_NS, recorded, spent
from gemini import shares
from libhook.observer import Segment

TENANT_OF = {1: "a", 2: "a", 3: "b"}
MS = 1_000_000


def record(*pieces: tuple[int, int, int]) -> list[Segment]:
    """Segments of (pid, start, end)."""
    return [Segment(pid, start_ns, end_ns, 1, 0) for pid, start_ns, end_ns in pieces]


def test_work_counts_from_the_windows_begin_to_its_end() -> None:
    assert spent(record((1, 0, 3 * MS), (3, 4 * MS, 9 * MS)), TENANT_OF, MS, 6 * MS) == {"a": 2 * MS, "b": 2 * MS}


def test_a_switch_between_processes_of_one_tenant_is_that_tenants() -> None:
    found = spent(record((1, 0, MS), (2, MS + SWITCH_NS, 2 * MS)), TENANT_OF, 0, 9 * MS)
    assert found == {"a": 2 * MS, "b": 0}


def test_a_switch_to_another_tenant_is_nobodys() -> None:
    found = spent(record((1, 0, MS), (3, MS + SWITCH_NS, 2 * MS)), TENANT_OF, 0, 9 * MS)
    assert found == {"a": MS, "b": MS - SWITCH_NS}


def test_a_pause_longer_than_a_switch_is_nobodys() -> None:
    found = spent(record((1, 0, MS), (2, MS + SWITCH_NS + 1, 2 * MS)), TENANT_OF, 0, 9 * MS)
    assert found["a"] == 2 * MS - SWITCH_NS - 1


def test_a_pause_of_one_process_is_nobodys() -> None:
    assert spent(record((1, 0, MS), (1, MS + 10, 2 * MS)), TENANT_OF, 0, 9 * MS)["a"] == 2 * MS - 10


def test_the_record_may_be_out_of_order_and_hold_strangers() -> None:
    found = spent(record((2, 2 * MS, 3 * MS), (9, MS, 2 * MS), (1, 0, MS)), TENANT_OF, 0, 9 * MS)
    assert found == {"a": 2 * MS, "b": 0}


def test_a_record_is_exact_within_any_window() -> None:
    switch = record((1, -MS, MS), (2, MS + SWITCH_NS, 2 * MS), (3, 3 * MS, 5 * MS), (1, 6 * MS, 12 * MS))
    found = recorded(switch, {**TENANT_OF, 4: "c"}, 0, 10 * MS)
    assert found.names == ["a", "b", "c"]
    starts = np.array([0, MS, MS // 2, 4 * MS, 8 * MS])
    took = shares.busy_between(found.at_ns, found.busy_ns, starts, 2 * MS)
    assert took.tolist() == [[2 * MS, 0, 0], [MS, 0, 0], [1.5 * MS, 0, 0], [0, MS, 0], [2 * MS, 0, 0]]
    assert found.busy_ns[-1].tolist() == [6 * MS, 2 * MS, 0]
