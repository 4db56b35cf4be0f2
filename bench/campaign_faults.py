"""The faults of the campaign, each with a name: what is done to a scene, until it is over. Nothing is judged here.

A fault gets a scene whose tenants are busy and returns when the fault is over, or when the daemon must have detected
it. Where it ends processes or takes a tenant's processes away it says so to the scene. Faults on messages go through a
proxy on tenant a's socket. The situations that bring a message about (a connection cut, the others away for a while)
are brought about as well. A case in which the message was never seen has failed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.arms import compile_program
from bench.bed import ROOT, wait_for
from bench.scene import BUILD, MIB, Scene

LEASE_SECONDS = 0.5  # by when a frozen or dead holder has been detected
AWAY_SECONDS = 0.8
SEEN_SECONDS = 10.0  # for the first message to tamper with


class Fault(NamedTuple):
    """`proxied`: tenant a speaks through the proxy, and without `paged` that alone: it finds no page socket;
    `wallclock`: all run under the clock that can jump."""

    run: Callable[[Scene], None]
    proxied: bool = False
    paged: bool = True
    wallclock: bool = False


def _others(scene: Scene) -> list[int]:
    return [pid for name in scene.shares if name != "a" for pid in scene.pids(name)]


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# --- messages --------------------------------------------------------------------------------------------------------
MESSAGES = {  # name -> (type, to the client?, flag that must be set, situation)
    "Hello": (1, False, 0, "cut"),
    "Welcome": (2, True, 0, "cut"),
    "TokenRequest": (3, False, 0, "another comes"),
    "renewal": (3, False, 1, "long kernels"),
    "Grant": (4, True, 0, "others away"),
    "prepared Grant": (4, True, 4, ""),
    "Extend": (5, True, 0, "others away"),
    "Revoke": (6, True, 0, "a visitor"),
    "Return": (7, False, 0, ""),
    "MemReserve": (8, False, 0, ""),
    "MemReply": (9, True, 0, ""),
    "MemRelease": (10, False, 0, ""),
    "MemRecall": (11, True, 0, "memory runs short"),
    "Stats": (12, False, 0, "wait"),
    "Error": (13, True, 0, "nonsense"),
    "Used": (14, False, 0, "company"),
}
MODES = {"lost": "lose", "doubled": "double", "late": "late"}


NO_PAGE = {"Return"}  # where there is one, a Return goes behind the word on it, and never as a message


@contextlib.contextmanager
def _visitor(scene: Scene) -> Iterator[None]:
    """Somebody of class latency comes and goes all the time, and each time takes the token from whoever holds it."""
    request, limit = scene.shares["b"]
    _change(scene, "b", request - 0.1, limit)
    scene.bed.tenant("visitor", 0.1, 1.0, latency=True)
    child = scene.bed.load("visitor", "--kernel-us", 200, "--burst", 2, "--gap-us", 6000)
    try:
        yield
    finally:
        scene.kill(child.pid)
        scene.bed.http("DELETE", "/tenants/visitor")
        _change(scene, "b", request, limit)


@contextlib.contextmanager
def _company(scene: Scene) -> Iterator[None]:
    """Somebody whose host takes time, so that it runs beside the others, of whom each then says what it uses. Nobody's
    limit binds meanwhile: beside one that binds all have turns."""
    for name, (request, _) in scene.shares.items():
        _change(scene, name, request - (0.1 if name == "b" else 0), 1.0)
    scene.bed.tenant("company", 0.1, 1.0)
    pid = scene.bed.spawn("company", [scene.program, "40", "16", "0", "40"], env=scene.env).pid
    try:
        yield
    finally:
        scene.kill(pid)
        scene.bed.http("DELETE", "/tenants/company")
        for name, (request, limit) in scene.shares.items():
            _change(scene, name, request, limit)


def _change(scene: Scene, name: str, request: float, limit: float, **more: int) -> None:
    status, answer = scene.bed.http("PATCH", f"/tenants/{name}", {"request": request, "limit": limit, **more})
    assert status == 200, answer


@contextlib.contextmanager
def _short_of_memory(scene: Scene) -> Iterator[None]:
    """Tenant a may have little more than it has without its blocks, and one process more wants blocks of it."""
    limit = scene.workload["a"][2] * MIB
    pid = scene.spawn("a", (100, 16, 24))
    wait_for(lambda: scene.bed.timeline.busy()[1].get(pid, 0) > 0, 30, "work of one process more")
    held = []
    for _ in range(30):
        time.sleep(0.001)
        memory = scene.bed.timeline.memory()
        held.append(sum(memory.get(own, 0) for own in scene.pids("a")))
    _change(scene, "a", *scene.shares["a"], memory_bytes=min(held) + 4 * MIB)
    try:
        yield
    finally:
        scene.kill(pid)
        _change(scene, "a", *scene.shares["a"], memory_bytes=limit)


DURING: dict[str, Callable[[Scene], contextlib.AbstractContextManager[None]]] = {
    "a visitor": _visitor,
    "company": _company,
    "memory runs short": _short_of_memory,
    "nonsense": lambda _: contextlib.nullcontext(),
}


def message(kind: str, mode: str) -> Callable[[Scene], None]:
    """For half a second every such message between tenant a and the daemon is lost, doubled, or 50 ms late."""

    def run(scene: Scene) -> None:
        number, down, flag, situation = MESSAGES[kind]
        order = {"type": number, "down": down, "flag": flag, "mode": MODES[mode], "ms": 50}
        scene.tell_proxy({**order, "cut": situation == "cut", "spoil": int(situation == "nonsense")})
        if situation == "others away":
            for _ in range(2):
                _signal(_others(scene), signal.SIGSTOP)
                time.sleep(AWAY_SECONDS)
                _signal(_others(scene), signal.SIGCONT)
                time.sleep(0.1)
        elif situation in ("another comes", "long kernels"):  # whose drain outlasts half of a lease
            more = [scene.spawn("a", (100 if situation == "another comes" else 40_000, 1, 1)) for _ in range(2)]
            time.sleep(1.0)
            for pid in more:
                scene.kill(pid)
        elif situation in DURING:
            with DURING[situation](scene):
                _until_seen(scene)
                time.sleep(0.5)
                if mode == "lost" and situation == "memory runs short":  # who did not hear it is asked again
                    if not scene.tell_proxy({**order, "mode": "late", "ms": 0}):
                        scene.notes["unseen"] = kind
                    _until_seen(scene)
        else:
            time.sleep(2.2 if situation == "wait" else 0.5)
        _until_seen(scene)
        scene.notes["messages"] = scene.tell_proxy({})
        if not scene.notes["messages"]:
            scene.notes["unseen"] = kind

    return run


def _until_seen(scene: Scene) -> None:
    """Wait for the first message that the proxy tampers with; who waited in vain is told by the case's own check."""
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: scene.tell_proxy({"tell": True}), SEEN_SECONDS, "message to tamper with")


