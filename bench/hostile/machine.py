"""Attacks by processes, signals, files and folders: nothing here says a word to the daemon but by the library."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.bed import LOAD, ROOT
from bench.flood import Client
from bench.hostile.table import LOCAL, OWNER, TENANT, Attack, Place, Steps, attack
from libhook.observer import Timeline

NOBODY = 54321  # a user of whom there are no processes
_EXCHANGE = 2  # RENAME_EXCHANGE
SLACK, WATCHED_S = 0.05, 1.0  # beyond its limit, over so long


def load(place: Place, *words: str, **more: object) -> subprocess.Popen[bytes]:
    """gemini-load as a process of the hostile tenant."""
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        [str(LOAD), "--seconds", "0", *words], env=place.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, **more,
    )  # fmt: skip


def end(*children: subprocess.Popen[bytes]) -> None:
    for child in children:
        child.kill()
    for child in children:
        child.wait()


@attack(TENANT)
def frozen_holders(place: Place) -> Steps:
    """Programs that are stopped while they may hold the token, and go on later"""
    children = [load(place) for _ in range(3)]
    while True:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for child in children:
                child.send_signal(number)
                time.sleep(0.03)
                yield None


@attack(TENANT)
def killed_programs(place: Place) -> Steps:
    """Programs that are killed some milliseconds after they began, and begun again"""
    while True:
        children = [load(place) for _ in range(2)]
        yield None
        time.sleep(secrets.randbelow(150) / 1000)
        end(*children)


@attack(TENANT)
def forks_that_keep_all(place: Place) -> Steps:
    """A client forks children that keep its connections, and ends; they say its words once more"""
    while True:
        client = Client(place.socket, place.card)
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    client.say(b"x" * 64)
                    time.sleep(0.05)
                os._exit(0)
            children.append(child)
        client.close()
        for child in children:
            os.waitpid(child, 0)
        yield None


def _bounded(place: Place, what: int, value: int) -> Steps:
    """A program that cannot have what the library needs: none of it may run beyond the tenant's limit."""

    def prepare() -> None:
        if what == resource.RLIMIT_NPROC and os.getuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        resource.setrlimit(what, (value, value))

    with Timeline(place.sim) as timeline:
        while True:
            child = load(place, preexec_fn=prepare)
            yield None
            began_ns, before = timeline.busy()
            time.sleep(WATCHED_S)
            now_ns, after = timeline.busy()
            share = (after.get(child.pid, 0) - before.get(child.pid, 0)) / (now_ns - began_ns)
            if share > place.limit + SLACK:
                yield f"a program cut short had {share:.2f} of the card, its limit is {place.limit}"
            end(child)


@attack(TENANT, root=True, finding=5)
def no_threads(place: Place) -> Steps:
    """A program that may start no thread (RLIMIT_NPROC), so that the library has no agent"""
    try:
        yield from _bounded(place, resource.RLIMIT_NPROC, 1)
    finally:  # another user has a simulated machine of its own
        for left in Path("/dev/shm").glob(f"gemini-sim-{NOBODY}-*"):
            left.unlink(missing_ok=True)


@attack(TENANT, finding=5)
def no_descriptors(place: Place) -> Steps:
    """A program that may have eight descriptors"""
    return _bounded(place, resource.RLIMIT_NOFILE, 8)


