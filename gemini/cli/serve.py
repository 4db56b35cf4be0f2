"""The node daemon, in the foreground: holds the tenants' sockets and hands the GPU's token out.

SIGTERM ends it cleanly; SIGHUP or a changed file reloads the shares of --config. gemini run starts one by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gemini import cdi
from gemini.cli import nvml
from gemini.cli.node import HOOK, SIM, Node
from gemini.cli.problem import Problem
from gemini.cli.starting import need_driver
from gemini.kube import names
from gemini.plugin.host import Host
from scheduler_backend import config, descriptors, private
from scheduler_backend.devices import Gpu
from scheduler_backend.problem import Problem as DaemonProblem


def configure(parser: argparse.ArgumentParser) -> None:
    config.configure(parser)


def main(args: argparse.Namespace) -> int:
    try:
        settings = config.read_settings(args)
    except DaemonProblem as error:
        raise Problem(str(error), status=2) from None
    check_descriptors()
    node = Node(settings.state_dir, settings.sim)
    node.prepare()
    need_driver(node)
    from scheduler_backend import app

    app.serve(settings, publisher(settings))
    return 0


def check_descriptors() -> None:
    """Problem where so few files may be opened that the daemon would listen to nobody; the event loop ends in several
    lines where they do not even do for it."""
    descriptors.raise_limit()
    if (left := descriptors.left()) < (reserve := descriptors.reserve()):
        raise Problem(
            f"Too many open files: {left} more may be opened, the daemon needs {reserve}; "
            "raise the limit of open files (ulimit -n)"
        )


def publisher(settings: config.Settings) -> cdi.Folder:
    """What makes this daemon's shares known to container runtimes."""
    state_dir = settings.state_dir
    folder = settings.cdi_dir or (cdi.STANDARD if state_dir == config.SYSTEM_STATE_DIR else state_dir / "cdi")
    preload = state_dir / "ld.so.preload"
    try:
        private.replace_file(preload, f"{names.LIBRARY_PATH}\n".encode())
    except OSError as error:
        raise Problem(f"{preload}: {error.strerror}; choose another --state-dir") from None
    if settings.sim is not None:
        place = cdi.Place(HOOK, preload, (SIM, settings.sim))
    else:
        place = cdi.Place(HOOK, preload, nodes=device_nodes)
    return cdi.Folder(folder, state_dir, place.describe)


def device_nodes(gpus: Sequence[Gpu]) -> Sequence[str]:
    minors = (nvml.minor(gpu.uuid) for gpu in gpus)
    return Host().device_nodes(tuple(minor for minor in minors if minor is not None))
