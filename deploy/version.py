"""Raise the version everywhere it stands: `make version VERSION=0.2.0`.

pyproject.toml has it for the package; what is built, deployed or shown repeats it. The changes that stood under
"Unreleased" stand under the new version afterwards.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "pyproject.toml",
    "libhook/runtime/agent.c",
    "deploy/helm/gemini/Chart.yaml",
    "deploy/kustomize/cluster/deployment-extender.yaml",
    "deploy/kustomize/cluster/deployment-webhook.yaml",
    "deploy/kustomize/node/daemonset-node.yaml",
    "docs/install-cluster.md",
    "docs/quickstart-cluster.md",
    "docs/quickstart-workstation.md",
    "docs/workstation.md",
    "tests/e2e/test_quickstarts.py",
)
CHANGES, UNRELEASED = "CHANGELOG.md", "## Unreleased\n"


def version_of(root: Path) -> str:
    """The version in pyproject.toml of a tree."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def standing(version: str) -> re.Pattern[str]:
    """The version where it is not a part of another number."""
    return re.compile(rf"(?<![\w.]){re.escape(version)}(?![\d])(?!\.\d)|(?<=gemini_gpu-){re.escape(version)}(?=-)")


def parts(version: str) -> tuple[int, ...]:
    """Raises ValueError for anything but three numbers."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"{version!r} is no version; give three numbers such as 0.2.0")
    return tuple(map(int, version.split(".")))


def raise_to(version: str, root: Path = ROOT) -> list[str]:
    """Write the version into all FILES of a tree; their names. Raises ValueError where it is not above the present one,
    or where a file does not have that."""
    now = version_of(root)
    if parts(version) <= parts(now):
        raise ValueError(f"{version} is not above {now}; give a later one")
    changed = {}
    for name in FILES:
        changed[name], count = standing(now).subn(version, (root / name).read_text())
        if not count:
            raise ValueError(f"{name} does not have {now}; take it off the list in {Path(__file__).name}, or mend it")
    changes = (root / CHANGES).read_text()
    if changes.count(UNRELEASED) != 1:
        raise ValueError(f"{CHANGES} has no heading {UNRELEASED.strip()!r}; add it")
    changed[CHANGES] = changes.replace(UNRELEASED, f"{UNRELEASED}\n## {version}\n")
    for name, text in changed.items():
        (root / name).write_text(text)
    return list(changed)


if __name__ == "__main__":
    try:
        print("\n".join(raise_to(sys.argv[1] if len(sys.argv) > 1 else "")))
    except ValueError as error:
        sys.exit(f"gemini: {error}")