def another_version(version: int) -> Callable[[Scene], None]:
    """Daemon and library of different versions meet, as in an upgrade; then both are of one version again."""

    def run(scene: Scene) -> None:
        scene.tell_proxy({"mode": "version", "version": version, "cut": True})
        time.sleep(0.7)
        scene.notes["messages"] = scene.tell_proxy({"cut": True})

    return run


def cut(times: int) -> Callable[[Scene], None]:
    """The connection is gone, again and again."""

    def run(scene: Scene) -> None:
        for _ in range(times):
            scene.tell_proxy({"cut": True})
            time.sleep(0.05)

    return run


# --- processes -------------------------------------------------------------------------------------------------------
def killed(again: bool) -> Callable[[Scene], None]:
    """Every process of a is killed; with `again` new ones take their place."""

    def run(scene: Scene) -> None:
        pids = scene.pids("a")
        for pid in pids:
            scene.kill(pid)
        if again:
            for words in scene.workload["a"][3]:
                scene.spawn("a", words)
            scene.bed.until_busy("a")
        else:
            scene.leave("a")

    return run


def one_killed(scene: Scene) -> None:
    """One of b's processes, where there are several; of a's otherwise, and another comes."""
    pid = scene.pids("b")[0]
    scene.kill(pid)
    if not scene.pids("b"):
        scene.spawn("b")
    time.sleep(0.2)


