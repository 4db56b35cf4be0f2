"""The local node as the commands see it: where the daemon's state lies, how it is spoken to, how it is started.

A node is a state directory: `control.sock` (HTTP/1.1, see docs/protocol.md), a socket for each tenant, and the flock
that keeps a second daemon out. What is started here is started once, also when two `gemini run` begin at the same
moment: the start happens under a flock of its own. A daemon that was started here ends by itself some seconds after
its last tenant, so one that just answered may be gone at the next question: then another is started and asked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import libhook
from gemini.cli.problem import Problem, cause_of
from gemini.units import format_size
from scheduler_backend import private
from scheduler_backend.config import SYSTEM_STATE_DIR
from scheduler_backend.problem import Problem as DaemonProblem

LIB = Path(libhook.__file__).resolve().parent / "lib"
HOOK = LIB / "libgemini_hook.so"
SIM = LIB / "sim"
LOAD = LIB / "gemini-load"
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")  # found by their place in the search path
LOADS = """
import ctypes, sys
try:
    ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(print(error) or 1)
"""

SUN_PATH = 107  # bytes that fit into sockaddr_un.sun_path, less the final zero
LONGEST_SOCKET = "tenants/{name}/tenant.sock.page"
START_SECONDS = 20.0  # a daemon that has not answered by then will not
IDLE_EXIT_SECONDS = 5.0  # an automatically started daemon outlives its last tenant by this
REGISTER_TRIES = 3  # a fresh daemon does not end when idle for some seconds: the second try finds one, or more is wrong
ENDING = 503  # the answer of a daemon that takes no tenants any more
TOO_MANY = 429  # ... of one whose places this user has all
AGAIN_SECONDS = 0.1


def simulation(sim: str | None) -> str | None:
    """The simulated machine that is meant: `--sim=SPEC`, else GEMINI_SIM; bare `--sim` is one GPU. None: a real one."""
    inherited = os.environ.get("GEMINI_SIM") or None
    return inherited if sim is None else sim or inherited or "gpus=1"


@dataclass(frozen=True)
class Node:
    """One node daemon's place: its state directory and the machine (real, or simulated by a GEMINI_SIM text)."""

    state_dir: Path
    sim: str | None = None

    @property
    def control(self) -> Path:
        return self.state_dir / "control.sock"

    def check_path(self, tenant: str = "x") -> None:
        longest = self.state_dir / LONGEST_SOCKET.format(name=tenant)
        over = len(os.fsencode(longest)) - SUN_PATH
        if over > 0:
            raise Problem(
                f"the socket path {longest} is {over} bytes too long for a Unix socket ({SUN_PATH}); "
                "choose a shorter --state-dir or --name"
            )

    def prepare(self) -> None:
        """Make the state directory; Problem where that cannot be written."""
        self.check_path()
        try:
            self.state_dir.mkdir(parents=True, exist_ok=True, mode=private.FOLDER_MODE)
            private.check_folder(self.state_dir)
        except OSError as error:
            raise Problem(f"state directory {self.state_dir}: {error.strerror}; choose another --state-dir") from None
        except DaemonProblem as error:
            raise Problem(str(error)) from None
        if not os.access(self.state_dir, os.W_OK | os.X_OK):
            raise Problem(f"state directory {self.state_dir} cannot be written; choose another --state-dir")

    def environment(self) -> dict[str, str]:
        """Additions to a process's environment that make it see this node's GPUs (nothing, on a real one)."""
        return {} if self.sim is None else sim_environment(self.sim)


def sim_front() -> list[str]:
    """Simulated libraries that have to be loaded before others of their name: published packages bring NVIDIA's own
    and look for them beside themselves first, where only a library that is there already comes before."""
    return sorted(str(path) for path in SIM.glob("*.so.*") if path.name not in DRIVER)


def sim_environment(spec: str) -> dict[str, str]:
    inherited = os.environ.get("LD_LIBRARY_PATH", "")
    paths = [str(SIM), *(p for p in inherited.split(":") if p and p != str(SIM))]
    return {"GEMINI_SIM": spec, "LD_LIBRARY_PATH": ":".join(paths)}


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Also sees that it is a daemon that may be believed: anybody can make a folder of this name in /tmp."""
        folder = self._path.parent
        try:
            believed = private.check_daemon_folder(folder)
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            _wait_to_connect(self.sock, self._path, self.timeout or 0.0)
            self.sock.settimeout(self.timeout)
            private.check_answering(self.sock, folder, believed)
        except DaemonProblem as error:
            raise Problem(str(error)) from None


def _wait_to_connect(connection: socket.socket, path: Path, seconds: float) -> None:
    """Connect, also where the daemon's queue is full for now: who may not wait in the kernel is turned away at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), 0))
    try:
        connection.connect(str(path))
    except BlockingIOError:
        raise TimeoutError from None


