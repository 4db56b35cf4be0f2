"""The figures of a demo from known records, and its closing table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemini.cli.figures import account, summary
from gemini.cli.stage import Record, Tenant

TENANTS = [Tenant("a", 0.3, 0.4), Tenant("b", 0.2, 1.0)]


def record(shares: list[float], seconds: float = 3.0) -> Record:
    at = np.arange(0, int(seconds * 1e9) + 1, 10_000_000, dtype=np.int64)
    return Record(at, np.outer(at, shares).astype(np.int64), [50.0, 60.0, 100.0])


def state(seconds: float, **held_s: float) -> dict[str, Any]:
    tenants = [{"name": name, "held_ns": int(held * 1e9), "wait_ms_p99": 2.0} for name, held in held_s.items()]
    return {"device": {"name": "H200"}, "seconds": seconds, "tenants": tenants}


def test_shares_errors_and_held_time_are_computed_from_the_record() -> None:
    answer = account(TENANTS, record([0.4, 0.58]), state(10, a=1, b=1), state(13, a=2.2, b=2.8), {"a": 7}, None)
    a, b = answer["tenants"]
    assert (a["entitled"], b["entitled"]) == pytest.approx((0.4, 0.6))
    assert (a["busy"], b["busy"]) == pytest.approx((0.4, 0.58))
    assert (a["achieved"], b["achieved"]) == pytest.approx((0.4, 0.6))
    assert a["error_pp"] == pytest.approx(100 * (0.4 - 0.4 * 0.98), abs=1e-6)
    assert a["error_pp_p99_1s"] == pytest.approx(a["error_pp"], abs=1e-3)
    assert (a["launches"], b["launches"]) == (7, None)
    assert answer["utilization"] == pytest.approx(0.98)
    assert answer["handover_us"]["p50"] == 60
    assert answer["baseline"] is None


def test_the_baseline_is_shown_beside() -> None:
    answer = account(TENANTS, record([0.4, 0.6]), {}, {}, {}, record([0.5, 0.5]))
    assert answer["baseline"]["shares"] == pytest.approx({"a": 0.5, "b": 0.5})
    text = summary("H200", answer)
    assert "50.0 %" in text
    assert "GPU busy 100.0 %" in text
    assert len({len(line) for line in text.splitlines()[2:5]}) == 1


def test_a_run_too_short_for_a_window_says_so() -> None:
    answer = account(TENANTS, record([0.4, 0.6], seconds=0.5), {}, {}, {}, None)
    assert answer["tenants"][0]["error_pp_p99_1s"] is None
    assert "-" in summary("H200", answer)
