"""Dead links: in the repository's Markdown, and in the site that is made of docs/.

    python -m tests.docs.links out/site        # of a site that was built; status 1 where a link leads nowhere

Only what is here is looked at: files, pages, and headings or other places in them. Links to elsewhere are not followed.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

NOT_WORD = re.compile(r"[^\w\- ]")
EXPLICIT = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


class Page(HTMLParser):
    """The places of a page, and where its links lead."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("id", "name") and value:
                self.places.add(value)
            elif key in ("href", "src") and value and tag != "base":
                self.links.append(value)


def dead_in_site(site: Path) -> list[str]:
    pages = {file: Page(file) for file in site.rglob("*.html")}
    found = []
    for file, page in sorted(pages.items()):
        for link in page.links:
            target, anchor = _target(file, link)
            if target is None:
                continue
            if target.is_dir():
                target /= "index.html"
            # A page's own scripts make `#` and `#top`; elsewhere a fragment must be a place.
            wanted = anchor not in ("", "top") and target in pages and anchor not in pages[target].places
            if not target.exists() or wanted:
                found.append(f"{file.relative_to(site)}: {link}")
    return found


def dead_in_markdown(files: Iterable[Path]) -> list[str]:
    found = []
    for file in files:
        for link in _links(file):
            target, anchor = _target(file, link)
            if target is None:
                continue
            missing = anchor and target.suffix == ".md" and target.exists() and anchor not in _headings(target)
            if not target.exists() or missing:
                found.append(f"{file}: {link}")
    return found


def _target(file: Path, link: str) -> tuple[Path | None, str]:
    """The file that a link means, and the place in it; None when it leads elsewhere."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None, ""
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file.resolve()
    return target, unquote(parts.fragment)


def _links(file: Path) -> Iterator[str]:
    for token in MarkdownIt("commonmark").enable("table").parse(file.read_text()):
        for child in token.children or ():
            link = child.attrGet("href") or child.attrGet("src")
            if link:
                yield str(link)


def _headings(file: Path) -> set[str]:
    """The anchors that a repository's page gives its headings."""
    tokens = MarkdownIt("commonmark").parse(file.read_text())
    places = set(EXPLICIT.findall(file.read_text()))
    for heading, inline in itertools.pairwise(tokens):
        if heading.type == "heading_open":
            text = "".join(child.content for child in inline.children or ())
            places.add(NOT_WORD.sub("", text.lower()).replace(" ", "-"))
    return places


def main() -> int:
    found = dead_in_site(Path(sys.argv[1]).resolve())
    for line in found:
        print(f"gemini: {line} leads nowhere", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
