"""Takes off a Kubernetes cluster what Gemini's parts left there; the chart's hook runs it before `helm uninstall`.

    gemini uninstall cluster   ends the parts, removes what they wrote in the API server; refuses while a card is held
    gemini uninstall node      removes our files from this node
    gemini uninstall wait      until a DaemonSet of `gemini uninstall node` is done on all nodes

docs/uninstalling.md says what each removes, and what stays.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gemini.cli.problem import Problem


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", choices=("cluster", "node", "wait"), help="what is to be taken off, or waited for")
    add("-n", "--namespace", metavar="NAME", default="gemini", help="where the chart is (default: %(default)s)")
    add("--scheduler", metavar="NAME", default="gemini-scheduler", help="our kube-scheduler's (default: %(default)s)")
    add("--daemonsets", metavar="NAMES", default="gemini-uninstall", help="wait: for these (default: %(default)s)")
    add("--seconds", type=_seconds, metavar="S", default=120.0, help="the most to wait (default: %(default)g)")
    add("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else the pod's service account")
    add("--root", type=Path, metavar="DIR", default=Path("/"), help="where the node's files are (default: %(default)s)")
    add(
        "--kubelet-dir", type=_absolute, metavar="DIR", default=Path("/var/lib/kubelet"),
        help="the kubelet's folder (default: %(default)s)",
    )  # fmt: skip
    add("--ready-file", type=Path, metavar="FILE", help="node: make this file when done, and stay until SIGTERM")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no time to wait; give seconds, above 0 and at most 3600")
    return value


def _absolute(text: str) -> Path:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole path; give one such as /var/lib/kubelet")
    return Path(text)


def main(args: argparse.Namespace) -> int:
    if args.what == "node":
        return _node(args)
    from gemini import removal

    async def cluster(client: Any) -> None:
        said = await removal.remove(
            client, args.namespace, (args.scheduler,), args.seconds,
            lambda error: _tell(f"the API server: {error}; it is asked again"),
        )  # fmt: skip
        print("\n".join(said) or "nothing was left")

    async def wait(client: Any) -> None:
        named = [name.strip() for name in args.daemonsets.split(",") if name.strip()]
        many = [await removal.wait_for_nodes(client, args.namespace, name, args.seconds) for name in named]
        print(f"files removed on {sum(many)} nodes")

    asyncio.run(_with_client(args.kubeconfig, cluster if args.what == "cluster" else wait))
    return 0


def _tell(text: str) -> None:
    print("gemini:", " ".join(text.split()), file=sys.stderr, flush=True)


async def _with_client(kubeconfig: str | None, work: Callable[[Any], Awaitable[None]]) -> None:
    from gemini.kube.answer import ApiFault, Refused
    from gemini.kube.client import Client
    from gemini.removal import Held, TimeIsUp

    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        client = await Client.connect(kubeconfig)
    except Exception as error:  # each way of logging in fails in its own way
        where = kubeconfig or "the service account"
        raise Problem(f"{where}: {' '.join(str(error).split())}; give --kubeconfig FILE") from None
    try:
        await work(client)
    except Held as error:
        raise Problem(f"cards are held by {error}; delete those first: nothing was removed") from None
    except TimeIsUp as error:
        raise Problem(f"{error}; look at them, and run it again") from None
    except Refused as error:
        raise Problem(f"the API server refuses: {error}; see kubectl auth can-i --list") from None
    except ApiFault as error:
        raise Problem(f"the API server: {error}; is it up?") from None
    finally:
        await client.close()


def _node(args: argparse.Namespace) -> int:
    from gemini import removal

    if args.ready_file is not None:  # first: a SIGTERM from here on is waited for
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        for path in removal.remove_files(removal.node_files(args.root, args.kubelet_dir)):
            print(f"removed {path}", flush=True)
        if args.ready_file is not None:
            args.ready_file.touch()
    except OSError as error:
        raise Problem(f"{error.filename}: {error.strerror}; remove it by hand, as root of the node") from None
    if args.ready_file is not None:
        signal.sigwait({signal.SIGTERM})
    return 0