class NoDaemon(Problem):
    """Nobody answers on the control socket, or one that ends just then."""


def no_daemon(node: Node) -> NoDaemon:
    mend = closed_to_us() or "start one with gemini serve or gemini run"
    return NoDaemon(f"no daemon answers at {node.control}; {mend}")


def closed_to_us() -> str | None:
    """Where the machine's own daemon does not let this user in: what to do about that."""
    control = SYSTEM_STATE_DIR / "control.sock"
    try:
        group = control.stat().st_gid
    except OSError:
        return None
    if os.access(control, os.W_OK):
        return None
    try:
        name = grp.getgrgid(group).gr_name
    except KeyError:
        name = str(group)
    return f"that on {SYSTEM_STATE_DIR} is for group {name}: sudo usermod -aG {name} USER, and log in anew"


def ask(node: Node, method: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = 10.0) -> Any:
    """One exchange with the daemon, which is waited for where it has no place for this user. NoDaemon where none
    listens, or it ends instead of answering; Problem with its own line where it refuses."""
    deadline = time.monotonic() + timeout
    while True:
        status, answer = _exchange(node, method, path, body, timeout)
        if status != TOO_MANY or time.monotonic() > deadline:
            break
        time.sleep(AGAIN_SECONDS)
    if status == ENDING:
        raise no_daemon(node)
    if status >= 400:
        raise Problem(str(answer["error"] if isinstance(answer, dict) and "error" in answer else answer))
    return answer


def _exchange(node: Node, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> tuple[int, Any]:
    """Status and answer."""
    connection = _Connection(node.control, timeout)
    try:
        payload = None if body is None else json.dumps(body)
        with contextlib.suppress(BrokenPipeError):  # one that refuses answers first
            connection.request(method, path, payload, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read().decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError, ConnectionError):
        raise no_daemon(node) from None
    except PermissionError:
        mend = "ask its owner, or use --state-dir"
        if node.state_dir == SYSTEM_STATE_DIR:
            mend = closed_to_us() or mend
        raise Problem(f"{node.control} may not be opened by this user; {mend}") from None
    except TimeoutError:
        raise Problem(
            f"the daemon at {node.control} does not answer within {timeout:g} s; end it and start it anew"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and "too long" in str(error):
            node.check_path()
        raise Problem(f"the daemon at {node.control} broke off: {cause_of(error)}; see its log") from None
    finally:
        connection.close()
    try:
        return reply.status, json.loads(text) if text else {}
    except ValueError:
        return reply.status, {"error": text.strip() or reply.reason} if reply.status >= 400 else text


def tenant_path(name: str) -> str:
    """Where the daemon answers for this tenant, whatever name a person wrote."""
    if name in ("", ".", ".."):  # no path holds these; and nobody is called so
        raise Problem(f"there is no tenant {name!r}; gemini ps names those that there are")
    return f"/tenants/{urllib.parse.quote(name, safe='', errors='surrogateescape')}"


def answers(node: Node) -> bool:
    """Does a daemon listen on the control socket?"""
    try:
        ask(node, "GET", "/healthz", timeout=5.0)
    except NoDaemon:
        return False
    return True


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


def preloaded_else(ours: Sequence[str]) -> list[str]:
    """What is preloaded besides these."""
    return [path for path in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if path not in ours]


def outside() -> dict[str, str]:
    """The environment of a process of ours that is in no tenant, though this one may be, or is to start some."""
    environment = {name: value for name, value in os.environ.items() if name not in ("GEMINI_SOCKET", "LD_PRELOAD")}
    others = preloaded_else([str(HOOK), *sim_front()])
    return {**environment, **({"LD_PRELOAD": " ".join(others)} if others else {})}


def tenant_environment(
    node: Node, socket_path: str, shares: tuple[float, float], memory_bytes: int = 0, gpus: Sequence[str] = ()
) -> dict[str, str]:
    """Additions to the environment of a tenant's process (docs/operations.md lists them)."""
    ours = [str(HOOK), *(sim_front() if node.sim is not None else [])]
    return {
        **node.environment(),
        "LD_PRELOAD": " ".join([*ours, *preloaded_else(ours)]),
        "GEMINI_SOCKET": socket_path,
        "GEMINI_REQUEST": f"{shares[0]:g}",
        "GEMINI_LIMIT": f"{shares[1]:g}",
        **({"GEMINI_MEMORY_LIMIT": str(memory_bytes)} if memory_bytes else {}),
        **({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}),
    }
