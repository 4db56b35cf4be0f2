"""The stage of the demo by itself: what its reader makes of the card's record. test_demo.py plays on it."""

from __future__ import annotations

from threading import Event
from time import monotonic_ns

from gemini.cli.stage import Stage, read_until


def test_a_record_is_whole_up_to_its_last_piece_where_the_reader_stood_still() -> None:
    assert read_until(1_000, []) == 1_000  # the card was idle
    assert read_until(1_000, [300, 900]) == 1_000
    assert read_until(1_000, [900, 7_000, 6_000]) == 7_000  # it asked 6 us after it had looked at its clock


class _Load:
    """A program that runs, as far as the stage asks."""

    pid = 7

    def poll(self) -> None:
        return None


class _StandsStill:
    """The record of a card that is busy all the time, read by one that stands for 3 s before each question."""

    lost = 0

    def __init__(self) -> None:
        self.until_ns = 0

    def segments(self, device: int, since: int) -> tuple[int, list[tuple[int, int, int, int, int]]]:
        begin_ns = self.until_ns or monotonic_ns()
        self.until_ns = begin_ns + 3_000_000_000
        return since + 1, [(7, begin_ns, self.until_ns, 1, 0)] if since else []


def test_nobody_has_more_than_the_card_where_the_reader_stands_still() -> None:
    stage = Stage.__new__(Stage)  # no card and no folder
    stage.timeline, stage.loads = _StandsStill(), {"a": _Load()}  # type: ignore[dict-item]
    shown: list[float] = []

    def show(at: list[int], busy: list[list[int]]) -> None:
        if len(at) > 1:
            shown.append((busy[-1][0] - busy[0][0]) / (at[-1] - at[0]))

    stage._watch(4.0, show, Event())
    assert shown
    assert all(0.5 < share <= 1.0 for share in shown)
