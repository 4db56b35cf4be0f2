"""Run a command as a tenant with a share of the GPU's time and memory.

    gemini run --request 0.3 --memory 4GiB -- python train.py

Starts a daemon when none answers. The exit status is the command's own (128 + N after signal N), 127 where there is no
such command, and 125 when Gemini itself could not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from typing import Any

from gemini.cli import cards, keeper
from gemini.cli.comeback import Comeback
from gemini.cli.detached import Detached
from gemini.cli.node import HOOK, Node, ask, beyond_cards, register, tenant_environment, tenant_path
from gemini.cli.options import add_node, add_shares, node_of
from gemini.cli.problem import Problem
from gemini.cli.supervise import supervise
from gemini.cli.table import percent
from gemini.units import parse_memory, resolve_shares


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gemini run [OPTION]... -- CMD [ARG]..."
    parser.add_argument("--name", metavar="N", help="the tenant's name; processes of one name share what it has")
    add_shares(parser)
    parser.add_argument("--memory", metavar="SIZE", help="GPU memory, such as 4GiB; default: the whole card")
    parser.add_argument(
        "--gpu", metavar="ID", action="append", default=[],
        help="cards by index or beginning of their UUID, as 0,1; all; or any (default): the one with most room",
    )  # fmt: skip
    parser.add_argument("--gpus", metavar="N", type=int, help="so many cards, those with most room")
    parser.add_argument(
        "--detach", action="store_true", help="in the background, also after a logout; gemini logs, gemini wait"
    )
    parser.add_argument("--cpu-bind", metavar="N", type=int, help="run on the N cores nearest to the GPU")
    add_node(parser)
    parser.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER)


def main(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise Problem("no command to run; write it last: gemini run --request 0.3 -- python train.py")
    node = node_of(args)
    spec = asked(args, node, command[0])
    program = shutil.which(command[0])
    if program is None:
        found = os.path.exists(command[0]) and "/" in command[0]
        print_line(
            f"{command[0]}: {'is not executable; chmod +x it' if found else 'no such command; check its name and PATH'}"
        )
        return 126 if found else 127
    from gemini.cli.preload import problem_of

    if (problem := problem_of(HOOK, program)) is not None:
        raise Problem(problem)
    if not args.detach:
        return in_share(args, node, spec, command, program)
    detached = Detached(spec["name"], command, node.state_dir)
    if (told := detached.leave()) is not None:
        return told
    with detached:
        detached.status = in_share(args, node, spec, command, program, detached)
    return detached.status


def asked(args: argparse.Namespace, node: Node, program: str) -> dict[str, Any]:
    """The tenant as it was asked for, or as it is where another program of it joins."""
    request, limit = resolve_shares(args.request, args.limit)
    spec = {
        "name": args.name or own_name(program),
        "request": request,
        "limit": limit,
        "memory_bytes": parse_memory(args.memory) if args.memory is not None else 0,
        "latency": args.service == "latency",
    }
    node.check_path(str(spec["name"]))
    if args.name is not None and args.request is args.limit is args.memory is args.service is None:
        spec.update(share_of(node, args.name))
    return spec


def in_share(
    args: argparse.Namespace,
    node: Node,
    spec: dict[str, Any],
    command: Sequence[str],
    program: str,
    detached: Detached | None = None,
) -> int:
    """Run the command as a tenant that is there as long as it, or what it leaves behind."""
    name, request, memory_bytes = spec["name"], spec["request"], spec["memory_bytes"]
    spec["pid"] = os.getpid()
    tenant, some = placed(node, args, spec, request, memory_bytes)
    visible = [str(gpu) for gpu in tenant.get("gpus", [])] if args.gpu or some else []
    try:
        note = beyond_cards(node, memory_bytes, tenant.get("gpus", []))
        if note is None and memory_bytes:
            note = overbooked(node, tenant["gpus"])
        if note is not None:
            print_line(note)
        if not request and (note := best_effort(node, name)) is not None:
            print_line(note)
        cores = nearest_cores(node, tenant["gpus"], args.cpu_bind) if args.cpu_bind is not None else None
        environment = tenant_environment(node, tenant["socket"], (request, spec["limit"]), memory_bytes, visible)
        comeback = Comeback(node, spec, print_line)
        comeback.start()
        if detached is not None:
            detached.redirect()
        status = supervise(
            command,
            program,
            {**os.environ, **environment},
            cores,
            stuck=lambda: comeback.gone,
            say=print_line,
            begun=None if detached is None else detached.begun,
        )
        keeper.leave(node, spec, tenant["socket"])
        return status
    finally:
        with contextlib.suppress(Problem):
            ask(node, "DELETE", tenant_path(name), timeout=5.0)


def share_of(node: Node, name: str) -> dict[str, Any]:
    """What the tenant of that name has, which another program of it joins; empty: there is none."""
    try:
        tenants = ask(node, "GET", "/state")["tenants"]
    except Problem:  # said when it is registered
        return {}
    for tenant in tenants:
        if tenant["name"] == name:
            return {
                "request": tenant["request"],
                "limit": tenant["limit"],
                "memory_bytes": tenant["memory_limit_bytes"],
                "latency": tenant["class"] == "latency",
            }
    return {}


def own_name(program: str) -> str:
    """The name of a tenant that was given none: its program's and our pid, as far as a name may hold them."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{os.path.basename(program)}-{os.getpid()}")
    return name[-63:].lstrip("-._")


