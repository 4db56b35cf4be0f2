"""How soon a busy tenant's share moves after the daemon was told of another: by the device's own timeline."""

from __future__ import annotations

import time

import pytest

from bench.bed import Bed

AFTER_S, WINDOW_S, CHANGES = 0.1, 0.3, 10
OTHER = 0.3  # the request of the one beside it


@pytest.mark.alone
@pytest.mark.flaky(reruns=2)
def test_from_a_tenth_of_a_second_after_the_word_a_busy_tenant_has_its_new_share() -> None:
    """Both ways; judged by which of the two shares, the old one or the new, it is nearer to."""
    parts: list[tuple[float, float]] = []  # what it asks for, and what it had of both
    nearer = 0
    with Bed() as bed:
        bed.start_loads(("a", 0.3, 1.0), ("b", OTHER, 1.0), options=("--seconds", 300, "--kernel-us", 500))
        bed.until_shares({"a": 0.5, "b": 0.5}, 0.05)
        request = 0.3
        for _ in range(CHANGES):
            old, request = request / (request + OTHER), 0.7 if request == 0.3 else 0.3
            due = time.monotonic() + AFTER_S
            assert bed.http("PATCH", "/tenants/a", {"request": request, "holding": True})[0] == 200
            time.sleep(max(0.0, due - time.monotonic()))
            before = bed.busy()[1]
            time.sleep(WINDOW_S)
            had = {name: now - before[name] for name, now in bed.busy()[1].items()}
            part, new = had["a"] / sum(had.values()), request / (request + OTHER)
            parts.append((request, round(part, 3)))
            nearer += abs(part - new) < abs(part - old)
            time.sleep(WINDOW_S)
    assert nearer >= CHANGES - 1, parts
