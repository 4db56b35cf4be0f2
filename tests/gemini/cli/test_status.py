"""The rows of gemini ps, from an answer of the daemon."""

from __future__ import annotations

from gemini.cli.status import COLUMNS, headline, row


def test_a_full_answer_becomes_a_full_row() -> None:
    tenant = {
        "name": "a", "request": 0.5, "limit": 0.6, "entitled": 0.5, "achieved": 0.499, "launches": 7,
        "wait_ms_p99": 21.04, "memory_bytes": 1 << 30, "memory_limit_bytes": 4 << 30, "clients": [1, 2], "gpus": [0],
        "enforced": "yes",
    }  # fmt: skip
    cells = ("a", "0.5", "0.6", "50.0 %", "49.9 %", "1 GiB / 4 GiB", "21.0 ms", "7", "2", "yes", "0")
    assert row(tenant) == cells
    assert len(cells) == len(COLUMNS)


def test_what_the_daemon_does_not_say_is_a_dash() -> None:
    assert row({"name": "a", "request": 0, "limit": 1})[3:] == ("-",) * 8


def test_the_headline_says_whether_the_card_is_simulated() -> None:
    device = {"name": "H200", "simulated": True}
    assert headline({"device": device, "utilization": 0.993}) == "H200 (simulated), 99.3 % busy"
    assert headline({}) == "GPU"
