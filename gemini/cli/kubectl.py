"""kubectl gemini [NODE]: nodes and cards of a cluster, who holds them, how fragmented they are, who waits and why.
kubectl gemini check: whether namespaces of tenants are kept from what goes round a share; exit status 1 where not.
kubectl gemini defrag --plan: which evictions free a whole card; --apply: evicts, within PodDisruptionBudgets.
kubectl gemini resize POD [--request R] [--limit L] [--memory SIZE]: another share for a pod that runs.

`kubectl-gemini` on PATH makes it a plugin of kubectl; `gemini kubectl` is the same. Reads Nodes, Device objects, Pods,
Resizes and Events of the API server with the kubeconfig's credentials. All but `defrag --apply` and `resize` changes
nothing; the extender may be out of reach.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gemini.cli.problem import Problem
from gemini.kube import names

CHECK, DEFRAG, RESIZE = "check", "defrag", "resize"
OF_RESIZE = ("request", "limit", "memory", "pod")
DEFAULT_CONFIG = Path(os.path.expanduser("~/.kube/config"))  # which, unlike Path.home(), needs no home


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "node",
        nargs="?",
        metavar="NODE|check|defrag|resize",
        help="each card of this node, and who holds it; check: whether namespaces are kept from what goes round a "
        "share; defrag: which evictions free a whole card; resize: another share for a pod that runs",
    )
    parser.add_argument("pod", nargs="?", metavar="POD", help="resize: of this name, in --namespace")
    parser.add_argument("--request", metavar="R", help="resize: the promised part of each card's time, such as 0.3")
    parser.add_argument("--limit", metavar="L", help="resize: the most of it")
    parser.add_argument("--memory", metavar="SIZE", help="resize: memory of each card, such as 12Gi")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--plan", action="store_true", help="defrag: only say what would be evicted (the default)")
    steps.add_argument("--apply", action="store_true", help="defrag: evict, as far as budgets let it")
    parser.add_argument(
        "-o", "--output", choices=("table", "wide", "json"), default="table",
        help="wide: the cards of every node; json: all that is known",
    )  # fmt: skip
    parser.add_argument(
        "-n", "--namespace", metavar="NAME",
        help="only pods of this namespace that wait; for check, this one alone; for resize, the pod's",
    )  # fmt: skip
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, else ~/.kube/config")
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    parser.add_argument(
        "--device-types", default=",".join(sorted(names.DEVICE_TYPES)), metavar="NAMES",
        help="types of devices besides gpu, as the extender has them (default: %(default)s)",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    if (args.plan or args.apply) and args.node != DEFRAG:
        said = "--apply" if args.apply else "--plan"
        raise Problem(f"{said} is of defrag alone; write kubectl gemini defrag {said}")
    for option in OF_RESIZE:
        if getattr(args, option) is not None and args.node != RESIZE:
            word = args.pod if option == "pod" else f"--{option}"
            raise Problem(f"{word} is of resize alone; write kubectl gemini resize POD --request 0.3")
    if args.node == RESIZE:
        return _resize(args)
    if args.node == CHECK:
        return _check(args)
    if args.node == DEFRAG:
        return _defrag(args)
    from gemini.cli import kubectl_view
    from gemini.extender.state import Cluster

    cluster = Cluster(types=_types(args))
    events = asyncio.run(_read(args, cluster))
    if args.node is not None and args.node not in cluster.nodes:
        few = ", ".join(sorted(cluster.nodes)[:8])
        raise Problem(f"there is no node {args.node}; there are {few or 'none'}")
    given = kubectl_view.picture(cluster, events, args.node, args.namespace)
    if args.output == "json":
        print(json.dumps(given, indent=1))
        return 0
    if not given["nodes"]:
        where = f"node {args.node}" if args.node else "no node"
        missing = "has no Device object" if args.node else "has a Device object"
        print(f"gemini: {where} {missing}; does the reporter (gemini reporter) run there?", file=sys.stderr)
    print(kubectl_view.tables(given, cards=args.node is not None or args.output == "wide"), end="")
    return 0


def _check(args: argparse.Namespace) -> int:
    from gemini.cli import kubectl_check
    from gemini.cli.check import FAIL
    from scheduler_backend.logs import printable

    lines = asyncio.run(_with_client(args, lambda client: kubectl_check.report(client, args.namespace)))
    for verdict, text in lines:
        print(f"{verdict}  {printable(text)}")
    return int(any(verdict == FAIL for verdict, _ in lines))


def _defrag(args: argparse.Namespace) -> int:
    from gemini.cli import kubectl_defrag
    from gemini.extender import defrag
    from gemini.extender.kinds import KINDS, POD
    from gemini.extender.state import Cluster

    async def work(client: Any) -> int:
        cluster, pods = Cluster(types=_types(args)), {}
        for kind in KINDS:
            listed = await _listed(client, kind)
            cluster.replace(kind, listed)
            if kind == POD:
                pods = {one["metadata"]["uid"]: one for one in listed}
        plan = defrag.plan(cluster, pods)
        if not args.apply:
            print("\n".join(kubectl_defrag.lines(plan)))
            return 0
        failed = 0
        async for done, line in kubectl_defrag.carried_out(client, plan):
            print(line, flush=True)
            failed += not done
        if not plan.freed:
            print("\n".join(kubectl_defrag.lines(plan)))
        return int(failed > 0)

    return int(asyncio.run(_with_client(args, work)))


def _resize(args: argparse.Namespace) -> int:
    from gemini.cli import kubectl_resize

    if args.pod is None:
        raise Problem("resize of which pod? write kubectl gemini resize POD --request 0.3")

    said = kubectl_resize.said_by(args)

    async def work(client: Any) -> None:
        async for line in kubectl_resize.carried_out(client, said, args.namespace or _namespace(args), args.pod):
            print(line, flush=True)

    asyncio.run(_with_client(args, work))
    return 0


def _namespace(args: argparse.Namespace) -> str:
    """That of the kubeconfig's context."""
    from importlib import import_module

    config: Any = import_module("kubernetes.aio.config")
    contexts, active = config.list_kube_config_contexts(config_file=_config(args))
    for one in contexts:
        if one["name"] == args.context:
            active = one
    return str((active or {}).get("context", {}).get("namespace") or "default")


