"""No C files include each other in a circle, but for those that are named here as debts."""

from __future__ import annotations

import re
from pathlib import Path

from libhook.build import ROOT

INCLUDE = re.compile(r'^#include "libhook/(.+)\.[ch]"', re.M)
# Each is a set of units that reach each other today; it may lose units, and gain none.
DEBTS = [
    {
        "sim/driver/capture", "sim/driver/event", "sim/driver/event_shared", "sim/driver/front", "sim/driver/graph",
        "sim/driver/host", "sim/driver/op", "sim/driver/pool", "sim/driver/queue", "sim/driver/stream",
    },
    {"sim/model/machine", "sim/model/seat", "sim/model/words"},
]  # fmt: skip


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


def test_the_circles_among_c_files_are_those_that_are_known() -> None:
    found = circles(included(ROOT))
    new = [sorted(circle) for circle in found if not any(circle <= debt for debt in DEBTS)]
    assert not new, "a new circle: give one of these units what it needs from outside"
    paid = [sorted(debt) for debt in DEBTS if not any(circle <= debt for circle in found)]
    assert not paid, "a circle is gone: take it out of DEBTS"
