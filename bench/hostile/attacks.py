"""THE table of attacks: the run, `--list`, the page docs/attacks.md and the short test come from it."""

from __future__ import annotations

from bench.hostile import machine, many, orders, pages, rights, web, wishes, words, zmtp
from bench.hostile.table import Attack

MODULES = (zmtp, words, wishes, pages, rights, web, orders, many, machine)
ATTACKS: dict[str, Attack] = {one.name: one for module in MODULES for one in module.ATTACKS}


def listing() -> str:
    """The table as a Markdown one."""
    rows = [f"| `{one.name}` | {one.who} | {one.what} |" for one in ATTACKS.values()]
    return "\n".join(["| attack | who can do it | what it does |", "|---|---|---|", *rows]) + "\n"
