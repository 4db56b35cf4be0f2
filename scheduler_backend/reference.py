"""The parts of docs/protocol.md that are made from tables: `python -m scheduler_backend.reference docs/protocol.md`.

Each stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`; a test fails where the page and the tables differ.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path

from scheduler_backend.config import DAEMON, POLICY
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.rows import TRANSITIONS
from scheduler_backend.core.seat import State
from scheduler_backend.metrics import METRICS

ROWS = Path(__file__).parent / "core" / "rows.py"


@functools.cache
def _docstrings() -> dict[str, str]:
    """What each row does, from the source: what is compiled of it has no docstrings."""
    methods = (node for node in ast.walk(ast.parse(ROWS.read_text())) if isinstance(node, ast.FunctionDef))
    return {method.name: " ".join((ast.get_docstring(method) or "").split()) for method in methods}


def said(run: Callable[..., None]) -> str:
    """What this row of TRANSITIONS does."""
    return _docstrings()[run.__name__]


def transitions() -> str:
    """The token machine's states and moves, as a diagram and a table."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, kind), row in TRANSITIONS.items():
        for target in row.to:
            if target is not state:
                arrows.setdefault((state, target), []).append(kind.__name__)
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> idle"]
    lines += [f"    {one.value} --> {two.value}: {', '.join(kinds)}" for (one, two), kinds in arrows.items()]
    lines += ["```", "", "| while | comes | then | and it is |", "|---|---|---|---|"]
    lines += [
        f"| {state.value} | {kind.__name__} | {said(row.run)} | {' or '.join(target.value for target in row.to)} |"
        for (state, kind), row in TRANSITIONS.items()
    ]
    return "\n".join(lines)


def settings() -> str:
    """The options of the config file."""
    lines = ["| option | default | |", "|---|---|---|"]
    lines += [f"| `{name}` | | {text} |" for name, (_, text) in DAEMON.items()]
    defaults = Policy()
    for name, (constant, _) in POLICY.items():
        value = getattr(defaults, constant)
        shown = f"{value / MS:g}" if constant.endswith("_ns") else str(value).lower()
        lines.append(f"| `{name}` | {shown} | policy |")
    return "\n".join(lines)


def metrics() -> str:
    """The metrics."""
    lines = ["| metric | labels | |", "|---|---|---|"]
    for row in METRICS:
        suffix = "_total" if row.kind.__name__.startswith("Counter") else ""
        lines.append(f"| `{row.name}{suffix}` | {', '.join(row.labels)} | {row.text} |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[], str]] = {"transitions": transitions, "settings": settings, "metrics": metrics}


def renew(text: str) -> str:
    """The page with all parts as the tables have them."""
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.S)
        part = make()
        text, count = pattern.subn(lambda found, part=part: f"{found[1]}{part}\n{found[2]}", text)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"the page has {count} parts named {name}; it needs one")
    return text


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(renew(page.read_text()))
