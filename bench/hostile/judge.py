"""Plays attacks beside two busy tenants, in turns with calm, and says what they cost the others.

All that an attacker starts runs on the last processor, as a container has a quota, too, and in calm a process burns
that one; the daemon, the tenants and what watches them have the others. So only what goes by way of the daemon, the
library and the card is counted. Shares and waits are the simulated card's own record. A tenant of its own is made for
each attack and removed after it; what the daemon then has more than before, and what is left on the machine, is the
attack's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from bench.bed import ROOT, Bed, wait_for
from bench.hostile.table import Attack, Place
from bench.jitter import Probe
from bench.tenants import cpu_ns, resident_bytes

VICTIMS = {"a": 0.6, "b": 0.4}
LIMIT, MEMORY = 0.1, 1 << 30  # of the hostile tenant, which is promised nothing
MOST_GROWTH, MOST_LOST_PP, MOST_LATER_MS = 10 << 20, 0.5, 2.0
MOST_LOG_A_SECOND = 64 << 10
WAIT_NS = 500_000  # a gap between a tenant's work on the card that is shorter is none
BACK_SECONDS = 30.0  # so long may what the daemon has for those who left stay
PATIENCE_S = 30.0
SETTLE_SECONDS = 0.3
NAME = "hostile"


PROCESSORS = os.sched_getaffinity(0)
STRANGERS = {max(PROCESSORS)}  # where attackers run, and what burns a processor in calm
HERE = PROCESSORS - STRANGERS or PROCESSORS


def burner(*, apart: bool = True) -> subprocess.Popen[bytes]:
    """A process that burns a processor for as long as this one lives, also where this one is killed.

    `apart`: in a session of its own, to which the kernel may give no more of the processors than to any other.
    """
    words = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(1000))"
    return subprocess.Popen([sys.executable, "-S", "-c", words], start_new_session=apart)


def used(pid: int, own: Collection[int] = ()) -> dict[str, int]:
    """What the daemon has open, and how many threads and children.

    Pidfds of the processes `own` are not counted: each process on the simulated card, the daemon too, looks after the
    others now and then, so that those that stay have one there sooner or later.
    """
    task = Path(f"/proc/{pid}/task")
    children = sum(len((one / "children").read_text().split()) for one in task.iterdir())
    return {
        "descriptors": sum(_process_of(pid, one) not in own for one in os.listdir(f"/proc/{pid}/fd")),
        "threads": len(list(task.iterdir())),
        "children": children,
    }


def opened(pid: int) -> list[str]:
    """What the daemon has open, from the newest on."""
    found = []
    for one in sorted(os.listdir(f"/proc/{pid}/fd"), key=int, reverse=True):
        with contextlib.suppress(OSError):
            found.append(f"{one} {os.readlink(f'/proc/{pid}/fd/{one}')} {_process_of(pid, one) or ''}".strip())
    return found


def _process_of(pid: int, descriptor: str) -> int:
    """Of which process this descriptor of the daemon is a pidfd; 0: it is something else, or just closed."""
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/{pid}/fd/{descriptor}") == "anon_inode:[pidfd]":
            told = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines()
            return next(int(line.split()[1]) for line in told if line.startswith("Pid:"))
    return 0


class Range:
    """A bed with the two tenants at work, on which one attack after the other is played. A context manager."""

    def __init__(self) -> None:
        self.bed = Bed(config="metrics_port = 0\n")
        self.calm: list[dict[str, Any]] = []
        self._burner: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Range:
        os.sched_setaffinity(0, HERE)  # and all that is started from here
        self.bed.__enter__()
        try:
            self.bed.start_loads(*((name, request, 1.0) for name, request in VICTIMS.items()),
                                 options=("--seconds", 0))  # fmt: skip
            self._pids = {name: child.pid for name, child in self.bed.children.values()}
            self._burner = burner()
            os.sched_setaffinity(self._burner.pid, STRANGERS)
            self._burner.send_signal(signal.SIGSTOP)
            self._uuid = self.bed.timeline.devices()[0].uuid.removeprefix("GPU-").replace("-", "")
            self._port = self._metrics_port()
            self.bed.state()  # which starts the daemon's thread that asks the driver who is on the card
            time.sleep(1.0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._burner is not None:
            self._burner.kill()
            self._burner.wait()
        self.bed.__exit__()
        os.sched_setaffinity(0, PROCESSORS)

    def _metrics_port(self) -> int:
        log = self.bed.state_dir / "daemon.log"
        line = next(line for line in log.read_text().splitlines() if "metrics address=" in line)
        return int(line.rpartition(":")[2])

    @property
    def daemon(self) -> subprocess.Popen[bytes]:
        assert self.bed.daemon is not None
        return self.bed.daemon

    def watch(self, seconds: float) -> dict[str, Any]:
        """Shares and waits of the two, and the daemon's memory and time, over so long."""
        timeline = self.bed.timeline
        since, _ = timeline.segments()
        began_ns, before = timeline.busy()
        spent, wall_ns, most = cpu_ns(self.daemon.pid), time.monotonic_ns(), 0
        low: dict[str, dict[str, float]] = {}
        segments = []
        with Probe() as probe:
            end = time.monotonic() + seconds
            while time.monotonic() < end and self.daemon.poll() is None:
                time.sleep(0.05)
                most = max(most, self._resident())
                since, more = timeline.segments(0, since)
                segments += more
        now_ns, after = timeline.busy()
        found: dict[str, Any] = {"shares": {}, "wait_ms": low, "most_bytes": most, "stalls": len(probe.stalls)}
        found["stalled_ms"] = sum(end_ns - begin_ns for begin_ns, end_ns in probe.stalls) / 1e6
        for name, pid in self._pids.items():
            found["shares"][name] = (after.get(pid, 0) - before.get(pid, 0)) / max(1, now_ns - began_ns)
            mine = sorted((one.start_ns, one.end_ns) for one in segments if one.pid == pid)
            gaps = np.array([b - a for (_, a), (b, _) in itertools.pairwise(mine) if b - a > WAIT_NS] or [0])
            low[name] = {f"p{q}": float(np.percentile(gaps, q)) / 1e6 for q in (50, 90, 99)}
        found["daemon_percent"] = 100 * (cpu_ns(self.daemon.pid) - spent) / (time.monotonic_ns() - wall_ns)
        return found

    def _resident(self) -> int:
        try:
            return resident_bytes(self.daemon.pid)
        except (OSError, KeyError):  # it has just ended
            return 0

    def rest(self, seconds: float) -> dict[str, Any]:
        """A calm window."""
        assert self._burner is not None
        self._burner.send_signal(signal.SIGCONT)
        try:
            time.sleep(SETTLE_SECONDS)
            found = self.watch(seconds)
        finally:
            self._burner.send_signal(signal.SIGSTOP)
        self.calm.append(found)
        return found

    def play(self, attack: Attack, seconds: float) -> dict[str, Any]:
        """One attack for so long; "failed" holds what must not be."""
        pid = self.daemon.pid
        before, memory, files = used(pid, self._own()), self._resident(), self._files()
        limits = {what: resource.prlimit(pid, what) for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)}
        log_bytes = (self.bed.state_dir / "daemon.log").stat().st_size
        config = (self.bed.state_dir / "gemini.toml").read_text()
        folder = Path(self.bed.tenant(NAME, 0.0, LIMIT, memory=MEMORY)).parent
        if attack.descriptors:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (attack.descriptors, limits[resource.RLIMIT_NOFILE][1]))
        failed: list[str] = []
        scratch = Path(tempfile.mkdtemp(prefix="gemini-attacker-"))
        began = time.monotonic()
        try:
            with Attacker(attack.name, self._place(scratch)) as attacker:
                time.sleep(SETTLE_SECONDS)
                found = self.watch(seconds)
                alive = attacker.process.poll() is None
            failed += attacker.said
            if not alive:
                failed.append(f"the attack ended by itself: {attacker.error[-300:]}")
        except TimeoutError as error:
            found, failed = {"most_bytes": self._resident()}, [str(error)]
        lasted = time.monotonic() - began
        shutil.rmtree(scratch, ignore_errors=True)
        found["grown_bytes"] = found["most_bytes"] - memory
        if (ended := self.daemon.poll()) is not None:
            last = (self.bed.state_dir / "daemon.log").read_text(errors="replace").splitlines()[-1:]
            return {**found, "failed": [*failed, f"the daemon ended with {ended}: {' '.join(last)[:200]}"]}
        for what, was in limits.items():
            resource.prlimit(pid, what, was)
        (self.bed.state_dir / "gemini.toml").write_text(config)
        log = (self.bed.state_dir / "daemon.log").stat().st_size - log_bytes
        found["log_bytes_a_second"] = log / lasted
        if log > MOST_LOG_A_SECOND * lasted:
            failed.append(f"the log grew by {log / lasted / 1024:.0f} KiB a second")
        failed += self._left(before, files, folder)
        if found["grown_bytes"] > MOST_GROWTH:
            failed.append(f"the daemon grew by {found['grown_bytes'] / (1 << 20):.0f} MiB")
        found["kept_bytes"] = self._resident() - memory
        return {**found, "failed": failed}

    def _place(self, scratch: Path) -> Place:
        return Place(
            self.bed.sockets[NAME], NAME, self.bed.sockets["a"], self._uuid, MEMORY, LIMIT, str(self.bed.state_dir),
            str(self.bed.state_dir / "gemini.toml"), self._port, self.daemon.pid, self.bed.sim,
            self.bed.environment(NAME), str(scratch),
        )  # fmt: skip

    def _own(self) -> set[int]:
        return {os.getpid(), *self._pids.values()}

    def _files(self) -> set[str]:
        shared = {str(path) for path in Path("/dev/shm").glob(f"*{self.bed.id}*")}
        own = {str(path) for path in self.bed.state_dir.rglob("*") if not path.name.startswith("trace.jsonl")}
        return shared | own

    def _left(self, before: dict[str, int], files: set[str], folder: Path) -> list[str]:
        """Remove the hostile tenant; what is then left of it."""
        status = 0
        with contextlib.suppress(OSError):
            status, _ = self.bed.http("DELETE", f"/tenants/{NAME}")
        failed = [] if status == 200 else [f"the hostile tenant cannot be removed: {status}"]
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)  # what it put into its own folder is its own
        more: list[str] = []

        def is_back() -> bool:
            more[:] = self._more(before, files)
            return not more

        with contextlib.suppress(TimeoutError):
            wait_for(is_back, BACK_SECONDS, "end of what the daemon had")
        return failed + more  # of the last look: a later one might meet a file that the daemon is just writing

    def _more(self, before: dict[str, int], files: set[str]) -> list[str]:
        """What there is now that was not there before. The daemon is asked for its state first, for which it asks the
        driver who is on the card: then the simulated one lets go of its pidfds of the dead."""
        with contextlib.suppress(OSError):
            self.bed.http("GET", "/state")
        time.sleep(0.2)
        found = []
        for name, now in used(self.daemon.pid, self._own()).items():
            if now > before[name]:
                which = f": {', '.join(opened(self.daemon.pid))}" if name == "descriptors" else ""
                found.append(f"{now - before[name]} {name} more than before{which}")
        for path in map(Path, self._files() - files):
            with contextlib.suppress(OSError):
                if path.parent == Path("/dev/shm") and path.stat().st_uid != os.geteuid():
                    path.unlink()  # the simulated machine of another user is that user's own
        if left := sorted(self._files() - files):
            found.append(f"left behind: {', '.join(left[:3])}")
        return found


