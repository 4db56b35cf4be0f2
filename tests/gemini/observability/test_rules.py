"""The rules, played by promtool: what fires, what does not, and what is recorded."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gemini.observability import files, rules
from tests.e2e.build import Builder, CannotBuild
from tests.gemini.observability.alerts import CARD, CASES, LABELS, SCRAPE, SEAT, Series, seat, series


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return Builder().prometheus(fetch=False) / "promtool"
    except CannotBuild as why:
        pytest.skip(str(why))


def play(promtool: Path, folder: Path, tests: list[dict[str, Any]]) -> str:
    """What promtool says of these tests; empty: all hold."""
    (folder / files.RULES).write_text(files.rule_file(SCRAPE))
    (folder / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": [files.RULES], "evaluation_interval": f"{SCRAPE}s", "tests": tests})
    )
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yaml"], cwd=folder, text=True, capture_output=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def told(given: Series) -> dict[str, Any]:
    return {
        "interval": f"{SCRAPE}s",
        "input_series": [{"series": selector(name, dict(labels)), "values": v} for (name, labels), v in given.items()],
    }


def selector(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def at(minutes: float) -> str:
    return f"{round(minutes * 60)}s"


def samples(expr: str, minutes: float, found: list[tuple[dict[str, str], float]], name: str = "") -> dict[str, Any]:
    """That `expr` has these samples then."""
    exp = [{"labels": selector(name, labels), "value": value} for labels, value in found]
    return {"expr": expr, "eval_time": at(minutes), "exp_samples": exp}


@pytest.fixture
def checked(promtool: Path, tmp_path: Path) -> str:
    (tmp_path / files.RULES).write_text(files.rule_file(SCRAPE))
    done = subprocess.run([promtool, "check", "rules", files.RULES], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_promtool_accepts_the_rule_file(checked: str) -> None:
    assert f"{len(rules.RECORDS) + len(rules.ALERTS)} rules found" in checked


def test_alerts_fire_when_they_should_and_stay_silent_close_by(promtool: Path, tmp_path: Path) -> None:
    tests = []
    for case in CASES:
        rule = next(rule for rule in rules.ALERTS if rule.name == case.alert)
        state = {"alertname": case.alert, "alertstate": "firing", "severity": rule.severity}
        found = [] if case.firing is None else [({**state, **case.firing}, 1.0)]
        asked = samples(
            selector("ALERTS", {"alertname": case.alert, "alertstate": "firing"}), case.minutes, found, "ALERTS"
        )
        tests.append({"name": f"{case.alert}: {case.why}", **told(case.series), "promql_expr_test": [asked]})
    assert play(promtool, tmp_path, tests) == ""


def test_every_alert_has_a_case_that_fires_it_and_one_that_does_not() -> None:
    names = [rule.name for rule in rules.ALERTS]
    assert len(set(names)) == len(names)
    for fires in (True, False):
        assert {case.alert for case in CASES if (case.firing is not None) is fires} == set(names)


def test_shares_are_recorded_for_tenants_and_cards(promtool: Path, tmp_path: Path) -> None:
    other = {**SEAT, "tenant": "b"}
    given = {
        **seat(0.5, 0.5, request=0.6),
        **series("gemini_held_seconds_total", other, "0+4.5x60"),
        **series("gemini_wait_seconds_sum_total", other, "0x60"),
        **series("gemini_request_ratio", other, "0.3x60"),
        **series("gemini_memory_bytes", SEAT, "20x60"),
        **series("gemini_memory_bytes", other, "30x60"),
        **series("gemini_gpu_memory_bytes", CARD, "100x60"),
        **series("gemini_gpu_memory_bytes", {**LABELS, "gpu": "GPU-idle"}, "100x60"),
    }
    idle = {**LABELS, "gpu": "GPU-idle"}
    expected: dict[str, list[tuple[dict[str, str], float]]] = {
        "gemini:held:ratio": [(SEAT, 0.5), (other, 0.3)],
        "gemini:wanted:ratio": [(SEAT, 1.0), (other, 0.3)],
        "gemini_gpu:promised:ratio": [(CARD, 0.9), (idle, 0.0)],
        "gemini_gpu:held:ratio": [(CARD, 0.8), (idle, 0.0)],
        "gemini_gpu:memory:ratio": [(CARD, 0.5), (idle, 0.0)],
    }
    # Of a float's last digits promtool thinks more highly than we do.
    tests = [samples(f"round({name}, 0.001)", 10, [(labels, value) for labels, value in found])
             for name, found in expected.items()]  # fmt: skip
    tests.append(samples("round(gemini:missed:ratio, 0.001)", 10, [(SEAT, 0.1), (other, 0.0)]))
    tests.append(samples("round(gemini_gpu:free:ratio, 0.001)", 10, [(CARD, 0.1), (idle, 1.0)]))
    assert play(promtool, tmp_path, [{**told(given), "promql_expr_test": tests}]) == ""


def test_of_limits_that_leave_the_card_idle_the_limit_is_owed(promtool: Path, tmp_path: Path) -> None:
    given = {**seat(0.23, 0.77, request=0.2, limit=0.25), **series("gemini_owed_ratio", SEAT, "0.25x60")}
    asked = samples("round(gemini:missed:ratio, 0.001)", 10, [(SEAT, 0.02)])
    assert play(promtool, tmp_path, [{**told(given), "promql_expr_test": [asked]}]) == ""


def test_a_wrong_expectation_is_found_out(promtool: Path, tmp_path: Path) -> None:
    """Lest the tests above hold whatever the rules say."""
    wrong = samples("round(gemini:held:ratio, 0.001)", 10, [(SEAT, 0.4)])
    assert "FAILED" in play(promtool, tmp_path, [{**told(seat(0.5, 0.5)), "promql_expr_test": [wrong]}])


def test_times_follow_the_scrape_interval() -> None:
    text = files.rule_file(0.5)
    assert "rate(gemini_held_seconds_total[2s])" in text
    assert "increase(gemini_leases_lost_total[10s])" in text
    assert yaml.safe_load(text)["groups"][0]["interval"] == "500ms"
    assert "$" not in re.sub(r"\$(labels|value)", "", text)
