"""Programs that were started with `gemini run --detach`: where their output goes, and how they ended.

A folder for each tenant's name, `$XDG_STATE_HOME/gemini/runs/NAME` (~/.local/state without that), the user's own: the
daemon may be another user's. `output.log` is what the program writes, `run.json` who waits for it and, at its end, how
that was.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gemini.cli.problem import Problem
from scheduler_backend import private

OWN_FAILURE = 125  # as main.py has it
KEPT = 20  # of those that have ended
BEGUN = b"begun\n"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass
class Run:
    """One of them, as run.json has it."""

    name: str
    pid: int  # of its `gemini run`
    began: str  # of that process, as /proc tells: a pid comes again
    command: list[str]
    state_dir: str
    status: int | None = None  # exit status; None: it runs, or was killed together with its `gemini run`

    @property
    def output(self) -> Path:
        return folder() / self.name / "output.log"

    def lives(self) -> bool:
        return self.status is None and begin_of(self.pid) == self.began


def folder() -> Path:
    """Where they all lie."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    home = Path(base) if base.startswith("/") else Path.home() / ".local/state"
    return home / "gemini" / "runs"


def begin_of(pid: int) -> str:
    """When that process began; empty: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def find(name: str) -> Run | None:
    """The latest of that name."""
    if not NAME.fullmatch(name):
        return None
    try:
        return Run(**json.loads((folder() / name / "run.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def names() -> list[str]:
    """Of all that are kept, the latest first."""
    found = []
    with suppress(OSError):
        for place in folder().iterdir():
            with suppress(OSError):
                found.append(((place / "run.json").stat().st_mtime_ns, place.name))
    return [name for _, name in sorted(found, reverse=True)]


def forget() -> None:
    """The oldest that have ended go, but for KEPT of them."""
    ended = [name for name in names() if (run := find(name)) is not None and not run.lives()]
    for name in ended[KEPT:]:
        shutil.rmtree(folder() / name, ignore_errors=True)


def note(run: Run) -> None:
    place = folder() / run.name
    private.replace_file(place / "run.json", f"{json.dumps(asdict(run))}\n".encode())


def _make_own(place: Path) -> None:
    """A folder that nobody else may write in. Raises Problem where somebody else made it, as he may in one like /tmp: a
    link of his would have us write where he likes. OSError where it cannot be."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        raise Problem(f"{place} is no folder of this user's alone; set XDG_STATE_HOME to one that is")


class Detached:
    """`gemini run` on its way into the background: this process goes on in a session of its own, its parent ends."""

    def __init__(self, name: str, command: Sequence[str], state_dir: Path) -> None:
        """Raises Problem where one of that name runs already, or nothing can be written."""
        place = folder() / name
        try:
            for part in (place.parent.parent, place.parent, place):
                _make_own(part)
            self._lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Problem(f"{name} runs already; gemini logs {name} shows it, or choose another --name") from None
        except OSError as error:
            raise Problem(f"{place}: {error.strerror}; set XDG_STATE_HOME to a folder that can be written") from None
        self.status = OWN_FAILURE
        self._begun = False
        self._stderr = -1  # of who started us, while ours goes to the file and the program does not run yet
        self._run = Run(name, 0, "", list(command), str(state_dir))

    def leave(self) -> int | None:
        """Into the background. In the parent: its exit status, once the program has begun or could not; None in the
        child, whose stderr is the caller's until `redirect`."""
        told, tell = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            os.close(tell)
            os.close(self._lock)
            with os.fdopen(told, "rb") as source:
                if source.read() == BEGUN:
                    print(self._run.name)
                    return 0
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(told)
        os.setsid()
        self._tell = tell
        pid = os.getpid()
        self._run.pid, self._run.began = pid, begin_of(pid)
        return None

    def redirect(self) -> None:
        """From here on output goes to the file, of us and of what we start."""
        self._stderr = os.dup(2)
        output = os.open(self._run.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(output)

    def begun(self) -> None:
        """The program runs: who started it may go."""
        note(self._run)
        os.close(self._stderr)
        self._stderr = -1
        os.write(self._tell, BEGUN)
        os.close(self._tell)
        self._begun = True

    def __enter__(self) -> None:
        return

    def __exit__(self, *_error: object) -> None:
        if not self._begun:  # the reason goes to who wanted it
            if self._stderr >= 0:
                os.dup2(self._stderr, 2)
            return
        self._run.status = self.status
        with suppress(OSError):
            note(self._run)
        forget()
