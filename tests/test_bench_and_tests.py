"""bench imports nothing of tests, but for the files that are named here as debts."""

from __future__ import annotations

import ast
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"
# Each imports these of tests, until both have them from a folder of their own.
DEBTS: dict[str, set[str]] = {
    "extender/cluster.py": {"tests.e2e.api", "tests.e2e.build", "tests.e2e.plane", "tests.e2e.process"},
    "replicas.py": {"tests.gemini.extender"},
    "torch_pairs.py": {"tests.frameworks.environment"},
}


def imported(source: str) -> set[str]:
    """The modules that this source imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return found


def of_tests() -> dict[str, set[str]]:
    """Which file of bench imports which modules of tests."""
    found = {
        str(path.relative_to(BENCH)): {name for name in imported(path.read_text()) if name.split(".")[0] == "tests"}
        for path in BENCH.rglob("*.py")
    }
    return {path: modules for path, modules in found.items() if modules}


def test_an_import_is_seen_wherever_it_stands() -> None:
    assert imported("import tests.a\ndef f():\n    from tests.b import c") == {"tests.a", "tests.b"}


def test_bench_imports_only_what_is_known_of_tests() -> None:
    assert of_tests() == DEBTS, "one that is new: let it stand outside of tests; one that is gone: take it out of DEBTS"
