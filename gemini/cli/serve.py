"""The node daemon, in the foreground: holds the tenants' sockets and hands the GPU's token out.

SIGTERM ends it cleanly; SIGHUP or a changed file reloads the shares of --config. gemini run starts one by itself.
"""

from __future__ import annotations

import argparse

from gemini.cli.node import Node, need_driver
from scheduler_backend import config


def configure(parser: argparse.ArgumentParser) -> None:
    config.configure(parser)


def main(args: argparse.Namespace) -> int:
    settings = config.read_settings(args)
    node = Node(settings.state_dir, settings.sim)
    node.prepare()
    need_driver(node)
    from scheduler_backend import app

    app.serve(settings)
    return 0
