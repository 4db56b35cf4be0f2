"""The documentation as a site: it builds without a warning, and no link in it or in the repository's pages is dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.links import Page, dead_in_markdown, dead_in_site

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

pytest.importorskip("sphinx", reason="needs what `make docs` installs")
pytestmark = pytest.mark.timeout(600)  # seconds of processor time, of which a busy machine has few to give


def built(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    options = ["-q", "-W", "--keep-going", "-c", str(DOCS / "site")]
    command = [sys.executable, "-m", "sphinx", *options, str(docs), str(site)]
    return subprocess.run(command, capture_output=True, text=True)


def test_site_builds_without_a_warning_and_none_of_its_links_is_dead(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = built(DOCS, site)
    assert (done.returncode, done.stderr) == (0, "")
    assert dead_in_site(site) == []
    pages = {page.stem for page in DOCS.glob("*.md")}
    front = (site / "index.html").read_text()
    assert not [page for page in pages if f'href="{page}.html"' not in front and page != "index"], "not in the contents"
    assert "http" not in {link.split(":")[0] for link in _fetched(site)}, "a page fetches nothing from elsewhere"


def _fetched(site: Path) -> list[str]:
    links = (link for page in site.rglob("*.html") for link in Page(page).links)
    return [link for link in links if link.endswith((".js", ".css", ".woff2"))]


def test_dead_links_end_the_build_and_each_is_named(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# A page\n\n[a](gone.md) [b](index.md#nowhere) [c](#nothing)\n")
    done = built(docs, tmp_path / "site")
    assert done.returncode != 0
    assert all(name in done.stderr for name in ("gone.md", "nowhere", "nothing")), done.stderr


def test_dead_links_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="#here"></a><a href="b.html#gone"></a><a href="c.html"></a>')
    (tmp_path / "b.html").write_text("<p>")
    assert dead_in_site(tmp_path) == ["a.html: b.html#gone", "a.html: c.html"]


def test_no_link_of_the_repositorys_pages_is_dead(tmp_path: Path) -> None:
    left_out = {".venv", "out", "build", ".git"}
    pages = [page for page in ROOT.rglob("*.md") if not left_out & set(page.relative_to(ROOT).parts)]
    assert len(pages) > 10
    assert dead_in_markdown(pages) == []
    (tmp_path / "page.md").write_text(
        "# Head, and tail\n[a](#head-and-tail) [b](#gone) [c](gone.md) [d](https://elsewhere)\n"
    )
    assert [line.split(": ")[1] for line in dead_in_markdown([tmp_path / "page.md"])] == ["#gone", "gone.md"]
