"""The barrier after a restart by itself."""

from __future__ import annotations

from scheduler_backend.core.restart import RestartBarrier


def test_without_clients_to_await_it_is_down() -> None:
    barrier = RestartBarrier()
    assert not barrier.is_up(0)
    barrier.expect([], 100)
    assert not barrier.is_up(0)


def test_it_is_up_until_the_last_client_was_heard() -> None:
    barrier = RestartBarrier()
    barrier.expect([1, 2], 100)
    barrier.hear(1)
    barrier.hear(7)  # of whom it did not know
    assert barrier.is_up(0)
    barrier.hear(2)
    assert not barrier.is_up(0)


def test_it_falls_at_its_time_and_whoever_is_silent_then_is_awaited_no_more() -> None:
    barrier = RestartBarrier()
    barrier.expect([1], 100)
    assert barrier.is_up(99)
    assert not barrier.is_up(100)
    assert barrier.unheard == set()


def test_the_latest_time_counts() -> None:
    barrier = RestartBarrier()
    barrier.expect([1], 100)
    barrier.expect([2], 50)
    assert barrier.is_up(99)
    barrier.expect([3], 200)
    assert barrier.is_up(199)
    assert not barrier.is_up(200)
