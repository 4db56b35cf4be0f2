"""The head comment of a source file as a page of Markdown, whose sentences tests/docs/readable.py measures.

The head of a Python module is its docstring; that of a C file is its first block comment. Lines that are indented by
four spaces are no prose: usage lines, tables of names, examples. In a page such a block begins behind an empty line; in
a head comment it need not.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from pathlib import Path

SUFFIXES = (".py", ".c", ".h")


def tracked(root: Path) -> list[str]:
    """All sources that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *(f"*{suffix}" for suffix in SUFFIXES)],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and (root / name).exists()]


def _docstring(text: str) -> tuple[int, str]:
    """The line at which it begins, and its text without the indentation."""
    module = ast.parse(text)
    if ast.get_docstring(module) is None:
        return 1, ""
    literal = module.body[0]
    assert isinstance(literal, ast.Expr)
    assert isinstance(literal.value, ast.Constant)
    written = literal.value.value
    blank = len(written) - len(written.lstrip())  # cleandoc takes empty lines at the beginning away
    return literal.lineno + written[:blank].count("\n"), inspect.cleandoc(written)


def _block_comment(text: str) -> tuple[int, str]:
    found = re.search(r"^/\*(.*?)\*/", text, re.DOTALL | re.MULTILINE)
    if not found:
        return 1, ""
    return text.count("\n", 0, found.start()) + 1, re.sub(r"^ *\* ?", "", found[1], flags=re.MULTILINE).strip(" ")


def _without_blocks(head: str) -> str:
    """With an empty line for each line that is no prose. What is indented below an item of a list is of that item."""
    lines, item = [], False
    for line in head.split("\n"):
        if line.startswith("    ") and not item:
            lines.append("")
            continue
        item = bool(re.match(r" {0,3}([-*+]|\d+[.)]) ", line)) or (item and (not line or line.startswith("  ")))
        lines.append(line)
    return "\n".join(lines)


def page(file: Path) -> str:
    """The head comment, at the lines at which it stands in the file."""
    line, head = (_docstring if file.suffix == ".py" else _block_comment)(file.read_text())
    return "\n" * (line - 1) + _without_blocks(head)
