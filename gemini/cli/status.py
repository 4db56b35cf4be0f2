"""What tenants were promised, what they get, and how to change it: gemini ps, gemini set."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from typing import Any

from gemini.cli import table
from gemini.cli.control import ask, tenant_path
from gemini.cli.node import Node
from gemini.cli.options import add_node, add_shares, node_of
from gemini.cli.problem import Problem
from gemini.cli.table import percent
from gemini.units import format_share, parse_memory, parse_share

PLAIN_WIDTH = 80


def configure(parser: argparse.ArgumentParser) -> None:
    command = parser.prog.rsplit(" ", 1)[-1]
    parser.set_defaults(command=command)
    add_node(parser)
    if command == "ps":
        parser.description = "Tenants with their promised and achieved share, memory and waiting time."
        parser.add_argument("--json", action="store_true", help="the daemon's answer as JSON")
        add_columns(parser)
    else:
        parser.description = "Change a running tenant's share; it holds from the next grant on."
        parser.add_argument("name", metavar="NAME")
        add_shares(parser)
        parser.add_argument("--memory", metavar="SIZE", help="GPU memory, such as 4GiB; all: the whole card")


def add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", metavar="A,B", help="these columns, or all; without it those that fit")
    parser.epilog = "columns:\n" + table.explained()


def main(args: argparse.Namespace) -> int:
    node = node_of(args)
    return {"ps": show, "set": change}[args.command](node, args)


def show(node: Node, args: argparse.Namespace) -> int:
    wanted = table.chosen(args.columns)
    state = ask(node, "GET", "/state")
    if args.json:
        print(json.dumps(state, indent=2))
        return 0
    rows = of_card(state, None)
    print("\n".join(summary(state)))
    if not rows:
        print("no tenants; gemini run --request 0.3 -- CMD makes one")
        return 0
    print(table.text_of(table.cells(rows, wanted or table.fitting(rows, width_of(sys.stdout)))))
    return 0


def width_of(stream: Any) -> int:
    """Characters of a line there; PLAIN_WIDTH where that is no terminal."""
    told = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if told else PLAIN_WIDTH


def headline(state: dict[str, Any]) -> str:
    used = state.get("utilization")
    return name_of(state.get("device") or {}) + ("" if used is None else f", {100 * used:.1f} % busy")


def name_of(device: dict[str, Any]) -> str:
    """A card's name, which says so where it is a simulated one."""
    name = str(device.get("name", "GPU"))
    return f"{name} (simulated)" if device.get("simulated") and "simulated" not in name else name


def summary(state: dict[str, Any]) -> list[str]:
    """A line for each card: what it is, what of it is promised, what is held."""
    cards = state.get("devices") or []
    if len(cards) < 2:
        return [headline(state)]
    lines = []
    for card in cards:
        there = [tenant for tenant in state.get("tenants", []) if card["index"] in tenant.get("gpus", [])]
        held = [one for tenant in there for one in tenant.get("on_gpus", []) if one["gpu"] == card["index"]]
        lines.append(
            f"GPU {card['index']}  {name_of(card)}: {format_share(sum(one['request'] for one in there))} promised, "
            f"{percent(sum(one['achieved'] for one in held))} held"
        )
    return lines


def of_card(state: dict[str, Any], number: int | None) -> list[table.Row]:
    """The rows, of one card or of all."""
    rows = table.rows_of(state.get("tenants", []))
    return rows if number is None else [row for row in rows if row[1].get("gpu", number) == number]


def change(node: Node, args: argparse.Namespace) -> int:
    spec: dict[str, Any] = {}
    if args.request is not None:
        spec["request"] = parse_share(args.request, "request")
    if args.limit is not None:
        spec["limit"] = parse_share(args.limit, "limit")
    if args.memory is not None:
        spec["memory_bytes"] = 0 if args.memory == "all" else parse_memory(args.memory)
    if args.service is not None:
        spec["latency"] = args.service == "latency"
    if not spec:
        raise Problem("nothing to change; give --request, --limit, --memory or --class", status=2)
    if spec.get("request", 0.0) > spec.get("limit", 1.0):
        raise Problem(f"request {args.request} is above limit {args.limit}; lower the request or raise the limit", 2)
    ask(node, "PATCH", tenant_path(args.name), spec)
    return 0
