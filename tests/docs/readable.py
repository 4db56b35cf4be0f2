"""How long the sentences of a page are: `python -m tests.docs.readable [PAGE]...`, by default PAGES and all sources.

A page may also be a source file (.py, .c, .h), of which the head comment is read (heads.py). The bound of the median is
that of all heads together, for many are a sentence or two.

markdown-it reads the page, sentencex (Wikimedia's segmenter) finds its sentences. Code blocks and headings are no
prose; code within a sentence and a link's text are words like others. A cell of a table is measured as it is written.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from sentencex import segment

from tests.docs import heads

ROOT = Path(__file__).resolve().parents[2]
MEDIAN_WORDS, MOST_WORDS, CELL_CHARACTERS = 18, 40, 200
# The pages that keep these bounds. The list grows until it has all of docs/.
PAGES: tuple[str, ...] = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
    "docs/api.md",
    "docs/architecture.md",
    "docs/autoscaling.md",
    "docs/benches.md",
    "docs/choosing.md",
    "docs/cluster.md",
    "docs/comparison.md",
    "docs/configuration.md",
    "docs/contributing.md",
    "docs/decisions/compiled-paths.md",
    "docs/decisions/held-segments.md",
    "docs/decisions/lines.md",
    "docs/decisions/mechanisms.md",
    "docs/decisions/resize.md",
    "docs/e2e.md",
    "docs/failures.md",
    "docs/faq.md",
    "docs/first-path.md",
    "docs/frameworks.md",
    "docs/glossary.md",
    "docs/guarantees.md",
    "docs/index.md",
    "docs/install-cluster.md",
    "docs/messages.md",
    "docs/migrating.md",
    "docs/observability.md",
    "docs/operations.md",
    "docs/placement.md",
    "docs/proof.md",
    "docs/protocol.md",
    "docs/python.md",
    "docs/questions.md",
    "docs/quickstart-cluster.md",
    "docs/quickstart-sre.md",
    "docs/quickstart-workstation.md",
    "docs/real-card.md",
    "docs/results.md",
    "docs/security.md",
    "docs/seeds.md",
    "docs/simulator-nvml.md",
    "docs/simulator.md",
    "docs/uninstalling.md",
    "docs/upgrading.md",
    "docs/worked-examples.md",
    "docs/workstation.md",
)


@dataclass(frozen=True)
class Prose:
    """A piece of a page: a paragraph, an item of a list, a cell."""

    line: int
    text: str
    cell: str  # as it is written; "" outside of tables


@dataclass(frozen=True)
class Sentence:
    line: int
    words: int
    text: str
    in_cell: bool


def _plain(inline: Token) -> str:
    """The words of a paragraph. Code is one word, whatever is in it."""
    parts = []
    for child in inline.children or []:
        if child.type == "code_inline":
            parts.append("`code`" if " " in child.content else child.content.replace(".", "_"))
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "text":
            parts.append(child.content)
    return "".join(parts)


def prose(text: str) -> Iterator[Prose]:
    """All pieces of a page but its headings and code blocks."""
    block, line = "", 0
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.map:
            line = token.map[0] + 1
        if token.type.endswith("_open"):
            block = token.type.removesuffix("_open")
        elif token.type == "inline" and block != "heading":
            yield Prose(line, _plain(token), token.content if block in ("td", "th") else "")


def sentences(text: str) -> list[Sentence]:
    """Those with a verb's worth of words: an item or a cell of one or two words is none."""
    found = []
    for piece in prose(text):
        for one in segment("en", piece.text):
            words = [word for word in one.split() if any(map(str.isalnum, word))]
            if len(words) > 2:
                found.append(Sentence(piece.line, len(words), one.strip(), bool(piece.cell)))
    return found


def too_long(text: str) -> list[str]:
    """The sentences above the bound, a line each."""
    return [f"{one.line}: {one.words} words: {one.text}" for one in sentences(text) if one.words > MOST_WORDS]


def faults(text: str) -> list[str]:
    """What passes the bounds, a line each; empty for a page that keeps them. Cells are short anyway: the median is that
    of the rest."""
    said = sentences(text)
    median = statistics.median([one.words for one in said if not one.in_cell] or [0])
    lines = [f"median sentence of {median:g} words, above {MEDIAN_WORDS}"] if median > MEDIAN_WORDS else []
    lines += too_long(text)
    cells = [piece for piece in prose(text) if len(piece.cell) > CELL_CHARACTERS]
    return lines + [f"{one.line}: a cell of {len(one.cell)} characters: {one.cell[:60]}..." for one in cells]


def _faults_of(file: Path) -> list[str]:
    return too_long(heads.page(file)) if file.suffix in heads.SUFFIXES else faults(file.read_text())


def main() -> int:
    pages = sys.argv[1:] or [*PAGES, *heads.tracked(ROOT)]
    found = [f"{page}:{fault}" for page in pages for fault in _faults_of(ROOT / page)]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
