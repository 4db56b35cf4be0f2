"""No C files include each other in a circle."""

from __future__ import annotations

import re
from pathlib import Path

from libhook.build import ROOT

INCLUDE = re.compile(r'^#include "libhook/(.+)\.[ch]"', re.M)


def included(root: Path) -> dict[str, set[str]]:
    """What each unit (a .c file and its header are one) includes of ours."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.[ch]")):
        unit = str(path.relative_to(root).with_suffix(""))
        found.setdefault(unit, set()).update(set(INCLUDE.findall(path.read_text())) - {unit})
    return found


def reached(edges: dict[str, set[str]], unit: str) -> set[str]:
    """All that the unit includes, by others too."""
    found: set[str] = set()
    rest = [*edges.get(unit, ())]
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest += edges.get(one, ())
    return found


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """The sets of units of which each reaches all others."""
    reach = {unit: reached(edges, unit) for unit in edges}
    return {
        frozenset(other for other in reach[unit] if unit in reach.get(other, ()))
        for unit in edges
        if unit in reach[unit]
    }


def test_a_circle_is_found_and_a_line_is_none() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(edges) == {frozenset({"b", "c"})}


def test_no_c_files_include_each_other_in_a_circle() -> None:
    found = [sorted(circle) for circle in circles(included(ROOT))]
    assert not found, "give one of these units what it needs from outside"