def terminated(scene: Scene) -> None:
    """SIGTERM: the program ends as a program ends."""
    for pid in scene.pids("a"):
        scene.kill(pid, signal.SIGTERM)
    scene.leave("a")


def frozen(seconds: float, resumed: bool, name: str = "a") -> Callable[[Scene], None]:
    """SIGSTOP; with `resumed` SIGCONT, after the lease has run out where that is longer."""

    def run(scene: Scene) -> None:
        pids = scene.pids(name)
        _signal(pids, signal.SIGSTOP)
        time.sleep(seconds)
        if resumed:
            _signal(pids, signal.SIGCONT)
        else:
            scene.leave(name)

    return run


def flickering(scene: Scene) -> None:
    """Frozen and woken thirty times in a second, at moments that fall anywhere in its turn."""
    for number in range(30):
        _signal(scene.pids("a"), signal.SIGSTOP)
        time.sleep(0.003 + number % 7 * 0.004)
        _signal(scene.pids("a"), signal.SIGCONT)
        time.sleep(0.015)


def forked_while_holding(dies: bool) -> Callable[[Scene], None]:
    """A process of a forks while it holds; the child keeps every descriptor. With `dies` the parent is killed then."""

    def run(scene: Scene) -> None:
        program = compile_program(ROOT / "tests" / "apps" / "fork_holder.c", BUILD / "fork_holder")
        child = scene.bed.spawn("a", [program], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        orphan = int(child.stdout.readline())
        child.stdout.readline()
        time.sleep(0.2)
        if dies:
            scene.kill(child.pid)
        os.kill(orphan, signal.SIGKILL)
        if not dies:
            time.sleep(0.2)
            scene.kill(child.pid)

    return run


def suspended(scene: Scene) -> None:
    """Everything of ours stops for a second and goes on: what a suspended machine looks like from inside."""
    everybody = [pid for name in scene.shares for pid in scene.pids(name)]
    assert scene.bed.daemon
    _signal([*everybody, scene.bed.daemon.pid], signal.SIGSTOP)
    time.sleep(1.0)
    _signal([scene.bed.daemon.pid, *everybody], signal.SIGCONT)


def joined(count: int) -> Callable[[Scene], None]:
    """So many processes more of one tenant at once, and gone again."""

    def run(scene: Scene) -> None:
        more = [scene.spawn("b", (100, 1, 1)) for _ in range(count)]
        time.sleep(1.0)
        for pid in more:
            scene.kill(pid)

    return run


# --- the daemon ------------------------------------------------------------------------------------------------------
def daemon_killed(away: float, number: int = signal.SIGKILL, times: int = 1) -> Callable[[Scene], None]:
    """The daemon ends and is started again so much later."""

    def run(scene: Scene) -> None:
        for turn in range(times):
            assert scene.bed.daemon
            time.sleep(0.0037 * turn)  # another point of the turn
            scene.bed.daemon.send_signal(number)
            scene.bed.daemon.wait()
            time.sleep(away)
            scene.bed.start_daemon()

    return run


def daemon_killed_while_joining(scene: Scene) -> None:
    """Killed while processes of a say Hello for the first time."""
    more = [scene.spawn("a", (100, 1, 1)) for _ in range(4)]
    time.sleep(0.03)
    daemon_killed(0.1)(scene)
    time.sleep(0.5)
    for pid in more:
        scene.kill(pid)


def daemon_and_holder_killed(scene: Scene) -> None:
    """Both at once: whose token it was must be found out without either."""
    assert scene.bed.daemon
    scene.bed.daemon.kill()
    for pid in scene.pids("a"):
        scene.kill(pid)
    scene.leave("a")
    scene.bed.daemon.wait()
    scene.bed.start_daemon()
    time.sleep(LEASE_SECONDS)


def daemon_frozen(seconds: float) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        assert scene.bed.daemon
        _signal([scene.bed.daemon.pid], signal.SIGSTOP)
        time.sleep(seconds)
        _signal([scene.bed.daemon.pid], signal.SIGCONT)

    return run


def reloaded(scene: Scene) -> None:
    """SIGHUP, many times."""
    assert scene.bed.daemon
    for _ in range(20):
        scene.bed.daemon.send_signal(signal.SIGHUP)
        time.sleep(0.01)


def state_lost(*ways: str) -> Callable[[Scene], None]:
    """state.json is damaged, or removed, while the daemon is away: once for each of the ways."""

    def run(scene: Scene) -> None:
        state = scene.bed.state_dir / "state.json"
        for way in ways:
            assert scene.bed.daemon
            scene.bed.daemon.kill()
            scene.bed.daemon.wait()
            if way == "removed":
                state.unlink()
            else:
                state.write_text('{"format": 1, "reserved')
            scene.bed.start_daemon()
            for name, (request, limit, memory, _processes) in scene.workload.items():
                scene.bed.tenant(name, request, limit, memory=memory << 20)
            time.sleep(LEASE_SECONDS)

    return run


def share_changed(scene: Scene) -> None:
    """Requests change while everybody is busy."""
    names = list(scene.shares)
    first, last = scene.shares[names[0]], scene.shares[names[-1]]
    for name, share in ((names[0], (first[0] - 0.05, first[1])), (names[-1], (last[0] + 0.05, max(last[1], 0.5)))):
        _change(scene, name, *share)
        scene.shares[name] = share


def tenant_removed(scene: Scene) -> None:
    """Tenant a is removed while it holds; its processes are still there."""
    status, answer = scene.bed.http("DELETE", "/tenants/a")
    assert status == 200, answer
    scene.leave("a")


# --- the node --------------------------------------------------------------------------------------------------------
def socket_directory_removed(scene: Scene) -> None:
    """Somebody cleans up /run under the daemon; then a new process of that tenant comes."""
    shutil.rmtree(scene.bed.state_dir / "tenants" / "a")
    time.sleep(0.6)
    pid = scene.spawn("a", (100, 1, 1))
    before = scene.bed.timeline.busy(0)[1].get(pid, 0)
    wait_for(lambda: scene.bed.timeline.busy(0)[1].get(pid, 0) > before, 10, "work of a process that came later")
    scene.kill(pid)


def disk_full(scene: Scene) -> None:
    """No file of the daemon may grow: traces and state.json fail, while processes come and go."""
    assert scene.bed.daemon
    pid = scene.bed.daemon.pid
    old = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    joined(2)(scene)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, old)


