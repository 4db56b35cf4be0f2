"""What the package says of itself."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gemini

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ASKED = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
USERS = ("plots", "cluster", "dashboards")  # extras that people install; the others are this tree's own
CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def test_the_version_is_the_projects_and_nothing_else_is_made_up() -> None:
    assert gemini.__version__ == PROJECT["project"]["version"]
    with pytest.raises(AttributeError, match="no attribute 'version'"):
        gemini.version  # noqa: B018


def test_importing_it_reads_no_metadata() -> None:
    said = "import gemini, sys; sys.exit('importlib.metadata' in sys.modules)"
    subprocess.run([sys.executable, "-S", "-c", said], cwd=ROOT, check=True)


def test_types_and_license_travel_with_it() -> None:
    assert (ROOT / "gemini" / "py.typed").exists()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["gemini"]
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_change_log_begins_with_what_is_not_released_or_with_this_version() -> None:
    first = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert first.removeprefix("## ").split()[0] in ("Unreleased", PROJECT["project"]["version"])


def test_the_package_leaves_what_an_environment_has() -> None:
    asked = [Requirement(line) for line in [*ASKED, *(line for name in USERS for line in EXTRAS[name])]]
    assert asked
    assert [str(one) for one in asked if [part.operator for part in one.specifier] != [">="]] == []


def test_this_tree_pins_all_that_it_installs_within_what_the_package_asks_for() -> None:
    pinned = {one.name: next(iter(one.specifier)) for one in map(Requirement, CONSTRAINTS)}
    assert [name for name, part in pinned.items() if part.operator != "=="] == []
    for line in (*ASKED, *(line for extra in EXTRAS.values() for line in extra), *PROJECT["build-system"]["requires"]):
        one = Requirement(line)
        if one.name in ("gemini-gpu", "setuptools"):
            continue
        assert one.name in pinned, f"{one.name} is not in constraints.txt"
        assert one.specifier.contains(pinned[one.name].version), f"{line} leaves out {pinned[one.name].version}"
