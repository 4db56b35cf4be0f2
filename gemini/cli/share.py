"""Named shares: they outlive processes, and containers get one by name.

    gemini share add train --request 0.7 --memory 20GiB
    podman run --device gemini.io/share=train IMAGE CMD        (docker's same flag)
    gemini share list
    gemini share remove train

A share is there until it is removed, over restarts of the daemon, which keeps it as a CDI device; all containers of one
share are one tenant. A daemon is started where none answers.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gemini import cdi
from gemini.cli.control import ask, tenant_path
from gemini.cli.node import Node
from gemini.cli.options import add_node, add_shares, card, node_of
from gemini.cli.problem import Problem
from gemini.cli.starting import beyond_cards, register
from gemini.kube import names
from gemini.units import format_share, format_size, parse_memory, resolve_shares

COLUMNS = ("NAME", "REQUEST", "LIMIT", "MEMORY", "CLASS", "GPU", "PROCESSES", "DEVICE")


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="add | list | remove", required=True, dest="command")
    add = commands.add_parser("add", help="make a share")
    add.add_argument("name", metavar="NAME")
    add_shares(add)
    add.add_argument("--memory", metavar="SIZE", help="GPU memory, such as 4GiB; default: the whole card")
    add.add_argument("--gpu", metavar="ID", action="append", default=[], help="UUID or index; may be repeated")
    listed = commands.add_parser("list", aliases=["ls"], help="the shares there are")
    listed.add_argument("--json", action="store_true", help="as the daemon says it")
    remove = commands.add_parser("remove", aliases=["rm"], help="remove shares")
    remove.add_argument("name", metavar="NAME", nargs="+")
    remove.add_argument("--force", action="store_true", help="also those that processes use: these wait from then on")
    for command, carry_out in ((add, make), (listed, show), (remove, drop)):
        add_node(command)
        command.set_defaults(carry_out=carry_out)


def main(args: argparse.Namespace) -> int:
    status: int = args.carry_out(node_of(args), args)
    return status


def make(node: Node, args: argparse.Namespace) -> int:
    request, limit = resolve_shares(args.request, args.limit)
    memory_bytes = parse_memory(args.memory) if args.memory is not None else 0
    node.check_path(args.name)
    spec = {
        "name": args.name, "request": request, "limit": limit, "memory_bytes": memory_bytes,
        "latency": args.service == "latency", "gpus": [card(gpu) for gpu in args.gpu],
        "share": True,
    }  # fmt: skip
    made = register(node, spec, any_machine=node.sim is None)  # the container gets the daemon's own cards
    if (note := beyond_cards(node, memory_bytes, made.get("gpus", []))) is not None:
        print(f"gemini: {note}", file=sys.stderr)
    published = made.get("published")
    if published is None:
        raise Problem(f"the daemon at {node.control} makes no CDI devices; start it with gemini serve")
    if published["problem"] is not None:
        raise Problem(
            f"{args.name} is a share, but no CDI device: {published['problem']}; see --cdi-dir of gemini serve"
        )
    folder = "" if published["where"] in (str(cdi.STANDARD), "/run/cdi", "/etc/cdi") else published["where"]
    spoken = f" --cdi-spec-dir {folder}" if folder else ""
    print(f"podman{spoken} run --device {device(args.name)} IMAGE CMD")
    return 0


def show(node: Node, args: argparse.Namespace) -> int:
    found = shares(node)
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    if not found:
        print("no shares; gemini share add NAME --request 0.3 makes one")
        return 0
    rows = [COLUMNS, *(row(share) for share in found)]
    widths = [max(len(line[i]) for line in rows) for i in range(len(COLUMNS))]
    for line in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return 0


def drop(node: Node, args: argparse.Namespace) -> int:
    there = {share["name"]: share for share in shares(node)}
    status = 0
    for name in args.name:
        try:
            remove(node, name, there, args.force)
        except Problem as problem:
            print(f"gemini: {problem}", file=sys.stderr)
            status = problem.status
    return status


def remove(node: Node, name: str, there: dict[str, Any], force: bool) -> None:
    share = there.get(name)
    if share is None:
        raise Problem(f"there is no share {name!r}; the shares are: {', '.join(there) or 'none'}")
    if share["share"] == "config":
        raise Problem(f"{name} is a tenant of the daemon's config file; take it out there")
    if (used := len(share["clients"])) and not force:
        pids = ", ".join(str(pid) for pid in share["clients"][:8])
        raise Problem(f"{name} is used by {used} process{'es' * (used > 1)} ({pids}); end them, or add --force")
    ask(node, "DELETE", tenant_path(name))


def shares(node: Node) -> list[dict[str, Any]]:
    """The tenants of the daemon's answer that are named shares."""
    return [tenant for tenant in ask(node, "GET", "/state")["tenants"] if tenant.get("share")]


def device(name: str) -> str:
    return f"{names.CDI_KIND}={name}"


def row(share: dict[str, Any]) -> tuple[str, ...]:
    most = share.get("memory_limit_bytes")
    return (
        share["name"],
        format_share(share["request"]),
        format_share(share["limit"]),
        format_size(most) if most else "whole card",
        share["class"],
        ",".join(str(gpu) for gpu in share["gpus"]),
        str(len(share["clients"])),
        device(share["name"]),
    )
