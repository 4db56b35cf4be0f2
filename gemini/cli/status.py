"""What tenants were promised, what they get, and how to change it: gemini ps, gemini top, gemini set."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from gemini.cli.node import Node, ask, tenant_path
from gemini.cli.options import add_node, add_shares, node_of
from gemini.cli.problem import Problem
from gemini.units import format_share, format_size, parse_share

COLUMNS = (
    "NAME",
    "REQUEST",
    "LIMIT",
    "ENTITLED",
    "ACHIEVED",
    "MEMORY",
    "WAIT P99",
    "LAUNCHES",
    "PROCESSES",
    "ENFORCED",
    "GPU",
)

LONGEST_INTERVAL_S = 86400  # of gemini top


def configure(parser: argparse.ArgumentParser) -> None:
    command = parser.prog.rsplit(" ", 1)[-1]
    parser.set_defaults(command=command)
    add_node(parser)
    if command == "ps":
        parser.description = "Tenants with their promised and achieved share, memory and waiting time."
        parser.add_argument("--json", action="store_true", help="the daemon's answer as JSON")
    elif command == "top":
        parser.description = "Tenants, live; ends with Ctrl-C."
        parser.add_argument("--interval", metavar="S", type=float, default=1.0, help="seconds between two looks (1)")
        parser.add_argument("--count", metavar="N", type=int, default=0, help="end after N looks")
    else:
        parser.description = "Change a running tenant's share; it holds from the next grant on."
        parser.add_argument("name", metavar="NAME")
        add_shares(parser)


def main(args: argparse.Namespace) -> int:
    node = node_of(args)
    commands = {"ps": show, "top": watch, "set": change}
    return commands[args.command](node, args)


def show(node: Node, args: argparse.Namespace) -> int:
    state = ask(node, "GET", "/state")
    if args.json:
        print(json.dumps(state, indent=2))
        return 0
    rows = [row(tenant) for tenant in state.get("tenants", [])]
    print(headline(state))
    if not rows:
        print("no tenants; gemini run --request 0.3 -- CMD makes one")
        return 0
    widths = [max(len(line[i]) for line in (COLUMNS, *rows)) for i in range(len(COLUMNS))]
    for line in (COLUMNS, *rows):
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        print("  ".join(cells).rstrip())
    return 0


def headline(state: dict[str, Any]) -> str:
    used = state.get("utilization")
    return name_of(state.get("device") or {}) + ("" if used is None else f", {100 * used:.1f} % busy")


def name_of(device: dict[str, Any]) -> str:
    """A card's name, which says so where it is a simulated one."""
    name = str(device.get("name", "GPU"))
    return f"{name} (simulated)" if device.get("simulated") and "simulated" not in name else name


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def row(tenant: dict[str, Any]) -> tuple[str, ...]:
    """One tenant of the daemon's answer as the cells of COLUMNS; what it does not say is `-`."""
    used, most = tenant.get("memory_bytes"), tenant.get("memory_limit_bytes")
    memory = "-" if used is None else format_size(used) + (f" / {format_size(most)}" if most else "")
    wait = tenant.get("wait_ms_p99")
    clients = tenant.get("clients")
    gpus = tenant.get("gpus")
    return (
        str(tenant.get("name", "?")),
        format_share(tenant.get("request", 0.0)),
        format_share(tenant.get("limit", 1.0)),
        percent(tenant.get("entitled")),
        percent(tenant.get("achieved")),
        memory,
        "-" if wait is None else f"{wait:.1f} ms",
        str(tenant.get("launches", "-")),
        "-" if clients is None else str(len(clients) if isinstance(clients, list) else clients),
        str(tenant.get("enforced", "-")),
        "-" if gpus is None else ",".join(str(gpu) for gpu in gpus),
    )


def fitting(rows: list[tuple[str, ...]], width: int) -> list[int]:
    """The columns that a terminal of so many characters has room for, the dispensable left out first."""
    kept = list(range(len(COLUMNS)))
    for name in ("LAUNCHES", "PROCESSES", "ENTITLED", "WAIT P99", "GPU", "LIMIT"):
        widths = [max(len(line[index]) for line in (COLUMNS, *rows)) for index in kept]
        if sum(widths) + 2 * len(kept) <= width:
            break
        kept.remove(COLUMNS.index(name))
    return kept


def watch(node: Node, args: argparse.Namespace) -> int:
    if not 0 < args.interval <= LONGEST_INTERVAL_S:
        raise Problem(f"--interval {args.interval:g}: give seconds above 0, up to {LONGEST_INTERVAL_S}", status=2)
    if args.count < 0:
        raise Problem(f"--count {args.count}: give a whole number of looks, or leave it out for no end", status=2)
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console(file=sys.stdout)

    def table() -> Table:
        state = ask(node, "GET", "/state")
        shown = Table(title=headline(state), title_justify="left", box=None, header_style="bold", pad_edge=False)
        tenants = state.get("tenants", [])
        rows = [row(tenant) for tenant in tenants]
        kept = fitting(rows, console.width)
        for index in kept:
            shown.add_column(COLUMNS[index], justify="left" if index == 0 else "right", no_wrap=True)
        for tenant, cells in zip(tenants, rows, strict=True):
            holds = bool(tenant.get("holding"))
            shown.add_row(*(cells[index] for index in kept), style="green" if holds else None)
        return shown

    looks = 0
    with Live(table(), console=console, screen=False, auto_refresh=False) as live:
        while args.count == 0 or looks < args.count:
            live.update(table(), refresh=True)
            looks += 1
            if looks != args.count:
                time.sleep(args.interval)
    return 0


def change(node: Node, args: argparse.Namespace) -> int:
    spec: dict[str, Any] = {}
    if args.request is not None:
        spec["request"] = parse_share(args.request, "request")
    if args.limit is not None:
        spec["limit"] = parse_share(args.limit, "limit")
    if args.service is not None:
        spec["latency"] = args.service == "latency"
    if not spec:
        raise Problem("nothing to change; give --request, --limit or --class", status=2)
    if spec.get("request", 0.0) > spec.get("limit", 1.0):
        raise Problem(f"request {args.request} is above limit {args.limit}; lower the request or raise the limit", 2)
    ask(node, "PATCH", tenant_path(args.name), spec)
    return 0
