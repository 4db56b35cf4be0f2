"""The scheduler extender: places sharepods on cards, for an unmodified kube-scheduler that calls it over HTTP.

docs/cluster.md has the KubeSchedulerConfiguration, the rights it needs, and what each verb does.
"""

from __future__ import annotations

import argparse
import logging
import sys

from gemini import serving
from gemini.cli.problem import Problem
from scheduler_backend import logs


def configure(parser: argparse.ArgumentParser) -> None:
    from gemini.extender import app

    app.configure(parser)


def main(args: argparse.Namespace) -> int:
    from gemini.extender import app

    logs.start(logging.INFO, "gemini: %(levelname)s %(message)s")

    def ready(url: str) -> None:
        print(f"gemini: extender listens on {url}", file=sys.stderr, flush=True)

    try:
        serving.run(lambda: app.run(args, ready))
    except serving.CannotServe as error:
        raise Problem(str(error), error.status) from None
    return 0
