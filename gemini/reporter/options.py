"""The reporter's options: what they are called, what they may be, and what follows from them."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from gemini.kube.kubelet_api import PLUGIN_FOLDER, POD_RESOURCES_SOCKET
from gemini.reporter import sysfs
from gemini.reporter.health import IGNORED_XIDS, SECOND
from scheduler_backend.config import folder

CHECKPOINT = f"{PLUGIN_FOLDER}/kubelet_internal_checkpoint"
LOOK_SECONDS = 10.0


class CannotReport(ValueError):
    """No way to log in; one line. `status` is the exit status."""

    status = 1


class WrongUse(CannotReport):
    """An option that can be used nowhere."""

    status = 2


@dataclass(frozen=True)
class Settings:
    node: str
    ignored_xids: frozenset[int] = IGNORED_XIDS
    recover_ns: int | None = 300 * SECOND
    slots: int | None = None
    claims: bool = True
    look_seconds: float = LOOK_SECONDS
    sys: Path = sysfs.SYS
    checkpoint: Path = Path(CHECKPOINT)
    pod_resources: Path = Path(POD_RESOURCES_SOCKET)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else the pod's service account")
    parser.add_argument("--node", metavar="NAME", help="this node's name (default: $NODE_NAME, else the host's name)")
    parser.add_argument(
        "--slots", type=int, metavar="N", help="the most tenants that may share a card (default: no bound)"
    )
    parser.add_argument(
        "--no-claims", action="store_true", help="publish no ResourceSlice: cards are for annotated pods alone"
    )
    parser.add_argument(
        "--ignore-xids", metavar="LIST", default=",".join(map(str, sorted(IGNORED_XIDS))),
        help="Xids that do not take a card out of service; 'all': none does (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--recover-seconds", type=float, metavar="S", default=300.0,
        help="a card without another Xid for so long, and which answers, is back in service; 0: never (default: 300)",
    )  # fmt: skip
    parser.add_argument(
        "--look-seconds", type=float, metavar="S", default=LOOK_SECONDS,
        help="how often cards and adapters are looked at (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", default=Path(CHECKPOINT),
        help="the kubelet's record of devices (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--pod-resources", type=Path, metavar="SOCKET", default=Path(POD_RESOURCES_SOCKET),
        help="the kubelet's PodResources (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sys", type=folder, metavar="DIR", default=sysfs.SYS, help="where sysfs is mounted (default: %(default)s)"
    )


def settings_of(args: argparse.Namespace) -> Settings:
    """Raises WrongUse."""
    node = args.node or os.environ.get("NODE_NAME") or socket.gethostname()
    if args.slots is not None and args.slots < 1:
        raise WrongUse(f"--slots: {args.slots} tenants of a card make no sense; give 1 or more")
    if args.look_seconds < 0.1 or not args.look_seconds < float("inf"):
        raise WrongUse(f"--look-seconds: {args.look_seconds:g} is no time to wait; give 0.1 or more")
    if not 0 <= args.recover_seconds < float("inf"):
        raise WrongUse(f"--recover-seconds: {args.recover_seconds:g} is no time to wait; give 0 or more")
    words = [word.strip() for word in args.ignore_xids.split(",") if word.strip()]
    for word in words:
        if not (word.isdecimal() or word == "all"):
            raise WrongUse(f"--ignore-xids: {word!r} is no Xid; give numbers with commas, such as 13,31, or 'all'")
    ignored = frozenset(range(1024)) if "all" in words else frozenset(map(int, words))
    recover = round(args.recover_seconds * SECOND) or None
    return Settings(
        node, ignored, recover, args.slots, not args.no_claims, args.look_seconds, args.sys, args.checkpoint,
        args.pod_resources,
    )  # fmt: skip
