"""No class of ours inherits from another of ours, but for exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("gemini", "libhook", "scheduler_backend")


def last_name(base: ast.expr) -> str:
    """The name of a base class as it is written, without its module and its type arguments."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


def pairs(sources: list[str]) -> Iterator[tuple[str, str]]:
    """Each class of these sources that inherits from another of them, with that one; exceptions are left out."""
    bases = {
        node.name: [last_name(base) for base in node.bases if "." not in ast.unparse(base)]
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }

    def raised(name: str, seen: frozenset[str] = frozenset()) -> bool:
        if name in seen:
            return False
        inherited = bases.get(name, [])
        return name.endswith(("Error", "Exception")) or any(raised(base, seen | {name}) for base in inherited)

    for name, inherited in bases.items():
        yield from ((name, base) for base in inherited if base in bases and not raised(name))


def test_exceptions_may_inherit_from_each_other_and_parts_may_not() -> None:
    assert list(pairs(["class Top(ValueError): ...", "class Part(Top): ..."])) == []
    assert list(pairs(["class Top: ...", "class Part(Top): ..."])) == [("Part", "Top")]


def test_our_classes_inherit_from_none_of_ours() -> None:
    sources = [path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert list(pairs(sources)) == [], "give it the other as a part"
