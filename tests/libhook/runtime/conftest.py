"""A daemon by script, and the client program of client.c, for tests of the gate and the agent over real sockets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from libhook import core
from libhook.build import preloaded
from libhook.core import ffi, lib
from tests.libhook.runtime import seams as seams_of

ROOT = Path(__file__).parents[3]
LIB = ROOT / "libhook" / "lib"
MS = 1_000_000
PATIENCE_S = 60.0  # for what must come: any process may stand still for seconds
F_ADD_SEALS = 1033
Run = Callable[..., subprocess.Popen[str]]
SEALS = 0x2 | 0x4 | 0x10  # shrink, grow, future write


@pytest.fixture(scope="session")
def client_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("client") / "client"
    sources = [
        Path(__file__).with_name("client.c"),
        *sorted((ROOT / "libhook" / "core").glob("*.c")),
        *sorted((ROOT / "libhook" / "runtime").glob("*.c")),
        *(ROOT / "libhook" / "hooks" / f"{name}.c" for name in ("launch", "sync", "graph", "graph_pause")),
    ]
    command = ["gcc", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-o", str(binary)]
    extra = os.environ.get("GEMINI_CFLAGS", "").split()
    subprocess.run([*command, *extra, *map(str, sources), "-lpthread"], check=True)
    return binary


@pytest.fixture(scope="session")
def seams_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seams_of.build(tmp_path_factory.mktemp("seams") / "libseams.so")


@pytest.fixture
def seams(seams_library: Path, tmp_path: Path) -> seams_of.Seams:
    """The runtime's hidden functions, with static data of this test's own."""
    return seams_of.Seams(shutil.copy(seams_library, tmp_path / "libseams.so"))


class Page:
    """The daemon's page and the socket over which it is passed."""

    def __init__(self, path: str, incarnation: int) -> None:
        self.fd = os.memfd_create("page", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(self.fd, 4096)
        import mmap

        self.map = mmap.mmap(self.fd, 4096)
        self.page = ffi.cast("struct wire_page *", ffi.from_buffer(self.map))
        lib.wire_page_init(self.page, incarnation)
        import fcntl

        fcntl.fcntl(self.fd, F_ADD_SEALS, SEALS)
        self.incarnation = incarnation
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen()
        self.nonces: list[int] = []
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            magic, version, nonce = struct.unpack("<IIQ", connection.recv(16))
            assert (magic, version) == (lib.WIRE_MAGIC, lib.WIRE_VERSION)
            self.nonces.append(nonce)
            offer = struct.pack("<IIQQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, self.incarnation, 4096)
            socket.send_fds(connection, [offer], [self.fd])
            self.connections.append(connection)

    def store(self, epoch: int, slot: int = 3) -> None:
        lib.wire_page_store_epoch(self.page, slot, epoch)

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()


class Daemon:
    """The other end of the wire: one ROUTER, driven line by line by a test."""

    def __init__(self, path: Path, incarnation: int = 1, page: bool = True) -> None:
        self.path = path
        self.incarnation = incarnation
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(f"ipc://{path}")
        self.page = Page(f"{path}.page", incarnation) if page else None
        self.serial = 0
        self.story: list[tuple[float, str]] = []

    def close(self) -> None:
        self.socket.close(0)
        if self.page:
            self.page.close()
        for name in (self.path, Path(f"{self.path}.page")):
            name.unlink(missing_ok=True)

    def receive(self, timeout: float = PATIENCE_S) -> tuple[bytes, int, Any]:
        if not self.socket.poll(timeout * 1000):
            raise TimeoutError(f"no message; story: {self.story[-12:]}")
        peer, frame = self.socket.recv_multipart()
        kind, message = core.decode(frame)
        self.story.append(
            (time.monotonic(), core.STRUCTS[kind] + (f" {message.flags}" if hasattr(message, "flags") else ""))
        )
        return peer, kind, message

    def expect(
        self, kind: int, timeout: float = PATIENCE_S, skip: tuple[int, ...] = (lib.WIRE_STATS,)
    ) -> tuple[bytes, Any]:
        while True:
            peer, got, message = self.receive(timeout)
            if got == kind:
                return peer, message
            if kind == lib.WIRE_RETURN and got == lib.WIRE_TOKEN_REQUEST and message.flags & lib.WIRE_TOKEN_DRAINING:
                continue  # it says that its drain takes long; how long depends on this machine
            assert got in skip, f"{core.STRUCTS[got]} instead of {core.STRUCTS[kind]}; story: {self.story[-12:]}"

    def send(self, peer: bytes, kind: int, **fields: Any) -> None:
        self.serial += 1
        self.socket.send_multipart([peer, core.encode(core.new(kind, self.serial, **fields))])
        self.story.append((time.monotonic(), f"-> {core.STRUCTS[kind]}"))

    def welcome(self, peer: bytes, managed: int = 1) -> None:
        message = core.new(lib.WIRE_WELCOME, 1, incarnation=self.incarnation, device_count=1, tenant=b"test")
        message.device[0].managed = managed
        message.device[0].page_slot = 3
        message.device[0].memory_limit_bytes = 1 << 30
        self.socket.send_multipart([peer, core.encode(message)])

    def greet(self) -> tuple[bytes, Any]:
        peer, hello = self.expect(lib.WIRE_HELLO)
        self.welcome(peer)
        return peer, hello

    def grant(
        self,
        peer: bytes,
        epoch: int,
        quota_ms: float = 10,
        lease_ms: float | None = None,
        cap_ms: float = 1,
        contended: bool = True,
        shared: bool = False,
    ) -> None:
        if self.page:
            self.page.store(epoch)
        self.send(
            peer,
            lib.WIRE_GRANT,
            epoch=epoch,
            quota_ns=int(quota_ms * MS),
            lease_ns=int((quota_ms + 20 if lease_ms is None else lease_ms) * MS),
            cap_ns=int(cap_ms * MS),
            flags=(lib.WIRE_GRANT_CONTENDED if contended else 0) | (lib.WIRE_GRANT_SHARED if shared else 0),
        )


class Client:
    def __init__(self, binary: Path, daemon_path: Path, folder: Path, *arguments: object, **environment: str) -> None:
        self.timeline = folder / "timeline"
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [binary, *map(str, arguments)],
            env={
                "GEMINI_SOCKET": f"ipc://{daemon_path}",
                "GEMINI_LOG": "debug",
                "GEMINI_LOG_FILE": str(self.log),
                "CLIENT_TIMELINE": str(self.timeline),
                **{name: value for name, value in os.environ.items() if name.startswith(("ASAN_", "TSAN_", "UBSAN_"))},
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def work(self) -> list[tuple[int, int, int]]:
        """What ran: (start, end, thread), in nanoseconds of CLOCK_MONOTONIC."""
        raw = self.timeline.read_bytes() if self.timeline.exists() else b""
        return sorted(struct.iter_unpack("<QQQ", raw[: len(raw) // 24 * 24]))  # type: ignore[arg-type]

    def freeze(self) -> None:
        """Stop it; none of its threads runs any more when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
            time.sleep(0.001)

    def until_launched(self, count: int) -> None:
        """Wait until it has launched so many kernels in all."""
        end = time.monotonic() + PATIENCE_S
        while len(self.work()) < count:
            assert time.monotonic() < end, (len(self.work()), self.log_text()[-2000:])
            time.sleep(0.005)

    def finish(self, timeout: float = PATIENCE_S) -> Any:
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, (self.process.returncode, err, self.log_text())
        return json.loads(out) if out else None

    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gemini-") as name:  # short, for a socket's path
        yield Path(name)


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"gate-{os.getpid()}-{abs(hash(request.node.name)) % 10**6}"
    yield name  # of the simulated machine
    for file in Path("/dev/shm").glob(f"*{name}*"):
        file.unlink(missing_ok=True)


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    daemon = Daemon(folder / "tenant.sock")
    yield daemon
    daemon.close()


@pytest.fixture
def start(client_binary: Path, folder: Path) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def starter(*arguments: object, **environment: str) -> Client:
        clients.append(Client(client_binary, folder / "tenant.sock", folder, *arguments, **environment))
        return clients[-1]

    yield starter
    for client in clients:
        client.kill()


@pytest.fixture
def run(sim: str, folder: Path) -> Iterator[Run]:
    """Starts a program under the library on the simulated machine `sim`."""
    processes: list[subprocess.Popen[str]] = []

    def starter(*command: object, **environment: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                list(map(str, command)),
                env={
                    **os.environ,
                    "GEMINI_SIM": f"id={sim}",
                    "GEMINI_SOCKET": f"ipc://{folder}/tenant.sock",
                    "LD_PRELOAD": preloaded(LIB / "libgemini_hook.so"),
                    "LD_LIBRARY_PATH": str(LIB / "sim"),
                    "GEMINI_LOG": "debug",
                    "GEMINI_LOG_FILE": str(folder / "log"),
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield starter
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()