@attack(TENANT, finding=4)
def exported_memory(place: Place) -> Steps:
    """Makes memory, exports, releases, imports and maps it, again and again, to hold more than its limit"""
    path = Path(place.scratch, "exported.py")
    path.write_text(_EXPORTS)
    with Timeline(place.sim) as timeline:
        while True:
            child = subprocess.Popen(
                [sys.executable, str(path), str(place.memory_bytes // 2)], env=place.env, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            yield None
            assert child.stdout is not None
            child.stdout.readline()
            held = timeline.memory().get(child.pid, 0)
            if held > place.memory_bytes:
                yield f"a tenant holds {held >> 20} MiB of the card, its limit is {place.memory_bytes >> 20} MiB"
            end(child)


_EXPORTS = """
import ctypes, struct, sys
cuda = ctypes.CDLL("libcuda.so.1")
size = int(sys.argv[1])
device, context = ctypes.c_int(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
cuda.cuCtxSetCurrent(context)
prop = ctypes.create_string_buffer(struct.pack("<iiiiQ8x", 1, 1, 1, 0, 0), 32)
size_t = ctypes.c_size_t
for _ in range(8):
    handle, fd, again, at = ctypes.c_uint64(), ctypes.c_int(-1), ctypes.c_uint64(), ctypes.c_uint64()
    if cuda.cuMemCreate(ctypes.byref(handle), size_t(size), prop, ctypes.c_uint64(0)):
        break
    cuda.cuMemExportToShareableHandle(ctypes.byref(fd), handle, 1, ctypes.c_uint64(0))
    cuda.cuMemRelease(handle)
    cuda.cuMemImportFromShareableHandle(ctypes.byref(again), ctypes.c_void_p(fd.value), 1)
    cuda.cuMemAddressReserve(ctypes.byref(at), size_t(size), size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
    cuda.cuMemMap(at, size_t(size), size_t(0), again, ctypes.c_uint64(0))
print("held", flush=True)
sys.stdin.read()
"""


@attack(TENANT)
def sockets_removed(place: Place) -> Steps:
    """Removes the files of its sockets again and again, or puts folders, links and foreign sockets in their places"""
    while True:
        for path in (place.socket, place.page):
            for put in (lambda path=path: None, os.mkdir, lambda path=path: os.symlink("/dev/zero", path), _bind):
                with contextlib.suppress(OSError):
                    os.unlink(path)
                with contextlib.suppress(OSError):
                    os.rmdir(path)
                with contextlib.suppress(OSError, TypeError):
                    put(path)
                yield None
                time.sleep(0.02)


def _bind(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path)


@attack(TENANT)
def folder_moved(place: Place) -> Steps:
    """Moves the folder of its sockets away, and puts a link to another tenant's in its place"""
    folder, moved = Path(place.socket).parent, Path(place.scratch, "moved")
    other = Path(place.victim).parent
    while True:
        for put in (lambda: None, lambda: folder.symlink_to(other), lambda: folder.write_text("")):
            with contextlib.suppress(OSError):
                folder.rename(moved)
            with contextlib.suppress(OSError):
                put()
            yield None
            time.sleep(0.3)
            with contextlib.suppress(OSError):
                folder.unlink()
            with contextlib.suppress(OSError):
                moved.rename(folder)
            if moved.exists():
                shutil.rmtree(moved, ignore_errors=True)
        if not Path(place.victim).exists():
            yield "another tenant's socket is gone"


@attack(LOCAL, root=True, finding=7)
def links_exchanged(place: Place) -> Steps:
    """Owns its folder, and exchanges its sockets with a link to a file of root's while the daemon makes them anew"""
    libc = ctypes.CDLL(None, use_errno=True)
    secret = Path(place.scratch, "secret")
    secret.write_text("root's")
    secret.chmod(0o600)
    folder = Path(place.socket).parent
    os.chown(folder, NOBODY, NOBODY)
    link = folder / "link"
    while True:
        with contextlib.suppress(OSError):
            link.unlink(missing_ok=True)
            link.symlink_to(secret)
        for path in (place.socket, place.page):
            with contextlib.suppress(OSError):
                os.unlink(path)
        for _ in range(20_000):
            for path in (place.socket, place.page):
                libc.renameat2(-100, os.fsencode(path), -100, os.fsencode(link), _EXCHANGE)
        if secret.stat().st_mode & 0o777 != 0o600:
            yield f"a file of root's is open to all: mode {secret.stat().st_mode & 0o777:o}"
            secret.chmod(0o600)
        yield None


@attack(LOCAL, root=True, finding=6)
def planted_state(place: Place) -> Steps:
    """Makes the folder that a user's daemon would take by default, with a link to one of his files for its state"""
    uid = NOBODY + 1
    folder = Path(f"/tmp/gemini-{uid}")
    target = Path(place.scratch, "target")
    os.chmod(place.scratch, 0o755)
    code = (
        f"import os, subprocess, sys; os.setgid({uid}); os.setuid({uid}); "
        "sys.exit(subprocess.run([sys.executable, '-m', 'gemini', 'serve', '--sim', '--idle-exit', '1'], "
        "timeout=20, stdin=subprocess.DEVNULL).returncode)"
    )
    env = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    env["GEMINI_SIM"] = f"id=planted-{os.getpid()}"
    while True:
        target.write_text("his own")
        os.chown(target, uid, uid)
        folder.mkdir(exist_ok=True)
        os.chown(folder, NOBODY, NOBODY)
        folder.chmod(0o777)
        for name in ("state.json", "state.tmp", "trace.jsonl"):
            with contextlib.suppress(OSError):
                (folder / name).symlink_to(target)
        yield None
        subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, check=False, capture_output=True)
        if target.read_text() != "his own":
            yield "a user's file was written through a link that another user had planted"
        shutil.rmtree(folder, ignore_errors=True)
        for left in Path("/dev/shm").glob(f"gemini-sim-*planted-{os.getpid()}*"):
            left.unlink(missing_ok=True)


@attack(OWNER)
def second_daemon(place: Place) -> Steps:
    """Starts a second daemon on the same state directory, again and again"""
    words = [sys.executable, "-m", "gemini", "serve", "--state-dir", place.state_dir, "--sim"]
    while True:
        child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield None
        try:
            if child.wait(20) == 0:
                yield "a second daemon ended as if all were well"
        except subprocess.TimeoutExpired:
            end(child)
            yield "a second daemon serves the same state directory"


@attack(OWNER)
def reloads(place: Place) -> Steps:
    """SIGHUP a hundred times a second, over settings that are right, wrong, half written and gone"""
    path = Path(place.config)
    was = path.read_text()
    while True:
        for text in (was, was + "\nnonsense = [", was + "\n[tenants.x]\nrequest = 7\n", "\0" * 4096, was):
            path.write_text(text)
            with contextlib.suppress(ProcessLookupError):
                os.kill(place.daemon, signal.SIGHUP)
            yield None
            time.sleep(0.01)


@attack(OWNER)
def full_disk(place: Place) -> Steps:
    """No file of the daemon may grow any more, and its state cannot be written"""
    resource.prlimit(place.daemon, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    while True:
        client = Client(place.socket, place.card)
        yield None
        time.sleep(0.05)
        client.close()


@attack(OWNER)
def no_descriptors_left(place: Place) -> Steps:
    """The daemon may have ten descriptors more than it has, and a tenant's processes come"""
    used = len(os.listdir(f"/proc/{place.daemon}/fd"))
    _soft, hard = resource.prlimit(place.daemon, resource.RLIMIT_NOFILE)
    resource.prlimit(place.daemon, resource.RLIMIT_NOFILE, (used + 10, hard))
    while True:
        clients = [Client(place.socket, place.card) for _ in range(20)]
        yield None
        time.sleep(0.05)
        for client in clients:
            client.close()


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
