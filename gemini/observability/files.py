"""The tables as the files that Prometheus and Grafana read: names and texts, written by whoever asked."""

from __future__ import annotations

from typing import Any

import yaml

from gemini.observability import rules
from gemini.observability.boards import BOARDS
from gemini.observability.grafana import board_json

RULES = "gemini.rules.yaml"
OBJECTS = "gemini-observability.yaml"
LABELS = {"app.kubernetes.io/name": "gemini", "app.kubernetes.io/component": "observability"}


def rule_file(scrape_seconds: float, docs: str | None = None) -> str:
    """For `rule_files` of a Prometheus that scrapes so often. `docs`: the documentation's site, for runbooks."""
    return _yaml(rules.groups(scrape_seconds, docs))


def plain(scrape_seconds: float, docs: str | None = None) -> dict[str, str]:
    """The rule file, and a JSON for each dashboard."""
    return {RULES: rule_file(scrape_seconds, docs)} | {
        f"{board.uid}.json": board_json(board, scrape_seconds) for board in BOARDS
    }


def kubernetes(scrape_seconds: float, namespace: str | None = None, docs: str | None = None) -> dict[str, str]:
    """The same as objects: the Prometheus operator's PrometheusRule, and ConfigMaps with the label that Grafana's
    sidecar looks for."""

    def metadata(name: str, labels: dict[str, str]) -> dict[str, Any]:
        return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": {**LABELS, **labels}}

    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": metadata("gemini", {}),
            "spec": rules.groups(scrape_seconds, docs),
        }
    ]
    for board in BOARDS:
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata(board.uid, {"grafana_dashboard": "1"}),
                "data": {f"{board.uid}.json": board_json(board, scrape_seconds)},
            }
        )
    return {OBJECTS: "---\n".join(map(_yaml, objects))}


def _yaml(given: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(given, sort_keys=False, width=1000)
    return text
