"""The rows of gemini ps, from an answer of the daemon."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.cli.problem import Problem
from gemini.cli.status import headline, summary
from gemini.cli.table import DISPENSABLE, NAMES, cells, chosen, fitting, rows_of, text_of
from tests.gemini.cli.conftest import Place, until

TENANT: dict[str, Any] = {
    "name": "a", "user": "ann", "request": 0.5, "limit": 0.6, "entitled": 0.5, "achieved": 0.499, "launches": 7,
    "wait_ms_p99": 21.04, "memory_bytes": 1 << 30, "memory_limit_bytes": 4 << 30, "clients": [999999998, 2],
    "registered_by": [999999999], "gpus": [0], "enforced": "yes", "class": "batch",
    "beside": True, "duty": 0.45, "missed": 0.021,
}  # fmt: skip
ROW = ["a", "ann", "999999999", "0", "0.5", "0.6", "batch", "50.0 %", "49.9 %", "2.1 %", "45.0 %", "1/4 GiB",
       "21.0 ms", "7", "2", "yes", "-"]  # fmt: skip


def test_a_full_answer_becomes_a_full_row() -> None:
    assert cells(rows_of([TENANT]), NAMES)[1] == ROW


def test_what_the_daemon_does_not_say_is_a_dash() -> None:
    assert cells(rows_of([{"name": "a", "request": 0, "limit": 1}]), NAMES)[1] == [
        "a", "-", "-", "-", "0", "1", *["-"] * 11]  # fmt: skip


def test_a_tenant_on_two_cards_has_a_row_for_each() -> None:
    on = [{"gpu": 0, "entitled": 0.5, "achieved": 0.7, "memory_bytes": 1 << 30},
          {"gpu": 1, "entitled": 0.5, "achieved": 0.1, "memory_bytes": 0}]  # fmt: skip
    tenant = {**TENANT, "gpus": [0, 1], "on_gpus": on}
    lines = cells(rows_of([tenant]), ["NAME", "GPU", "ACHIEVED", "MEMORY"])
    assert lines[1:] == [["a", "0", "70.0 %", "1/4 GiB"], ["a", "1", "10.0 %", "0/4 GiB"]]
    cards = [{"index": 0, "name": "H200"}, {"index": 1, "name": "H200"}]
    assert summary({"devices": cards, "tenants": [tenant]}) == [
        "GPU 0  H200: 0.5 promised, 70.0 % held", "GPU 1  H200: 0.5 promised, 10.0 % held"]  # fmt: skip


def test_a_table_fits_into_80_columns_and_says_whose_tenants_are_where_that_differs() -> None:
    rows = rows_of([{**TENANT, "name": "train-llama-7b", "registered_by": [4194303]}])
    names = fitting(rows, 80)
    assert max(map(len, text_of(cells(rows, names)).splitlines())) <= 80
    assert {"NAME", "REQUEST", "ACHIEVED", "MEMORY", "ENFORCED"} <= set(names)
    assert "USER" not in names
    two = [*rows, *rows_of([{**TENANT, "user": "ben"}])]
    assert "USER" in fitting(two, 80)
    assert max(map(len, text_of(cells(two, fitting(two, 80))).splitlines())) <= 80
    assert fitting(two, 1000) == list(NAMES)
    assert set(DISPENSABLE) < set(NAMES)


def test_how_much_a_host_bound_program_uses_of_what_it_holds_is_shown_where_there_is_one() -> None:
    rows = rows_of([TENANT, {**TENANT, "beside": False, "duty": 0.99}])
    lines = cells(rows, fitting(rows, 150))
    at = lines[0].index("DUTY")
    assert [line[at] for line in lines[1:]] == ["45.0 %", "99.0 %"]
    assert "DUTY" not in fitting(rows[1:], 1000)


def test_what_somebody_missed_is_shown_where_somebody_did() -> None:
    rows = rows_of([TENANT, {**TENANT, "missed": 0.001}])
    lines = cells(rows, fitting(rows, 150))
    at = lines[0].index("MISSED")
    assert [line[at] for line in lines[1:]] == ["2.1 %", "0.1 %"]
    assert "MISSED" not in fitting(rows[1:], 1000)


def test_columns_are_chosen_by_name() -> None:
    assert chosen("name,wait-p99,user") == ["NAME", "WAIT P99", "USER"]
    assert chosen("all") == list(NAMES)
    with pytest.raises(Problem, match="--columns 'name,x': x is no column; there are name,user,"):
        chosen("name,x")


def test_the_headline_says_whether_the_card_is_simulated() -> None:
    device = {"name": "H200", "simulated": True}
    assert headline({"device": device, "utilization": 0.993}) == "H200 (simulated), 99.3 % busy"
    assert headline({}) == "GPU"


def test_ps_and_a_top_that_is_piped_show_whose_process_runs_what(place: Place) -> None:
    process = place.start("run", "--name", "a", "--request", "0.3", "--", "sh", "-c", "echo ready; read x")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    shown = place.gemini("ps", "--columns", "name,pid,command").stdout.splitlines()
    assert shown[1].split() == ["NAME", "PID", "COMMAND"]
    assert shown[2].split(None, 2) == ["a", str(process.pid), "sh -c echo ready; read x"]
    top = place.gemini("top", "--interval", "0.1", "--count", "2")
    assert top.stdout.count("NVIDIA H200 (simulated)\nNAME") == 2
    assert "\x1b" not in top.stdout
    assert max(map(len, top.stdout.splitlines())) <= 80


def test_the_memory_of_a_running_tenant_can_be_changed(place: Place) -> None:
    place.start("run", "--name", "a", "--memory", "1GiB", "--", "sh", "-c", "read x")
    until(lambda: place.gemini("ps").stdout.count("\na "))
    assert place.gemini("set", "a", "--memory", "2GiB").returncode == 0
    assert place.state()["tenants"][0]["memory_limit_bytes"] == 2 << 30
    assert place.gemini("set", "a", "--memory", "all").returncode == 0
    assert place.state()["tenants"][0]["memory_limit_bytes"] == 0
    assert "less than any program needs" in place.gemini("set", "a", "--memory", "8").stderr
