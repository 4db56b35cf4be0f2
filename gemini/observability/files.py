"""The tables as the files that Prometheus and Grafana read: names and texts, written by whoever asked."""

from __future__ import annotations

import yaml

from gemini.observability import rules

RULES = "gemini.rules.yaml"


def rule_file(scrape_seconds: float) -> str:
    """For `rule_files` of a Prometheus that scrapes so often."""
    text: str = yaml.safe_dump(rules.groups(scrape_seconds), sort_keys=False, width=1000)
    return text
