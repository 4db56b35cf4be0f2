"""Rows and bars of who held the card when, out of trace events; the picture itself is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemini.chrome import meta
from gemini.cli import timeline

GRANT = {"ph": "X", "pid": 1, "args": {}}


def events() -> list[dict[str, object]]:
    return [
        meta("process_name", 1, 0, "GPU 0 Paper"),
        meta("thread_name", 1, 1, "b"),
        meta("thread_name", 1, 2, "a"),
        {**GRANT, "name": "waiting", "tid": 1, "ts": 0.0, "dur": 1e5},
        {**GRANT, "name": "token", "tid": 1, "ts": 1e5, "dur": 3e5},
        {**GRANT, "name": "token", "tid": 2, "ts": 4e5, "dur": 6e5},
        {"ph": "i", "name": "revoked", "pid": 1, "tid": 2, "ts": 9e5, "args": {}},
        {"ph": "C", "name": "memory of a", "pid": 1, "tid": 0, "ts": 0.0, "args": {"bytes": 1}},
    ]


def test_each_tenant_has_a_row_with_what_it_held_and_waited() -> None:
    a, b = timeline.rows_of(events())
    assert (a.tenant, b.tenant, a.card) == ("a", "b", "GPU 0 Paper")
    assert b.waited == [(0.0, 0.1)]
    assert a.held == [(0.4, pytest.approx(0.6))]
    assert a.marks == [(0.9, "revoked")]
    assert timeline.last_moment([a, b]) == pytest.approx(1.0)
    assert (a.share(0, 1), b.share(0, 1)) == (pytest.approx(0.6), pytest.approx(0.3))
    assert a.share(0.5, 0.6) == pytest.approx(1.0)


def test_bars_end_where_the_picture_does() -> None:
    spans = [(0.0, 1.0), (2.0, 1.0), (4.0, 1.0)]
    assert timeline.cut(spans, 0.5, 2.5) == [(0.5, 0.5), (2.0, 0.5)]
    assert timeline.cut(spans, 3.0, 4.0) == []
    assert timeline.last_moment([]) == 0.0


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    timeline.draw(str(tmp_path / "line.png"), "title", timeline.rows_of(events()), 0.0, 1.0)
    assert (tmp_path / "line.png").read_bytes()[:4] == b"\x89PNG"
