"""The recorded runs of bench/results/ as tables on a page of the documentation.

    python -m bench.tables docs/results.md

Each JSON there is what a bench printed (bench/report.py). A section has its question, its command, where it was
measured, then goals against what was measured, what else was claimed, and the figures: a table where several cases have
the same figures, a line each elsewhere. What is too long for a cell stands below its table. A test holds the page
against the files. Measures nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
HEAD = """# Recorded runs

Runs too long for every day, kept as they were printed in `bench/results/` and rendered by
`python -m bench.tables docs/results.md`. [Benches](benches.md) tells what a figure means and how to measure it anew.
"""
CELL_CHARACTERS = 200  # of the longest cell, as tests/docs/readable.py has it
OWN = {"bench", "command", "commit", "machine", "rows", "passed", "note"}  # shown apart from the figures


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    files = sorted(folder.glob("*.json"))
    return "\n".join([HEAD, *(section(path.stem, json.loads(path.read_text())) for path in files)])


def section(name: str, run: dict[str, Any]) -> str:
    """One run."""
    machine = run.get("machine") or {}
    where = ", ".join(
        [f"{machine['cpus']} x {machine['cpu']}", f"Linux {machine['kernel']}", f"Python {machine['python']}"]
        if {"cpus", "cpu", "kernel", "python"} <= set(machine)
        else [f"{key} {value}" for key, value in machine.items()]
    )
    parts = [f"## {name}", run.get("bench", ""), f"`{run.get('command', '')}` at {run.get('commit', '?')}, on {where}."]
    if run.get("note"):
        parts.append(f"Note: {run['note']}.")
    if run.get("rows"):
        columns = ("row", "case", "what", "goal", "measured", "met")
        parts.append(table(columns, [[row.get(column) for column in columns] for row in run["rows"]]))
    claims = {text: held for text, held in run.get("passed", {}).items() if not text.startswith("row ")}
    if claims:
        parts.append(table(("claim", "held"), list(claims.items())))
    parts += figures({key: value for key, value in run.items() if key not in OWN})
    return "\n\n".join(part for part in parts if part) + "\n"


def figures(given: dict[str, Any]) -> list[str]:
    """Blocks of Markdown: what stands alone first, then a table for each group."""
    alone = [(key, value) for key, value in given.items() if not nested(value)]
    blocks = [table(("figure", ""), alone)] if alone else []
    for key, value in given.items():
        if nested(value):
            blocks += [f"**{words(key)}**", *group(value)]
    return blocks


def group(given: dict[str, Any]) -> list[str]:
    """One table with a row for each case where the cases have figures of their own, else a line for each figure."""
    if all(isinstance(case, dict) and not any(map(nested, case.values())) for case in given.values()):
        columns = list(dict.fromkeys(key for case in given.values() for key in case))
        return [
            table(("", *map(words, columns)), [[name, *(case.get(c) for c in columns)] for name, case in given.items()])
        ]
    return figures(given)


def nested(value: object) -> bool:
    return isinstance(value, dict) and bool(value)


def words(key: str) -> str:
    return key.replace("_", " ")


def shown(value: object) -> str:
    """A cell: figures with four digits that count, truth in words."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        if len(value) > 8 and all(isinstance(one, int | float) and not isinstance(one, bool) for one in value):
            ordered = sorted(value)
            least, middle, most = map(shown, (ordered[0], ordered[len(ordered) // 2], ordered[-1]))
            return f"{least} to {most}, median {middle} of {len(value)}"
        return "; ".join(map(shown, value)) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{words(key)} {shown(one)}" for key, one in value.items()) or "none"
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(columns: tuple[str, ...], rows: Any) -> str:
    """Cells that are too long stand below it, by the names of their row and column."""
    lines, below = [columns, ["---"] * len(columns)], []
    for row in rows:
        line = [shown(cell) for cell in row]
        for at, cell in enumerate(row):
            if len(line[at]) > CELL_CHARACTERS:
                name = ", ".join(part for part in (line[0] if at else "", columns[at]) if part)
                below += [f"**{words(name)}**", spread(cell)]
                line[at] = "below"
        lines.append(line)
    return "\n\n".join(["\n".join("| " + " | ".join(line) + " |" for line in lines), *below])


def spread(value: object) -> str:
    """What is too long for a cell: a table of cases with the same figures, else a list of the parts."""
    if isinstance(value, list | tuple) and all(map(nested, value)):
        columns = list(dict.fromkeys(key for case in value for key in case))
        return table(tuple(map(words, columns)), [[case.get(column) for column in columns] for case in value])
    parts = [shown(one) for one in value] if isinstance(value, list | tuple) else shown(value).split("; ")
    return "\n".join(f"- {part}" for part in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="the file to write, such as docs/results.md")
    parser.parse_args().page.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
