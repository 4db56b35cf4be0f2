"""docs/seeds.md: no promise of the founding documents and no complaint without a test, and every test named there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS.parent / "docs" / "seeds.md"
LAST = {"A": 19, "B": 25, "C": 8, "D": 19, "": 15}  # the complaints have numbers alone
IDS = {f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)}
LEFT_OUT = {"D18"}  # besides parts of A19 and D17
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


MORE = re.compile(r"- ([A-D]?\d+): (.+)")  # what was too much for a cell, below its table


def rows() -> dict[str, str]:
    """id -> what stands in the last column, and of it below the table."""
    found: dict[str, str] = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and re.fullmatch(r"[A-D]?\d+(, [A-D]?\d+)*", cells[0]):
            for one in cells[0].split(", "):
                assert one not in found, f"{one} is there twice"
                found[one] = cells[2]
        if more := MORE.fullmatch(line):
            found[more[1]] += f", {more[2]}"
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test"))


def test_every_promise_and_every_complaint_has_a_row_with_a_test() -> None:
    table = rows()
    assert table.keys() == IDS
    assert {one for one, tests in table.items() if not NAMED.search(tests)} == LEFT_OUT


def test_every_test_that_the_table_names_exists() -> None:
    named = {pair for tests in rows().values() for pair in NAMED.findall(tests)}
    missing = sorted(f"{file}::{name}" for file, name in named if name not in names_in(TESTS / file))
    assert missing == []
