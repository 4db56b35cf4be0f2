"""Recorded runs become tables; the page in docs/ says what the files say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench import tables

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_in_step_with_the_recorded_runs() -> None:
    """What was recorded since the page was written last comes with the next writing of it."""
    _, *told = re.split(r"^(?=## )", (ROOT / "docs/results.md").read_text(), flags=re.M)
    assert told
    for section in told:
        name = section.splitlines()[0].removeprefix("## ")
        run = json.loads((tables.RESULTS / f"{name}.json").read_text())
        assert section.strip() == tables.section(name, run).strip(), "run: python -m bench.tables docs/results.md"


def test_goals_claims_and_cases_are_told(tmp_path: Path) -> None:
    run = {
        "bench": "Is it so?",
        "command": "python -m bench.so",
        "commit": "abc",
        "machine": {"cpu": "Paper", "cpus": 2, "kernel": "6.1", "python": "3.11"},
        "rows": [{"row": 3, "case": "two", "what": "error", "goal": "<= 1 pp", "measured": 0.51234, "met": True}],
        "passed": {"row 3: two: error <= 1 pp": True, "nobody starves": False},
        "seconds": 12345.6,
        "runs": list(range(1, 12)),
        "arms": {"ours": {"p50_us": 1.5}, "theirs": {"p50_us": 20, "p99_us": None}},
        "deep": {"outer": {"inner": {"x": 1}}},
    }
    (tmp_path / "so.json").write_text(json.dumps(run))
    text = tables.page(tmp_path)
    lines = text.splitlines()
    assert "## so" in lines
    assert "`python -m bench.so` at abc, on 2 x Paper, Linux 6.1, Python 3.11." in lines
    assert "| 3 | two | error | <= 1 pp | 0.5123 | yes |" in lines
    assert "| nobody starves | **no** |" in lines
    assert "| seconds | 12,346 |" in lines
    assert "| runs | 1 to 11, median 6 of 11 |" in lines
    assert "|  | p50 us | p99 us |" in lines
    assert "| theirs | 20 | - |" in lines
    assert "| inner | 1 |" in lines
    assert "row 3: two" not in text


def test_what_is_too_long_for_a_cell_stands_below_its_table(tmp_path: Path) -> None:
    run = {
        "sizes": [{"at_s": n, "rss_bytes": 57_245_696 + n} for n in range(12)],
        "found": [f"{n} {'word ' * 20}".strip() for n in range(3)],
        "told": "; ".join("said " * 20 + str(n) for n in range(3)),
        "left": 0,
        "arms": {"ours": {"gap_us": ["g" * 20 for _ in range(10)], "runs": 1}},
    }
    (tmp_path / "so.json").write_text(json.dumps(run))
    text = tables.page(tmp_path)
    assert max(map(len, re.findall(r"(?<=\| ).*?(?= \|)", text))) <= tables.CELL_CHARACTERS
    assert "| sizes | below |\n| found | below |\n| told | below |\n| left | 0 |\n\n**sizes**\n" in text
    assert "\n\n| at s | rss bytes |\n| --- | --- |\n| 0 | 57,245,696 |\n" in text
    assert f"\n\n**found**\n\n- 0 {'word ' * 20}".rstrip() + "\n- 1 word" in text
    assert f"\n- {'said ' * 20}2\n" in text
    assert f"| ours | below | 1 |\n\n**ours, gap us**\n\n- {'g' * 20}\n- g" in text


def test_it_says_what_it_writes_and_makes_no_file_of_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["bench.tables", "--help"])
    with pytest.raises(SystemExit) as ended:
        tables.main()
    assert ended.value.code == 0
    assert "docs/results.md" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
