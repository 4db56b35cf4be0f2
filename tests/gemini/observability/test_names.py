"""Every metric that is asked for is one that a part of Gemini has."""

from __future__ import annotations

import inspect
import re

from gemini.extender import app as extender
from gemini.observability import rules
from gemini.plugin import app as plugin
from gemini.webhook import app as webhook
from scheduler_backend.metrics import METRICS

SUFFIXES = ("", "_total", "_bucket", "_count", "_sum")


def known() -> set[str]:
    names = {row.name for row in METRICS}
    for part in (extender, plugin, webhook):
        names |= set(re.findall(r'"(gemini_[a-z_]+)"', inspect.getsource(part)))
    return {name + suffix for name in names for suffix in SUFFIXES} | {rule.name for rule in rules.RECORDS}


def asked(expr: str) -> set[str]:
    """Names of series in an expression: recorded ones have colons."""
    return set(re.findall(r"\bgemini[a-z_:]*[a-z]\b", re.sub(r'"[^"]*"', "", expr)))


def test_rules_ask_for_metrics_that_there_are() -> None:
    there = known()
    for rule in rules.RECORDS:
        assert asked(rule.expr) <= there, rule.name
    for alert in rules.ALERTS:
        assert asked(alert.watched) <= there, alert.name
        assert asked(alert.watched) or alert.name in ("GeminiDown", "GeminiAbsent")


def test_a_recorded_series_is_made_before_it_is_asked_for() -> None:
    made: set[str] = set()
    for rule in rules.RECORDS:
        assert {name for name in asked(rule.expr) if ":" in name} <= made, rule.name
        made.add(rule.name)
