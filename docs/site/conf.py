"""How docs/ becomes a site: `make docs`, by Sphinx with MyST, warnings being errors, so that dead links end the build.

The pages stay plain Markdown that reads well in the repository too. What lies outside of docs/ is not on the site: a
link to the README leads to the first page, one to bench/README.md to the page that includes it, and a link to a source
file becomes its text.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parents[2]
_facts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = "Gemini"
author = "the Gemini authors"
copyright = author
version = release = _facts["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other packages, whose pages are not here
source_suffix = {".md": "markdown"}
exclude_patterns = ["site"]
myst_heading_anchors = 4  # `page.md#a-heading` as repositories show it, checked
myst_enable_extensions = ["colon_fence"]
nitpicky = True
highlight_language = "none"

html_theme = "furo"
html_title = f"Gemini {version}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

HOME = {"../README.md": "index.md", "../bench/README.md": "benches.md"}
OUTSIDE = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#]+)(?P<anchor>#[^)]*)?\)")


def _outside(match: re.Match[str]) -> str:
    target = HOME.get(match["target"])
    return match["text"] if target is None else f"[{match['text']}]({target})"


def keep_inside(_app: Any, _name: str, source: list[str]) -> None:
    source[0] = OUTSIDE.sub(_outside, source[0])


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", keep_inside)
    # A diagram is shown as its text: drawing it would fetch a script from elsewhere.
    app.add_lexer("mermaid", TextLexer)
    return {"parallel_read_safe": True}
