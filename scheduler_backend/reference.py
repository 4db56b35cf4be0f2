"""The parts of docs that are made from tables: `python -m scheduler_backend.reference` writes them anew.

Each stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`; a test fails where a page and the tables differ.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from pathlib import Path

from scheduler_backend.config import DAEMON, POLICY
from scheduler_backend.core.policy import MS, ORDERINGS, Policy
from scheduler_backend.core.rows import TRANSITIONS
from scheduler_backend.core.seat import State
from scheduler_backend.metrics import METRICS


def _others(ordering: str) -> str:
    return ", ".join(f"`{name}`" for name in ORDERINGS if name != ordering)


DEFAULTS = {"metrics_host": "127.0.0.1", "trace": "true", "trace_bytes": "256MiB", "log": "warning", "wait": "false"}
MEANINGS = {  # of the constants of the policy
    "ordering": f"who is next: `eevdf` by virtual time; for comparison {_others('eevdf')}",
    "preemption": "`false`: grants run to their end, whoever is owed",
    "window_ns": "over which `achieved` is reported",
    "quota_ns": "of a grant, at most, while others wait",
    "least_quota_ns": "of a grant, at least",
    "alone_quota_ns": "of a grant of a limited tenant that is alone",
    "lease_margin_ns": "a grant is lost so long after its quota, where nothing is heard of its holder",
    "alone_lease_ns": "the same of one who is alone",
    "overrun_ns": "a holder that does not end its work by then is counted as one that overran",
    "ahead": "hand-overs in a row that are decided before the first of them",
    "preempt_after_ns": "that a holder keeps what it woke up for",
    "extend_lead_ns": "before the end of its quota, who would be picked again is prolonged",
    "extend_silent": "prolongations in a row of a holder of whom nothing is heard",
    "alike_ns": "of held time within which quotas that end count as equal, and their tenants take turns",
    "join_least_ns": "that a grant must have left for another process of the tenant to join it",
    "valve_ns": "for which one that waits is let in while another process of its tenant drains",
    "cap_ns": "of work in flight at most, while others wait",
    "cap_short_ns": "the same while one with bursts below `short_burst_ms` is there",
    "cap_prompt_ns": "the same while a latency tenant is there that is to have the card alone",
    "cap_lag_ns": "the same while one that leaves the card idle anyway lags: one launch at a time",
    "cap_latency_ns": "a latency tenant's own",
    "cap_alone_ns": "of one who is alone",
    "short_burst_ns": "bursts below it fit into a quota",
    "company_ns": "within which one who asked or came may come again; the cap grows over it while all others rest",
    "alone_after_ns": "for which all others have rested, before grants end only when another asks",
    "latency_ahead_ns": "that a latency tenant may get ahead of what it is owed",
    "resume_early_ns": "before the end of its rest at a limit, a tenant may be next",
    "alone_stall_ns": "steps in which a limited tenant alone runs and pauses",
    "hop_most_ns": "of the messages' time that is not charged",
    "hop_alone_most_ns": "the same of a limited tenant that is alone",
    "shared": "`false`: all have turns, those that are host-bound too",
    "shared_limits": "`false`: those with a limit have turns; off where NVML does not say what each process uses",
    "measure_every_ns": "after which duties are measured anew while somebody runs beside others",
    "shared_lag_ns": "behind its promise, who runs beside others is favoured",
    "shared_lease_ns": "a grant beside others is lost after so long without a word",
    "cap_shared_ns": "of work in flight of one who runs beside others",
    "recall_ns": "that a refusal of memory waits for what siblings do not use",
}
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
    lines += [f"| `{name}` | {DEFAULTS.get(name, '')} | {text} |" for name, (_, text) in DAEMON.items()]
    defaults = Policy()
    for name, (constant, _) in POLICY.items():
        value = getattr(defaults, constant)
        shown = f"{value / MS:g}" if constant.endswith("_ns") else str(value).lower()
        lines.append(f"| `{name}` | {shown} | {MEANINGS[constant]} |")
    return "\n".join(lines)


def metrics() -> str:
    """The metrics."""
    lines = ["| metric | labels | |", "|---|---|---|"]
    for row in METRICS:
        suffix = "_total" if row.kind.__name__.startswith("Counter") else ""
        lines.append(f"| `{row.name}{suffix}` | {', '.join(row.labels)} | {row.text} |")
    return "\n".join(lines)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "docs/protocol.md": {"transitions": transitions, "metrics": metrics},
    "docs/configuration.md": {"settings": settings},
}


def renew(page: str, text: str) -> str:
    """The page with all parts as the tables have them."""
    for name, make in PAGES[page].items():
        pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.S)
        part = make()
        text, count = pattern.subn(lambda found, part=part: f"{found[1]}{part}\n{found[2]}", text)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"{page} has {count} parts named {name}; it needs one")
    return text


if __name__ == "__main__":
    for page in PAGES:
        Path(page).write_text(renew(page, Path(page).read_text()))
