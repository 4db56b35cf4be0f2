"""Alert rules for Prometheus and dashboards for Grafana, written as files.

    gemini dashboards --out DIR [--scrape-interval S] [--kubernetes]

Prometheus reads DIR/gemini.rules.yaml as one of its rule_files; Grafana imports DIR/*.json, or is provisioned with the
folder. With --kubernetes they come as objects instead, in DIR/gemini-observability.yaml: a PrometheusRule of the
Prometheus operator, and a ConfigMap for each dashboard with the label that Grafana's sidecar looks for.
"""

from __future__ import annotations

import argparse
import re

from gemini.cli.problem import Problem
from scheduler_backend.config import folder

URL = re.compile(r"(https?|file)://[^\s#?]+")
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # an RFC 1123 label


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", metavar="DIR", type=folder, required=True, help="where the files go; made if need be")
    add(
        "--scrape-interval", metavar="S", type=float, default=15.0,
        help="how often your Prometheus scrapes, in seconds: rates and waiting times follow from it (15)",
    )  # fmt: skip
    add(
        "--kubernetes",
        action="store_true",
        help="as objects to apply, for the Prometheus operator and Grafana's sidecar",
    )
    add("--docs", metavar="URL", help="where your site of `make docs` is: each alert then has a runbook_url in there")
    add("--namespace", metavar="NAME", help="(--kubernetes) where the objects belong (default: where they are applied)")


def main(args: argparse.Namespace) -> int:
    if not 0.1 <= args.scrape_interval <= 300:
        raise Problem(f"--scrape-interval {args.scrape_interval:g}: give seconds from 0.1 to 300", 2)
    if args.namespace is not None and not NAMESPACE.fullmatch(args.namespace):
        raise Problem(f"--namespace {args.namespace!r} is no namespace; use small letters, digits and -", 2)
    if args.namespace is not None and not args.kubernetes:
        raise Problem(f"--namespace {args.namespace} is of objects; add --kubernetes, or leave it out", 2)
    if args.docs is not None and not URL.fullmatch(args.docs):
        raise Problem(f"--docs {args.docs!r} is no address; write it such as https://docs.example.com/gemini", 2)
    from gemini.observability import files

    if args.kubernetes:
        made = files.kubernetes(args.scrape_interval, args.namespace, args.docs)
    else:
        made = files.plain(args.scrape_interval, args.docs)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (args.out / name).write_text(text)
    except OSError as error:
        raise Problem(f"--out {args.out}: {error.strerror}; name a folder that can be written") from None
    for name in made:
        print(args.out / name)
    return 0
