"""A workstation with several people: `gemini` as one of them, with their real user numbers, on cards that all share.

Each command runs in a mount namespace of its own in which everybody may read this tree and its Python, also where they
lie in root's home. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PEOPLE = {"root": 0, "ann": 61001, "ben": 61002, "cat": 61003}
ROOTS = ",+chown,+dac_override,+dac_read_search,+fowner,+sys_ptrace"  # powers, as of gemini.service
GROUP = 61000  # whose members the machine's own daemon lets in
# $1 a folder for mounts; pairs of a closed folder and what in it is needed until "--"; then what to run.
_ENTER = """
set -e
aside=$1 number=0; shift
for word; do
    [ "$word" = -- ] && break
    number=$((number + 1)); mkdir -p "$aside/$number"
    [ $((number % 2)) = 1 ] || mount --bind "$word" "$aside/$number"
done
number=0
while [ "$1" != -- ]; do
    number=$((number + 2))
    [ "$(stat -c %a "$1")" = 755 ] || mount -t tmpfs -o mode=755 tmpfs "$1"
    mkdir -p "$2"; mount --bind "$aside/$number" "$2"; shift 2
done
shift
exec setpriv "$@"
"""


def closed() -> list[str]:
    """Pairs: a folder that others may not enter, and what of ours lies in it."""
    found = []
    for path in (ROOT, Path(sys.base_prefix)):
        for folder in [*reversed(path.parents), path]:
            if not folder.stat().st_mode & 0o001:
                found += [str(folder), str(path)]
                break
    return found


class Workstation:
    """Two cards, and a place to start what people type."""

    def __init__(self, cards: int = 2) -> None:
        self.id = f"people-{uuid.uuid4().hex[:8]}"
        self.sim = f"gpus={cards},memory=8GiB,users=all,id={self.id}"
        self.dir = Path(tempfile.mkdtemp(prefix="gm-"))
        self.dir.chmod(0o755)
        self.aside = self.dir / "aside"
        self.homes = {}
        for name, number in PEOPLE.items():
            self.homes[name] = self.dir / name
            self.homes[name].mkdir(mode=0o700)
            os.chown(self.homes[name], number, number)
        self.started: list[subprocess.Popen[str]] = []

    def words(self, person: str, *command: str, groups: Sequence[int] = ()) -> list[str]:
        """The command line that runs this as that person."""
        number = str(PEOPLE[person])
        more = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
        who = ["--reuid", number, "--regid", number, *more]
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh", str(self.aside)]
        powers = ROOTS if person == "root" else ""
        return [*enter, *closed(), "--", *who, "--inh-caps=-all", f"--bounding-set=-all{powers}", *command]

    @staticmethod
    def gemini(*words: str) -> list[str]:
        return [sys.executable, "-m", "gemini", *words]

    def environment(self, person: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        home = self.homes[person]
        return {
            "PATH": os.environ["PATH"], "HOME": str(home), "GEMINI_SIM": self.sim, "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_RUNTIME_DIR": str(home), **(more or {}),
        }  # fmt: skip

    def start(
        self, person: str, *command: str, groups: Sequence[int] = (), more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.words(person, *command, groups=groups),
            env=self.environment(person, more), cwd="/", text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(
        self, person: str, *command: str, groups: Sequence[int] = (), more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(person, *command, groups=groups, more=more)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def close(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for path in self.dir.glob("*/**/daemon.lock"):  # of daemons that commands started
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        for path in Path("/dev/shm").glob(f"gemini-sim-*{self.id}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def workstation() -> Iterator[Workstation]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and mount namespaces")
    here = Workstation()
    yield here
    here.close()
