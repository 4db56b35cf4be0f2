"""What gemini top draws on a terminal of some width."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gemini.cli import table
from gemini.cli.node import Node
from gemini.cli.top import HISTORY, LEAST_HISTORY, STEPS, View
from tests.gemini.cli.test_status import TENANT

STATE: dict[str, Any] = {
    "device": {"name": "H200"},
    "tenants": [{**TENANT, "beside": False}, {**TENANT, "name": "b", "beside": False}],
}


class Looks(View):
    """Of a daemon that says STATE, or what is given."""

    def __init__(self, state: dict[str, Any], columns: list[str] | None = None) -> None:
        super().__init__(Node(Path("/nowhere")), columns)
        self.state = state
        for tenant in state["tenants"]:
            self._past[tenant["name"], 0].extend([0.5] * HISTORY)

    def text(self, width: int) -> list[str]:
        console = Console(file=io.StringIO(), width=width)
        console.print(self.drawn(self.state, width))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 137, 200])
def test_no_column_is_cut_and_the_line_of_history_has_room_at_any_width(width: int) -> None:
    lines = Looks(STATE).text(width)
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "…" in line]
    history = lines[2].count(STEPS[4])
    assert LEAST_HISTORY <= history <= HISTORY


def test_columns_that_are_not_shown_take_no_room() -> None:
    rows = table.rows_of(STATE["tenants"])
    names = table.fitting(rows, 1000)
    assert "DUTY" not in names, "no tenant is host-bound"
    width = max(map(len, table.text_of(table.cells(rows, names)).splitlines()))
    view = Looks(STATE)
    assert view.press("h"), "without the line of history"
    assert view.text(width)[1].split() == " ".join(names).split(), "all of them, where exactly that is the width"


def test_what_a_host_bound_tenant_uses_of_what_it_holds_is_drawn() -> None:
    lines = Looks({**STATE, "tenants": [TENANT]}).text(200)
    assert " DUTY " in lines[1]
    assert " 45.0 % " in lines[2]