def disk_full_daemon_killed_twice(scene: Scene) -> None:
    """The daemon dies and is started twice while state.json cannot be written: what is on the disk is ever older."""
    in_the_way = scene.bed.state_dir / "state.tmp"
    in_the_way.mkdir()
    for _ in range(2):
        daemon_killed(0.2)(scene)
        time.sleep(1.0)  # of grants that no disk knows of
    in_the_way.rmdir()


def out_of_descriptors(scene: Scene) -> None:
    """No descriptor is left while processes want to join; then there are some again and they must be served."""
    assert scene.bed.daemon
    pid = scene.bed.daemon.pid
    old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 10, old[1]))
    time.sleep(1.2)  # they run out gradually as a rule: the daemon looks once a second
    more = [scene.spawn("b", (100, 1, 1)) for _ in range(2)]
    time.sleep(1.0)
    scene.notes["daemon_cpu_percent"] = _cpu_percent(pid, 0.5)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
    for one in more:
        wait_for(lambda one=one: scene.bed.timeline.busy(0)[1].get(one, 0) > 0, 10, "work of who had to wait")  # type: ignore[misc]
        scene.kill(one)


def _cpu_percent(pid: int, seconds: float) -> float:
    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds * 100


def wall_clock_jumps(seconds: float) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        for jump in (seconds, 0.0, -seconds):
            with scene.clock.open("r+b") as clock:
                clock.write(struct.pack("d", jump))
            time.sleep(0.2)

    return run


