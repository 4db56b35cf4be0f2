"""Sentences and cells of the pages are short, and sentences of head comments; what the measure itself does."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.docs import heads
from tests.docs.readable import CELL_CHARACTERS, MEDIAN_WORDS, MOST_WORDS, PAGES, faults, sentences, too_long

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_list_is_readable(page: str) -> None:
    assert faults((ROOT / page).read_text()) == []


def test_head_comments_of_all_sources_are_readable() -> None:
    pages = {name: heads.page(ROOT / name) for name in heads.tracked(ROOT)}
    assert [f"{name}:{fault}" for name, text in pages.items() for fault in too_long(text)] == []
    assert statistics.median(one.words for text in pages.values() for one in sentences(text)) <= MEDIAN_WORDS


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


PYTHON = """#!/usr/bin/env python3
\"\"\"Says a thing of a module.

    python -m some.module --with some words

It goes on here. A table stands
below:
    name    what a name stands for
- an item of a list
    that goes on
\"\"\"

\"\"\"Another string of some words.\"\"\"
"""
C = """#define _GNU_SOURCE
/*
 * name.c - says a thing of a file.
 *
 *     name ARGUMENT of some words
 *
 * It goes on here.
 */
/* Another comment of some words. */
"""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.py", PYTHON, [(2, 6), (6, 4), (6, 4), (9, 8)]),
        ("a.c", C, [(3, 7), (7, 4)]),
        ("a.h", "/* One line of words. */\n", [(1, 4)]),
        ("empty.py", "", []),
        ("bare.c", "int bare; /* no head at all */\n", []),
    ],
)
def test_a_head_comment_is_read_without_its_blocks_at_its_lines(
    name: str, text: str, said: list[tuple[int, int]], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert [(one.line, one.words) for one in sentences(heads.page(file))] == said
