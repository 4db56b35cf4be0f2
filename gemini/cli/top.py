"""gemini top: the rows of gemini ps, live. On a terminal with keys and a line of history for each row; elsewhere plain
text, one table after another."""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from gemini.cli import table
from gemini.cli.control import ask
from gemini.cli.keys import TEXT, Keys
from gemini.cli.node import Node
from gemini.cli.options import add_node, node_of
from gemini.cli.problem import Problem
from gemini.cli.status import add_columns, of_card, summary, width_of

if TYPE_CHECKING:
    from rich.console import RenderableType

SORTS = ("NAME", "ACHIEVED", "REQUEST", "MEMORY", "USER")
STEPS = "▁▂▃▄▅▆▇█"
HISTORY, LEAST_HISTORY = 24, 8  # looks
LONGEST_INTERVAL_S = 86400


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = f"Tenants, live. {TEXT}"
    add_node(parser)
    parser.add_argument("--interval", metavar="S", type=float, default=1.0, help="seconds between two looks (1)")
    parser.add_argument("--count", metavar="N", type=int, default=0, help="end after N looks")
    add_columns(parser)


def main(args: argparse.Namespace) -> int:
    if not 0 < args.interval <= LONGEST_INTERVAL_S:
        raise Problem(f"--interval {args.interval:g}: give seconds above 0, up to {LONGEST_INTERVAL_S}", status=2)
    if args.count < 0:
        raise Problem(f"--count {args.count}: give a whole number of looks, or leave it out for no end", status=2)
    view = View(node_of(args), table.chosen(args.columns))
    return live(view, args) if sys.stdout.isatty() else plain(view, args)


def plain(view: View, args: argparse.Namespace) -> int:
    looks = 0
    while args.count == 0 or looks < args.count:
        if looks:
            time.sleep(args.interval)
            print()
        state = view.look()
        print("\n".join(summary(state)))
        lines, _ = view.lines(state, width_of(sys.stdout))
        print(table.text_of(lines), flush=True)
        looks += 1
    return 0


def live(view: View, args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout)
    looks = 0
    with Keys() as keys, Live(console=console, screen=False, auto_refresh=False) as shown:
        while args.count == 0 or looks < args.count:
            state = view.look()
            shown.update(view.drawn(state, console.width), refresh=True)
            looks += 1
            if looks == args.count:
                break
            end = time.monotonic() + args.interval
            while (left := end - time.monotonic()) > 0:
                key = keys.wait(left)
                if key in ("q", "Q"):
                    return 0
                if key and view.press(key):
                    shown.update(view.drawn(state, console.width), refresh=True)
    return 0


class View:
    """What is shown of the daemon's answers."""

    def __init__(self, node: Node, columns: list[str] | None) -> None:
        self._node, self._columns = node, columns
        self._card: int | None = None
        self._sort = 0
        self._past: dict[tuple[str, int], deque[float]] = defaultdict(lambda: deque(maxlen=HISTORY))
        self._history = True

    def look(self) -> dict[str, Any]:
        state: dict[str, Any] = ask(self._node, "GET", "/state")
        for tenant, card in table.rows_of(state.get("tenants", [])):
            self._past[tenant["name"], card.get("gpu", 0)].append(card.get("achieved", tenant.get("achieved")) or 0.0)
        return state

    def press(self, key: str) -> bool:
        """What a key does. Whether it is one."""
        if key in ("s", "S"):
            self._sort = (self._sort + 1) % len(SORTS)
        elif key.isascii() and key.isdecimal():
            self._card = int(key)
        elif key in ("a", "A"):
            self._card = None
        elif key in ("h", "H"):
            self._history = not self._history
        else:
            return False
        return True

    def rows(self, state: dict[str, Any]) -> list[table.Row]:
        by = SORTS[self._sort]
        keys: dict[str, Any] = {
            "NAME": lambda row: row[0]["name"],
            "USER": lambda row: row[0].get("user") or "",
            "REQUEST": lambda row: -row[0].get("request", 0.0),
            "ACHIEVED": lambda row: -(row[1].get("achieved", row[0].get("achieved")) or 0.0),
            "MEMORY": lambda row: -(row[1].get("memory_bytes", row[0].get("memory_bytes")) or 0),
        }
        found = of_card(state, self._card)
        return found if self._sort == 0 else sorted(found, key=keys[by])

    def lines(self, state: dict[str, Any], width: int) -> tuple[list[list[str]], list[table.Row]]:
        rows = self.rows(state)
        return table.cells(rows, self._columns or table.fitting(rows, width)), rows

    def drawn(self, state: dict[str, Any], width: int) -> RenderableType:
        """As rich draws it; who holds a card is green."""
        from rich.table import Table
        from rich.text import Text

        title = summary(state)
        if self._sort:
            title[-1] += f" (by {SORTS[self._sort]})"
        (head, *lines), rows = self.lines(state, width - (LEAST_HISTORY + 2 if self._history else 0))
        drawn = Table(title=Text("\n".join(title)), title_justify="left", box=None, header_style="bold", pad_edge=False)
        for name in head:
            justify: Any = "left" if name in ("NAME", "USER", "COMMAND") else "right"
            drawn.add_column(name, justify=justify, no_wrap=True)
        used = sum(max(map(len, column)) + 2 for column in zip(head, *lines, strict=True))
        room = min(HISTORY, width - used) if self._history else 0
        if room < LEAST_HISTORY:
            room = 0
        if room:
            drawn.add_column("", no_wrap=True)
        for line, (tenant, card) in zip(lines, rows, strict=True):
            past = list(self._past[tenant["name"], card.get("gpu", 0)])[-room:] if room else None
            holds = bool(card.get("holding", tenant.get("holding")))
            more = [] if past is None else ["".join(STEPS[min(7, int(part * 8))] for part in past)]
            drawn.add_row(*line, *more, style="green" if holds else None)
        return drawn
