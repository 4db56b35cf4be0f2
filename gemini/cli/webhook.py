"""The admission webhook: makes sharepods of pods that declare a share, and refuses what could not be kept.

docs/cluster.md has its configuration, what it changes, and what it refuses.
"""

from __future__ import annotations

import argparse
import logging
import sys

from gemini import serving
from gemini.cli.problem import Problem
from scheduler_backend import logs


def configure(parser: argparse.ArgumentParser) -> None:
    from gemini.webhook import app

    app.configure(parser)


def main(args: argparse.Namespace) -> int:
    from gemini.webhook import app

    logs.start(logging.INFO, "gemini: %(levelname)s %(message)s")

    def ready(url: str) -> None:
        print(f"gemini: webhook listens on {url}", file=sys.stderr, flush=True)

    try:
        serving.run(lambda: app.run(args, ready))
    except serving.CannotServe as error:
        raise Problem(str(error), error.status) from None
    return 0
