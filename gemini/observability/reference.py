"""The parts of docs/observability.md made of our tables; `python -m gemini.observability.reference PAGE` renews them.

Each stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`; a test fails where page and tables differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gemini.observability.boards import BOARDS
from gemini.observability.rules import ALERTS, RECORDS


def alerts() -> str:
    """A section for each, which its runbook_url names."""
    found = []
    for rule in ALERTS:
        lasting = f"for {rule.scrapes} scrapes" if rule.scrapes else "at once"
        fires = f"{rule.severity.capitalize()}, {lasting}: `{rule.watched} {rule.bound}`"
        found.append(f"### {rule.name}\n\n{fires}\n\n{rule.mend}\n")
    return "\n".join(found)


def records() -> str:
    return "\n".join(["| series | |", "|---|---|", *(f"| `{rule.name}` | {rule.text} |" for rule in RECORDS)])


def boards() -> str:
    """What each panel answers."""
    parts = []
    for board in BOARDS:
        parts.append(f"### {board.title}\n\n{board.text}\n\n![{board.title}](pictures/{board.uid}.png)\n")
        parts.append(
            "\n".join(["| panel | |", "|---|---|", *(f"| {p.title} | {p.text} |" for p in board.panels)]) + "\n"
        )
    return "\n".join(parts)


PARTS = {"alerts": alerts, "records": records, "boards": boards}


def renew(text: str) -> str:
    """The page with all parts as the tables have them."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"the page has no part named {name}, or more than one")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{make()}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(renew(page.read_text()))
