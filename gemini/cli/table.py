"""The rows of `gemini ps` and `gemini top`: what each column says, and which of them a line has room for. Pure but for
/proc, which tells what a process was started as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gemini.cli.problem import Problem
from gemini.units import format_share, format_size
from scheduler_backend.logs import printable

Tenant = dict[str, Any]  # of the daemon's answer
Row = tuple[Tenant, dict[str, Any]]  # a tenant on one of its cards; the second is empty where nothing is known of it
GIB, MIB = 1 << 30, 1 << 20
MISSED = 0.005  # from so much on it is shown without being asked for
MOST_COMMAND = 60  # characters of a command


class Column(NamedTuple):
    """One of them. `text`: what stands in it, for --help and the docs."""

    name: str
    cell: Callable[[Tenant, dict[str, Any]], str]
    text: str


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _here(tenant: Tenant, card: dict[str, Any], key: str) -> Any:
    """A value of the tenant on that card, else of the tenant."""
    return card[key] if key in card else tenant.get(key)


def _memory(tenant: Tenant, card: dict[str, Any]) -> str:
    used, most = _here(tenant, card, "memory_bytes"), tenant.get("memory_limit_bytes")
    if used is None:
        return "-"
    if not most:
        return format_size(used)
    size, unit = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
    return f"{used / size:.3g}/{most / size:.3g} {unit}"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"


def _processes(tenant: Tenant, _card: dict[str, Any]) -> str:
    clients = tenant.get("clients")
    return "-" if clients is None else str(len(clients) if isinstance(clients, list) else clients)


def _gpus(tenant: Tenant, card: dict[str, Any]) -> str:
    if "gpu" in card:
        return str(card["gpu"])
    return ",".join(str(gpu) for gpu in tenant["gpus"]) if "gpus" in tenant else "-"


def pid_of(tenant: Tenant) -> int | None:
    """The process that is asked for most: that of `gemini run`, else the first that uses the card."""
    known = [*tenant.get("registered_by", []), *(tenant.get("clients") or [])]
    return known[0] if known else None


def command_of(tenant: Tenant) -> str:
    """What was started under it, as far as this machine tells."""
    pid = pid_of(tenant)
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        if "--" in words and "run" in words[: words.index("--")]:
            words = words[words.index("--") + 1 :]
        text = printable(" ".join(words))
        return text if len(text) <= MOST_COMMAND else text[: MOST_COMMAND - 3] + "..."
    return "-"


COLUMNS = (
    Column("NAME", lambda t, _: str(t.get("name", "?")), "the tenant"),
    Column("USER", lambda t, _: str(t.get("user") or "-"), "whose it is; - of a named share"),
    Column("PID", lambda t, _: str(pid_of(t) or "-"), "process of its gemini run, else of its first program"),
    Column("GPU", _gpus, "card; a tenant on several has a row for each"),
    Column("REQUEST", lambda t, _: format_share(t.get("request", 0.0)), "part of the card's time that is promised"),
    Column("LIMIT", lambda t, _: format_share(t.get("limit", 1.0)), "the most it may take"),
    Column("CLASS", lambda t, _: str(t.get("class", "-")), "latency, or batch"),
    Column("ENTITLED", lambda t, c: percent(_here(t, c, "entitled")), "what it would get now if all were busy always"),
    Column("ACHIEVED", lambda t, c: percent(_here(t, c, "achieved")), "what it did get in the last second"),
    Column("MISSED", lambda t, c: percent(_here(t, c, "missed")),
           "what it did not get of its request while it wanted the card; of its limit, where limits leave that idle"),
    Column("DUTY", lambda t, _: percent(t.get("duty")),
           "part of the time that it holds the card in which its work runs there; below 82 % it runs beside others"),
    Column("MEMORY", _memory, "memory that it holds, of its limit if it has one"),
    Column("WAIT P99", lambda t, c: _milliseconds(_here(t, c, "wait_ms_p99")), "99th percentile of its waits"),
    Column("LAUNCHES", lambda t, c: str(_here(t, c, "launches") or "-"),
           "kernels launched, as its programs said when they last gave the token back; - before that"),
    Column("PROCESSES", _processes, "programs of it that use the card"),
    Column("ENFORCED", lambda t, _: str(t.get("enforced", "-")), "yes, or why that cannot be said"),
    Column("COMMAND", lambda t, _: command_of(t), "what was started"),
)  # fmt: skip
NAMES = tuple(column.name for column in COLUMNS)
# Left out where a line has no room, in this order.
DISPENSABLE = (
    "COMMAND", "CLASS", "DUTY", "LAUNCHES", "PROCESSES", "WAIT P99", "ENTITLED", "PID", "LIMIT", "GPU", "MISSED",
    "USER",
)  # fmt: skip


def chosen(text: str | None) -> list[str] | None:
    """The columns that were asked for; None: those that fit. Raises Problem."""
    if text is None:
        return None
    if text == "all":
        return list(NAMES)
    names = [part.strip().upper().replace("_", " ").replace("-", " ") for part in text.split(",")]
    for name in names:
        if name not in NAMES:
            there = ",".join(one.lower().replace(" ", "-") for one in NAMES)
            raise Problem(f"--columns {text!r}: {name.lower() or 'nothing'} is no column; there are {there}, or all", 2)
    return names


def rows_of(tenants: Sequence[Tenant]) -> list[Row]:
    """A row for each tenant on each of its cards."""
    return [(tenant, card) for tenant in tenants for card in (tenant.get("on_gpus") or [{}])]


def cells(rows: Sequence[Row], names: Sequence[str]) -> list[list[str]]:
    """The lines of a table, its head first."""
    columns = [COLUMNS[NAMES.index(name)] for name in names]
    return [list(names), *([column.cell(*row) for column in columns] for row in rows)]


def fitting(rows: Sequence[Row], width: int) -> list[str]:
    """The columns for which a line of so many characters has room."""
    of_interest = {  # where all are one user's, nobody asks whose; where nobody is host-bound, what they use; and so on
        "MISSED": any((_here(tenant, card, "missed") or 0.0) >= MISSED for tenant, card in rows),
        "USER": len({tenant.get("user") for tenant, _ in rows}) > 1,
        "DUTY": any(tenant.get("beside") for tenant, _ in rows),
    }
    names = [name for name in NAMES if of_interest.get(name, True)]
    lines = cells(rows, names)
    widths = {name: max(len(line[index]) for line in lines) for index, name in enumerate(names)}
    spare = [name for name in DISPENSABLE if name in names]
    for name in spare:
        if sum(widths[one] + 2 for one in names) - 2 <= width:
            break
        names.remove(name)
    return names


def text_of(lines: Sequence[Sequence[str]]) -> str:
    """The table as text: names to the left, figures to the right."""
    left = [name in ("NAME", "USER", "COMMAND") for name in lines[0]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(left))]
    shown = []
    for line in lines:
        parts = [
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(line, widths, left, strict=True)
        ]
        shown.append("  ".join(parts).rstrip())
    return "\n".join(shown)


def explained() -> str:
    """The columns, a line each."""
    return "\n".join(f"  {column.name:<10} {column.text}" for column in COLUMNS)
