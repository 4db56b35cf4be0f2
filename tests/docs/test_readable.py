"""Sentences and cells of the pages are short; what the measure itself does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.readable import CELL_CHARACTERS, MOST_WORDS, PAGES, faults, sentences

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_list_is_readable(page: str) -> None:
    assert faults((ROOT / page).read_text()) == []


def test_sentences_are_found_in_paragraphs_items_and_cells_but_not_in_code_or_headings() -> None:
    page = """# A heading of some words

It runs for 0.5 ms, see `a.b` there. And
once [more of it](x.md)!

- an item of words

| a cell of words | `x` |
|---|---|
| of three words | two words |

```sh
all of this is code
```
"""
    assert [(one.line, one.words, one.in_cell) for one in sentences(page)] == [
        (3, 8, False), (3, 5, False), (6, 4, False), (8, 4, True), (10, 3, True),
    ]  # fmt: skip


def test_a_long_sentence_a_long_cell_and_a_long_median_are_told_with_their_line() -> None:
    long = " ".join(["word"] * (MOST_WORDS + 1))
    cell = "c" * (CELL_CHARACTERS + 1)
    told = faults(f"{long}.\n\n| a |\n|---|\n| {cell} |\n")
    assert [line.split(":")[0] for line in told] == [f"median sentence of {MOST_WORDS + 1} words, above 18", "1", "5"]
    assert faults(f"{' '.join(['word'] * MOST_WORDS)}. One short sentence. Another short sentence.\n") == []
