"""Starts the daemon where none answers, and registers tenants at it.

What is started here is started once, also when two `gemini run` begin at the same moment: the start happens under a
flock of its own. It ends by itself some seconds after its last tenant; then another is started and asked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from gemini.cli.control import NoDaemon, answers, ask
from gemini.cli.node import DRIVER, SIM, Node, outside
from gemini.cli.problem import Problem
from gemini.units import format_size
from scheduler_backend import private

LOADS = """
import ctypes, sys
try:
    ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(print(error) or 1)
"""
START_SECONDS = 20.0  # a daemon that has not answered by then will not
IDLE_EXIT_SECONDS = 5.0  # an automatically started daemon outlives its last tenant by this
REGISTER_TRIES = 3  # a fresh daemon does not end when idle for some seconds: the second try finds one, or more is wrong


def _appending(path: Path) -> IO[bytes]:
    """The file, open for more; Problem that names it where that may not be."""
    try:
        return os.fdopen(private.open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # it is not the file that is wrong
        raise Problem(
            f"{path} cannot be written: {error.strerror}; let its owner remove it, or choose another --state-dir"
        ) from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with _appending(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def serve_command(node: Node, *options: str) -> list[str]:
    """The command line of a daemon for this node."""
    sim = [] if node.sim is None else [f"--sim={node.sim}"]
    program = [sys.executable, "-P", "-m", "gemini"]  # -P: not the gemini of whatever folder this is
    return [*program, "serve", "--state-dir", str(node.state_dir), *sim, *options]


def start_daemon(node: Node, *options: str, detached: bool = True) -> subprocess.Popen[bytes]:
    """Start a daemon and wait until it answers. Problem with its last line where it ends before."""
    log = node.state_dir / "daemon.log"
    command = serve_command(node, *options)
    with _appending(log) as sink:
        begin = sink.tell()
        try:
            daemon = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=detached,
                env={**outside(), **({} if node.sim is None else {"GEMINI_SIM": node.sim})},
            )
        except (PermissionError, FileNotFoundError) as error:
            raise Problem(f"the daemon did not start: {command[0]}: {error.strerror}; run make build anew") from None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if answers(node):
            return daemon
        if daemon.poll() is not None:
            with open(log, "rb") as source:
                source.seek(begin)
                lines = source.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            last = lines[-1].removeprefix("gemini: ")
            raise Problem(f"the daemon did not start: {last}; see {log}")
        time.sleep(0.02)
    daemon.kill()
    daemon.wait()
    raise Problem(f"the daemon does not answer at {node.control} within {START_SECONDS:g} s; see {log}")


def ensure_daemon(node: Node) -> None:
    """See that a daemon answers: the one that runs, else one started here that ends with its last tenant."""
    if answers(node):
        check_machine(node)
        return
    node.prepare()
    with _locked(node.state_dir / "start.lock"):
        if not answers(node):
            need_driver(node)
            # One that does not answer any more may not have ended yet: ours waits until the place is free.
            daemon = start_daemon(node, f"--idle-exit={IDLE_EXIT_SECONDS:g}", "--wait")
            if holder(node) != daemon.pid:  # somebody's gemini serve was faster, and ours would wait for its end
                daemon.kill()
                daemon.wait()


def holder(node: Node) -> int:
    """Pid of the daemon that has the state directory, or had it last; 0 where that is not known."""
    try:
        return int((node.state_dir / "daemon.lock").read_text())
    except (OSError, ValueError):
        return 0


def register(node: Node, spec: Mapping[str, Any], *, any_machine: bool = False) -> Any:
    """Make a tenant, at a daemon that is started where none answers; `any_machine`: whatever cards it serves."""
    for _ in range(REGISTER_TRIES):
        with contextlib.suppress(NoDaemon):
            if not (any_machine and answers(node)):
                ensure_daemon(node)
            return ask(node, "POST", "/tenants", spec)
    raise Problem(
        f"the daemon at {node.control} ended {REGISTER_TRIES} times before it had taken the tenant "
        f"{spec['name']}; see {node.state_dir / 'daemon.log'}"
    )


def beyond_cards(node: Node, memory_bytes: int, gpus: Sequence[str]) -> str | None:
    """One line where a tenant's memory is more than each of its cards has; None: it bounds the tenant on one at least.
    `gpus`: UUIDs of its cards."""
    if not memory_bytes:
        return None
    try:
        cards = [d for d in ask(node, "GET", "/state").get("devices", []) if d["uuid"] in gpus]
    except NoDaemon:  # the tenant waits for the next one
        return None
    largest = max(cards, key=lambda d: int(d.get("memory_bytes") or 0), default=None)
    if largest is None or not 0 < int(largest.get("memory_bytes") or 0) < memory_bytes:
        return None
    wanted, there = format_size(memory_bytes), format_size(largest["memory_bytes"])
    return f"memory {wanted} is more than {largest['name']} has ({there}); give less, or it may take the whole card"


def check_machine(node: Node) -> None:
    """Problem where the daemon that runs serves other cards than are meant: a program would run outside its share."""
    served = {device["uuid"]: device for device in ask(node, "GET", "/state").get("devices", [])}
    simulated = any(device.get("simulated") for device in served.values())
    if simulated != (node.sim is not None):
        kind, mend = ("simulated", "add --sim") if simulated else ("real", "leave --sim out")
        raise Problem(f"the daemon at {node.control} serves {kind} GPUs; {mend}, or use another --state-dir")
    if node.sim is not None and not simulated_cards(node.sim) & set(served):
        raise Problem(
            f"the daemon at {node.control} serves another simulated machine than --sim={node.sim}; "
            "use the same id=, or another --state-dir"
        )


def simulated_cards(sim: str) -> set[str]:
    """UUIDs of a simulated machine, which is made if need be; Problem where its text says no machine."""
    from libhook.observer import Timeline

    mend = "write it such as gpus=2,memory=80GiB"
    if "=" not in sim or not sim.isprintable():  # an observer would take it for the name of a machine that runs
        raise Problem(f"--sim={sim!r} says no machine; {mend}", status=2)
    try:
        with Timeline(sim) as timeline:
            return {device.uuid for device in timeline.devices()}
    except OSError as error:
        wrong = error.errno == errno.EINVAL
        raise Problem(f"--sim={sim}: {error.strerror or error}; {mend}", status=2 if wrong else 1) from None


def need_driver(node: Node) -> None:
    """Problem where neither NVIDIA's driver nor a simulated one is to be had. Tried in another process: this one may be
    a user's program, in which the driver is not to be loaded before its share's library."""
    for name in DRIVER:
        path = str(SIM / name) if node.sim is not None else name
        command = [sys.executable, "-ISc", LOADS, path]
        try:
            tried = subprocess.run(command, stdout=subprocess.PIPE, env=outside(), text=True)
        except OSError:  # said when the daemon is started
            return
        if tried.returncode == 0:
            continue
        if node.sim is not None:
            raise Problem(f"the simulated driver does not load: {tried.stdout.strip()}; run make build")
        raise Problem(
            f"no NVIDIA driver on this machine ({name} is not found); install it, or add --sim for a simulated GPU"
        )
    if node.sim is not None:
        simulated_cards(node.sim)
