"""What the pictures of the commands show is still what the commands say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemini.cli.kubectl_view import CARD_COLUMNS, NODE_COLUMNS
from gemini.cli.table import NAMES, cells, rows_of
from tests.docs.blocks import form
from tests.docs.shown import SHOWN, draw, lines_of

ROOT = Path(__file__).resolve().parents[2]
TENANT = {
    "name": "train", "request": 0.5, "limit": 1.0, "entitled": 0.556, "achieved": 0.681, "memory_bytes": 32 << 30,
    "memory_limit_bytes": 40 << 30, "wait_ms_p99": 32.0, "launches": 58518, "clients": [1], "enforced": "yes",
    "gpus": [0], "registered_by": [4711], "user": None, "class": "batch",
}  # fmt: skip


def test_top_has_the_programs_columns_and_its_rows_their_form() -> None:
    lines = lines_of(SHOWN / "top.svg")
    header = next(line for line in lines if line.startswith("NAME "))
    shown = [name for name in NAMES if f" {name} " in f" {header} "]
    assert header == " ".join(shown)
    rows = lines[lines.index(header) + 1 :]
    assert len(rows) >= 2
    wanted = form(" ".join(cells(rows_of([TENANT]), shown)[1]))
    rows = [line.rstrip("▁▂▃▄▅▆▇█").rstrip() for line in rows]
    assert [form(line).replace(line.split()[0], "train", 1) for line in rows] == [wanted] * len(rows)


@pytest.mark.parametrize(("name", "columns"), [("kubectl-gemini", NODE_COLUMNS), ("kubectl-gemini-wide", CARD_COLUMNS)])
def test_kubectl_gemini_has_the_programs_columns(name: str, columns: tuple[str, ...]) -> None:
    assert " ".join(columns) in lines_of(SHOWN / f"{name}.svg")


def test_a_picture_has_the_words_that_were_drawn_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.docs.shown.SHOWN", tmp_path)
    monkeypatch.setattr("tests.docs.shown.ROOT", tmp_path)
    picture = draw("a", "a title", "\x1b[1mHEAD  B\x1b[0m\n\x1b[32mgreen\x1b[0m  12 %   \n")
    assert sorted(lines_of(picture)) == sorted(["a title", "HEAD B", "green 12 %"])
    assert "url(http" not in picture.read_text()


def test_each_picture_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert [picture.name for picture in SHOWN.iterdir() if f"(shown/{picture.name})" not in pages] == []
