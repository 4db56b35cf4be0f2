"""A real Prometheus over the parts that a test runs: Debian's package, a folder in memory, one scrape configuration."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gemini.observability import files, rules
from tests.e2e.api import Object
from tests.e2e.process import Process, free_port, until

Sample = tuple[dict[str, str], float]


class Prometheus:
    """What it knows, by its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _get(self, path: str, **query: object) -> Any:
        asked = urllib.parse.urlencode(query)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{asked}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[Sample]:
        """The samples of an expression now."""
        return [(one["metric"], float(one["value"][1])) for one in self._get("query", query=expr)["result"]]

    def history(self, expr: str, begin: float, end: float, step: float) -> list[tuple[dict[str, str], list[Any]]]:
        """Labels and [(time, value)...] of each series of an expression."""
        found = self._get("query_range", query=expr, start=begin, end=end, step=step)["result"]
        return [(one["metric"], [(at, float(value)) for at, value in one["values"]]) for one in found]

    def rules(self) -> list[Object]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def firing(self) -> dict[str, list[Object]]:
        """The alerts that fire, by name."""
        found: dict[str, list[Object]] = {}
        for alert in self._get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found

    def up(self) -> dict[str, float]:
        return {labels["job"]: value for labels, value in self.query("up")}


@contextlib.contextmanager
def prometheus(
    folder: Path, logs: Path, program: Path, targets: Mapping[str, str], scrape_seconds: float
) -> Iterator[Prometheus]:
    """Scrapes `targets` (job -> URL without a path) so often, with the rules for that. Data goes to `folder`."""
    folder.mkdir()
    (folder / files.RULES).write_text(files.rule_file(scrape_seconds))
    every = f"{round(scrape_seconds * 1000)}ms"
    jobs = [
        {
            "job_name": job,
            "scheme": url.partition("://")[0],
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [url.partition("://")[2]]}],
            "metric_relabel_configs": list(rules.RELABEL),
        }
        for job, url in targets.items()
    ]
    settings = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [files.RULES],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    running = Process("prometheus", command, logs)
    try:
        running.wait_http(f"{url}/-/ready")
        asked = Prometheus(url)
        until(lambda: len(up := asked.up()) == len(targets) and all(up.values()), "every target to answer", 180)
        yield asked
    finally:
        running.stop()