def _config(args: argparse.Namespace) -> str:
    return args.kubeconfig or os.environ.get("KUBECONFIG") or str(DEFAULT_CONFIG)


async def _with_client(args: argparse.Namespace, work: Callable[[Any], Awaitable[Any]]) -> Any:
    from gemini.kube.answer import ApiFault, Refused
    from gemini.kube.client import Client

    config = _config(args)
    try:
        client = await Client.connect(config, args.context)
    except Exception as error:  # each way of logging in fails in its own way
        raise Problem(f"{config}: {' '.join(str(error).split())}; give --kubeconfig FILE") from None
    try:
        return await work(client)
    except Refused as error:
        raise Problem(f"the API server refuses: {error}; see kubectl auth can-i --list") from None
    except ApiFault as error:
        raise Problem(f"the API server: {error}; is it up, and does {config} name the right one?") from None
    finally:
        await client.close()


async def _read(args: argparse.Namespace, cluster: Any) -> list[dict[str, Any]]:
    """Fills the cluster; the events that say of a share that it is not enforced."""
    from gemini.extender.kinds import BUDGET, KINDS

    async def read(client: Any) -> Any:
        for kind in KINDS:
            if kind == BUDGET:  # of no interest here
                continue
            cluster.replace(kind, await _listed(client, kind))
        return await client.get("/api/v1/events", fieldSelector=f"reason={names.NOT_ENFORCED}")

    found = await _with_client(args, read)
    items = found.get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


async def _listed(client: Any, kind: str) -> list[dict[str, Any]]:
    """All objects of a kind; none where the API server does not know it. Raises Problem where it knows no Devices."""
    from gemini.extender.kinds import DEVICE, RESIZE
    from gemini.kube.answer import ApiFault, Refused, is_unknown

    try:
        listed: list[dict[str, Any]] = (await client.all_of(kind))[0]
    except ApiFault as error:
        forbidden = isinstance(error, Refused) and error.status == 403
        if not is_unknown(error) and not (forbidden and kind == RESIZE):
            raise
        if kind == DEVICE:
            raise Problem(
                "the cluster knows no Device objects; apply deploy/kustomize/base, then start the reporter"
            ) from None
        return []
    return listed


def _types(args: argparse.Namespace) -> frozenset[str]:
    return frozenset(name.strip() for name in args.device_types.split(",") if name.strip())


def command() -> int:
    """The program kubectl-gemini."""
    from gemini.cli.main import main as gemini

    return gemini(["kubectl", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(command())
