"""The device plugin of a node: gives sharepods their cards' slots, the library and their socket, and tells the daemon.

Runs beside `gemini serve` on each node with GPUs, and needs the kubelet's folder of device plugins, the daemon's state
directory, and the right to read and annotate the node's pods. docs/cluster.md has all of it.
"""

from __future__ import annotations

import argparse
import logging
import sys

from gemini import serving
from gemini.cli.problem import Problem
from scheduler_backend import logs


def configure(parser: argparse.ArgumentParser) -> None:
    from gemini.plugin import app

    app.configure(parser)


def main(args: argparse.Namespace) -> int:
    from gemini.plugin import app

    logs.start(logging.INFO, "gemini: %(levelname)s %(message)s")

    def ready(resource: str) -> None:
        print(f"gemini: device plugin serves {resource}", file=sys.stderr, flush=True)

    try:
        serving.run(lambda: app.run(args, ready))
    except serving.CannotServe as error:
        raise Problem(str(error), error.status) from None
    return 0