class Attacker:
    """The process that attacks, and all that it starts; leaving the `with` block ends them. TimeoutError where it does
    not come to begin."""

    def __init__(self, name: str, place: Place) -> None:
        words = [sys.executable, "-m", "bench.hostile.attacker", name]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        os.sched_setaffinity(self.process.pid, STRANGERS)  # it starts nothing before it has read its place
        self._place = place
        self.said: list[str] = []
        self.error = ""

    def __enter__(self) -> Attacker:
        try:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(self._place.as_json().encode() + b"\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], PATIENCE_S)[0]:
                raise TimeoutError(f"the attack did not begin within {PATIENCE_S:.0f} s")
            self.process.stdout.readline()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        out = self.process.communicate()[0]
        self.said = [line for line in out.decode(errors="replace").splitlines() if line != "ready"]
        self._errors.seek(0)
        self.error = self._errors.read().decode(errors="replace")
        self._errors.close()
        wait_for(lambda: not _group(self.process.pid), PATIENCE_S, "end of what the attacker had started")


def _group(leader: int) -> list[int]:
    """Living processes of a process group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def middle(windows: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of what was seen in these."""

    def median(of: list[float]) -> float:
        return float(np.median(of))

    return {
        "shares": {name: median([one["shares"][name] for one in windows]) for name in VICTIMS},
        "wait_ms": {
            name: {q: median([one["wait_ms"][name][q] for one in windows]) for q in ("p50", "p90", "p99")}
            for name in VICTIMS
        },
        "daemon_percent": median([one["daemon_percent"] for one in windows]),
    }


def control(calm: list[dict[str, Any]], runs: int) -> dict[str, Any]:
    """What the judge makes of calm itself: every window, and every median of `runs` that followed each other, against
    the rest, as an attack's are. Where that is ever off, so much of what is said of attacks is the machine's."""

    def judged(size: int) -> list[list[str]]:
        parts = range(0, len(calm) - size + 1, size)
        rest = [calm[:at] + calm[at + size :] for at in parts]
        return [late(middle(calm[at : at + size]), middle(of)) for at, of in zip(parts, rest, strict=True) if of]

    single, several = judged(1), judged(runs)
    return {
        "windows": len(single), "off": sum(map(bool, single)), "medians": len(several),
        "medians_off": sum(map(bool, several)), "said": sorted({words for one in several for words in one}),
    }  # fmt: skip


def late(seen: dict[str, Any], calm: dict[str, Any]) -> list[str]:
    """What of the two tenants' shares and waits is worse than in calm by more than is allowed."""
    worse = []
    for name, request in VICTIMS.items():
        lost = 100 * (min(request, calm["shares"][name]) - seen["shares"][name])
        if lost > MOST_LOST_PP:
            worse.append(f"{name} lost {lost:.2f} pp")
        for q in ("p50", "p90"):
            later = seen["wait_ms"][name][q] - calm["wait_ms"][name][q]
            if later > MOST_LATER_MS:
                worse.append(f"{name} waits {later:.1f} ms longer ({q})")
    return worse
