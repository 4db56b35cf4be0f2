"""The reporter of a Kubernetes node: its cards, links, RDMA adapters and health as a Device object, for the extender.

It also says on the node how much memory its cards have and of which model they are, and which cards other device
plugins gave out, so that none of those is promised again. One runs on each node; docs/cluster.md has the rights it
needs.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import logging
import os
import sys

from gemini.cli.node import SIM
from gemini.cli.problem import Problem
from gemini.kube import names
from scheduler_backend import logs


def configure(parser: argparse.ArgumentParser) -> None:
    from gemini.reporter import options

    options.configure(parser)
    parser.add_argument("--sim", metavar="SPEC", nargs="?", const="", help="the node's cards are simulated ones")


def main(args: argparse.Namespace) -> int:
    from gemini.reporter import app, options

    if args.sim is not None:
        simulate(args.sim)
    logs.start(logging.INFO, "gemini: %(levelname)s %(message)s")

    def ready(node: str) -> None:
        print(f"gemini: reporter has written Device {node}", file=sys.stderr, flush=True)

    try:
        asyncio.run(app.run(args, ready))
    except options.CannotReport as error:
        raise Problem(str(error), error.status) from None
    return 0


def simulate(machine: str) -> None:
    """Loads the simulated NVML of `machine`: who asks the loader for that library later gets this one."""
    os.environ[names.ENV_SIM] = machine
    library = SIM / "libnvidia-ml.so.1"
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Problem(f"{library}: {error}; make build") from None
