"""Programs of other projects that no module proxy has: built from a checkout that the environment names, or not at all.

    GEMINI_E2E_KAI=~/src/KAI-Scheduler GEMINI_E2E_VOLCANO=~/src/volcano python -m tests.e2e.checkouts

What a checkout holds is built as it is, by its own go.mod: its libraries are the versions that the project chose. Go
knows what is built already, so each run asks it (seconds; cold some minutes on two cores).
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.build import Builder, CannotBuild, say


@dataclass(frozen=True)
class Project:
    variable: str
    home: str
    commands: tuple[str, ...]  # packages of its folder cmd


@dataclass(frozen=True)
class Checkout:
    source: Path
    programs: Path  # a program of the name of each command


PROJECTS = {
    "kai": Project(
        "GEMINI_E2E_KAI", "github.com/NVIDIA/KAI-Scheduler", ("admission", "binder", "podgrouper", "scheduler")
    ),
    "volcano": Project("GEMINI_E2E_VOLCANO", "github.com/volcano-sh/volcano", ("controller-manager", "scheduler")),
}


def checkout(name: str) -> Checkout:
    """Of PROJECTS, with its programs built.

    Raises:
        CannotBuild: the environment names none, or it does not build.
    """
    project = PROJECTS[name]
    named = os.environ.get(project.variable)
    if not named:
        raise CannotBuild(f"{project.variable} names no checkout of {project.home}; modules of it are not to be had")
    source = Path(named).expanduser().resolve()
    if not (source / "go.mod").is_file():
        raise CannotBuild(f"{project.variable}={named} has no go.mod; name a checkout of {project.home}")
    builder = Builder()
    programs = builder.cache / f"{name}-checkout-{hashlib.sha256(bytes(source)).hexdigest()[:16]}"
    programs.mkdir(parents=True, exist_ok=True)
    with builder.locked(programs.name):
        say(f"building {', '.join(project.commands)} of {source} (cold: minutes; again: seconds)")
        packages = [f"./cmd/{command}" for command in project.commands]
        builder.go(source, "build", "-ldflags", "-s -w", "-o", f"{programs}/", *packages)
    return Checkout(source, programs)


def main() -> int:
    status = 0
    for name in PROJECTS:
        try:
            say(f"{name}: {checkout(name).programs}")
        except CannotBuild as why:
            say(f"{name}: {why}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
