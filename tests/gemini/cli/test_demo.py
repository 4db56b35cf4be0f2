"""gemini demo end to end on a simulated card: its figures, its plot, its baseline."""

from __future__ import annotations

import json

import pytest

from tests.gemini.cli.conftest import Place


@pytest.mark.flaky(reruns=4)
def test_three_tenants_get_their_shares_and_a_plot(place: Place) -> None:
    plot, figures = place.dir / "demo.png", place.dir / "demo.json"
    done = place.gemini("demo", "--seconds", "3", "--json", str(figures), "--plot", str(plot))
    assert done.returncode == 0, done.stderr
    assert "without Gemini" in done.stdout
    assert plot.read_bytes()[:4] == b"\x89PNG"
    answer = json.loads(figures.read_text())
    assert answer["device"]["simulated"] is True
    assert answer["utilization"] > 0.3
    tenants = {tenant["name"]: tenant for tenant in answer["tenants"]}
    for name, entitled in (("a", 0.5), ("b", 0.3), ("c", 0.2)):
        tenant = tenants[name]
        assert tenant["entitled"] == pytest.approx(entitled)
        # Wide bounds: this test is about the whole path, on a machine that may be busy; bench/fairness has the figures.
        assert tenant["busy"] / answer["utilization"] == pytest.approx(entitled, abs=0.08)
        assert tenant["achieved"] == pytest.approx(entitled, abs=0.1)
        assert tenant["launches"] > 100
        for key in ("error_pp_p99_1s", "overuse_ms_p99", "wait_ms_p99", "memory_bytes", "memory_limit_bytes"):
            assert key in tenant
    assert set(answer["handover_us"]) == {"p50", "p99"}
    bare = answer["baseline"]["shares"]
    assert all(share == pytest.approx(1 / 3, abs=0.1) for share in bare.values())
