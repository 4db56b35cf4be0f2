"""The program of tests/apps/processes.c, and rooms to run it in: file systems and namespaces of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
APPS = ROOT / "tests" / "apps"

# $1 user id, $2 the new root; the rest pairs FROM TO until "--"; then the command.
_ENTER = """
set -e
user=$1 root=$2; shift 2
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; [ -e "$root$2" ] || : > "$root$2"; fi
    mount --rbind "$1" "$root$2"; shift 2
done
shift
exec chroot --userspec="$user:$user" "$root" "$@"
"""


def enter(root: Path, binds: Sequence[tuple[Path | str, str]], *command: str, user: int = 0) -> list[str]:
    """The command line that runs `command` as `user` in `root`, with these files and folders of ours in it."""
    words = [str(word) for pair in binds for word in pair]
    script = ["sh", "-c", _ENTER, "sh", str(user), str(root), *words, "--", *command]
    return ["unshare", "--mount", "--propagation", "private", *script]


@pytest.fixture(scope="session")
def may_mount() -> None:
    """Skip where this user may not make mount namespaces."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and mount namespaces")


Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compile a source of tests/apps once a session for each set of flags."""
    made: dict[tuple[str, ...], Path] = {}

    def build(source: str, *flags: str) -> Path:
        key = (source, *flags)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("app") / Path(source).stem
            command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-o", str(made[key])]
            subprocess.run([*command, str(APPS / source), "-ldl", "-lpthread", *flags], check=True)
        return made[key]

    return build