# --- hostile ---------------------------------------------------------------------------------------------------------
def garbage(scene: Scene) -> None:
    """Somebody in a's container writes nonsense on both of its sockets."""
    path = scene.bed.sockets["a"]
    for number in range(200):
        for end in ("", ".page"):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                one.settimeout(0.2)
                one.connect(path + end)
                one.send(os.urandom(1 + number * 5))


FAULTS: dict[str, Fault] = {
    **{
        f"{kind} {mode}": Fault(message(kind, mode), proxied=True, paged=kind not in NO_PAGE)
        for kind in MESSAGES
        for mode in MODES
    },
    "older version": Fault(another_version(0), proxied=True),
    "newer version": Fault(another_version(2), proxied=True),
    "connection cut": Fault(cut(1), proxied=True),
    "connection cut ten times": Fault(cut(10), proxied=True),
    "holder killed": Fault(killed(False)),
    "holder killed, another comes": Fault(killed(True)),
    "one of several killed": Fault(one_killed),
    "program terminated": Fault(terminated),
    "frozen for good": Fault(frozen(LEASE_SECONDS, False)),
    "frozen for 10 ms": Fault(frozen(0.01, True)),
    "frozen, resumed within its lease": Fault(frozen(0.025, True)),
    "frozen, resumed after its lease": Fault(frozen(1.0, True)),
    "another one frozen, resumed after its lease": Fault(frozen(1.0, True, "b")),
    "flickering": Fault(flickering),
    "forked while holding": Fault(forked_while_holding(False)),
    "forked while holding, then killed": Fault(forked_while_holding(True)),
    "machine suspended": Fault(suspended),
    "eight processes join and leave": Fault(joined(8)),
    "daemon killed, back at once": Fault(daemon_killed(0)),
    "daemon killed, back in 0.5 s": Fault(daemon_killed(0.5)),
    "daemon killed three times": Fault(daemon_killed(0.2, times=3)),
    "daemon terminated, back at once": Fault(daemon_killed(0, signal.SIGTERM)),
    "daemon killed while processes join": Fault(daemon_killed_while_joining),
    "daemon and holder killed": Fault(daemon_and_holder_killed),
    "daemon frozen for 0.3 s": Fault(daemon_frozen(0.3)),
    "daemon frozen for 2 s": Fault(daemon_frozen(2.0)),
    "daemon reloaded": Fault(reloaded),
    "daemon's state lost": Fault(state_lost("damaged")),
    "daemon's state removed": Fault(state_lost("removed")),
    "daemon's state damaged, then removed": Fault(state_lost("damaged", "removed")),
    "shares changed": Fault(share_changed),
    "tenant removed while it holds": Fault(tenant_removed),
    "socket directory removed": Fault(socket_directory_removed),
    "disk full": Fault(disk_full),
    "disk full, daemon killed twice": Fault(disk_full_daemon_killed_twice),
    "out of descriptors": Fault(out_of_descriptors),
    "wall clock jumps an hour": Fault(wall_clock_jumps(3600.0), wallclock=True),
    "wall clock jumps ten years": Fault(wall_clock_jumps(3.2e8), wallclock=True),
    "garbage on the sockets": Fault(garbage),
}
