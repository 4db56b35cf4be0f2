"""Run a command as a tenant with a share of the GPU's time and memory.

    gemini run --request 0.3 --memory 4GiB -- python train.py

Starts a daemon when none answers. The exit status is the command's own (128 + N after signal N), 127 where there is no
such command, and 125 when Gemini itself could not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from gemini.cli import keeper, tenancy
from gemini.cli.comeback import Comeback
from gemini.cli.control import ask, tenant_path
from gemini.cli.detached import Detached
from gemini.cli.node import HOOK, Node
from gemini.cli.options import add_node, add_shares, node_of
from gemini.cli.problem import Problem
from gemini.cli.supervise import supervise
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
        "name": args.name or tenancy.own_name(program),
        "request": request,
        "limit": limit,
        "memory_bytes": parse_memory(args.memory) if args.memory is not None else 0,
        "latency": args.service == "latency",
    }
    node.check_path(str(spec["name"]))
    if args.name is not None and args.request is args.limit is args.memory is args.service is None:
        spec.update(tenancy.share_of(node, args.name))
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
    tenant, some = tenancy.placed(node, spec, args.gpu, args.gpus)
    try:
        for note in tenancy.notes(node, spec, tenant["gpus"]):
            print_line(note)
        cores = nearest_cores(node, tenant["gpus"], args.cpu_bind) if args.cpu_bind is not None else None
        environment = tenancy.environment(node, spec, tenant, bool(args.gpu) or some)
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
            ask(node, "DELETE", tenant_path(spec["name"]), timeout=5.0)


def print_line(text: str) -> None:
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
