"""What the soak takes for growth."""

from __future__ import annotations

from bench.soak import grown, since_first


def sizes(*fds: int) -> list[dict[str, int]]:
    return [{"rss_bytes": 1000 * fd, "fds": fd, "threads": 7} for fd in fds]


def test_what_is_there_for_a_while_is_no_growth() -> None:
    assert grown(sizes(50, 58, 60, 60, 72, 60, 63, 60, 61, 60, 60, 72)) == {"rss_bytes": 0, "fds": 0, "threads": 0}


def test_what_stays_is() -> None:
    found = grown(sizes(50, 58, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69))
    assert found["fds"] >= 6
    assert found["rss_bytes"] >= 6000


def test_a_run_that_was_too_short_says_nothing() -> None:
    assert grown(sizes(60)) == {}


def test_what_a_restart_left_in_a_tenant_is_growth() -> None:
    assert since_first(sizes(33, 36, 39, 39, 39, 39, 39, 39))["fds"] == 6
    assert since_first(sizes(33, 36, 33, 33, 36, 33, 33, 36)) == {"rss_bytes": 0, "fds": 0, "threads": 0}
    assert since_first(sizes(33)) == {}