def placed(
    node: Node, args: argparse.Namespace, spec: dict[str, Any], request: float, memory_bytes: int
) -> tuple[Any, bool]:
    """The tenant, registered on the cards that are meant or have room, and whether those are some of several."""
    for last in (False, False, True):  # somebody else may take the room between our look and our word
        state = cards.devices_and_tenants(node)
        uuids = cards.choose(
            state, spec["name"], args.gpu, args.gpus, request, memory_bytes, os.environ.get("CUDA_VISIBLE_DEVICES")
        )
        spec["gpus"] = uuids
        try:
            return register(node, spec), len(state["devices"]) > 1
        except Problem as problem:
            if args.gpu and args.gpu != ["any"] and "does not fit" in str(problem):
                hint = cards.elsewhere(state, uuids, request, memory_bytes)
                raise Problem(f"{problem}{hint}") from None
            if last or "does not fit" not in str(problem):
                raise
    raise AssertionError("unreachable")


def overbooked(node: Node, uuids: Sequence[str]) -> str | None:
    """cards.overbooked, of the daemon that answers."""
    try:
        return cards.overbooked(ask(node, "GET", "/state"), uuids)
    except Problem:
        return None


def best_effort(node: Node, name: str) -> str | None:
    """One line on what a tenant without a request gets beside others that have one; None: there are none."""
    try:
        tenants = {tenant["name"]: tenant for tenant in ask(node, "GET", "/state")["tenants"]}
    except Problem:
        return None
    ours = tenants.get(name)
    if ours is None:
        return None
    if not any(t["request"] and set(t["gpus"]) & set(ours["gpus"]) for t in tenants.values()):
        return None
    if not ours["entitled"]:
        return (
            f"{name} has no --request, and the others are promised all of the GPU: it runs while they have nothing to "
            "do; gemini ps shows them"
        )
    return f"{name} has no --request: it gets {percent(ours['entitled'])} of the GPU while all others are busy"


def print_line(text: str) -> None:
    import sys

    print(f"gemini: {text}", file=sys.stderr)


def nearest_cores(node: Node, gpus: Sequence[str], count: int) -> set[int]:
    """`count` cores that this process may use, those of the GPU's own NUMA node first."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(allowed):
        raise Problem(f"--cpu-bind {count}: give a number of cores from 1 to {len(allowed)}")
    near: set[int] = set()
    if node.sim is None:
        from gemini.cli.nvml import local_cores

        near = local_cores(gpus[0] if gpus else "0")
    return set(sorted(allowed, key=lambda core: (core not in near, core))[:count])
