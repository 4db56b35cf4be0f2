"""A daemon in a process of its own, and clients that speak the wire by libzmq: what the shell's tests stand on."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from libhook import core
from scheduler_backend.page import SIZE
from tests.scheduler_backend.serve import GPUS

ROOT = Path(__file__).resolve().parents[2]
ffi, lib = core.ffi, core.lib
MS = 1_000_000
PATIENCE_S = 60.0  # for what must come: any process may stand still for seconds
# No lease runs out under a test that stands still. Who asks about leases says `patient=False`.
PATIENT = "lease_margin_ms = 60000\nalone_lease_ms = 60000\n"


def wait_for(condition: Callable[[], Any], seconds: float = PATIENCE_S, what: str = "it") -> Any:
    """The first true answer, asked every 2 ms."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.002)
    return answer


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self._path))


class Rig:
    """A state directory and the daemon on it. A context manager."""

    def __init__(self, *options: str, patient: bool = True) -> None:
        self.state_dir = Path(tempfile.mkdtemp(prefix="gemini-rig-"))
        self.options = options
        if patient and "--config" not in options:
            self.configure(PATIENT)
        self.daemon: subprocess.Popen[bytes] | None = None
        self.clients: list[Client] = []

    def __enter__(self) -> Rig:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.state_dir, ignore_errors=True)

    def command(self) -> list[str]:
        serve = Path(__file__).with_name("serve.py")
        return [sys.executable, str(serve), "--state-dir", str(self.state_dir), "--log", "info", *self.options]

    def start(self) -> None:
        with (self.state_dir / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                self.command(), cwd=ROOT, stderr=log, stdout=log, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )

        def answers() -> bool:
            assert self.daemon is not None
            assert self.daemon.poll() is None, self.log()
            with contextlib.suppress(OSError):
                return self.http("GET", "/healthz")[0] == 200
            return False

        wait_for(answers, what="answer of the daemon")

    def restart(self, number: int, settings: str) -> None:
        """End the daemon by this signal, and start it again with these lines of its settings file."""
        self.stop(number)
        self.configure(settings)
        self.start()

    def configure(self, settings: str) -> None:
        """Begin with these lines of a settings file."""
        config = self.state_dir / "rig.toml"
        config.write_text(settings)
        others = [option for option in self.options if option not in ("--config", str(config))]
        self.options = (*others, "--config", str(config))

    def log(self) -> str:
        return (self.state_dir / "daemon.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.daemon is not None
        if self.daemon.poll() is None:
            self.daemon.send_signal(number)
        return self.daemon.wait(PATIENCE_S)

    def http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = _Unix(self.state_dir / "control.sock")
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
        finally:
            connection.close()

    def state(self) -> Any:
        return self.http("GET", "/state")[1]

    def of(self, name: str) -> Any:
        return next(tenant for tenant in self.state()["tenants"] if tenant["name"] == name)

    def tenant(self, name: str, request: float = 0.5, limit: float = 1.0, **more: Any) -> str:
        status, answer = self.http("POST", "/tenants", {"name": name, "request": request, "limit": limit, **more})
        assert status == 200, answer
        return str(answer["socket"])

    def client(self, name: str, **more: Any) -> Client:
        client = Client(self.state_dir / "tenants" / name / "tenant.sock", **more)
        self.clients.append(client)
        return client


def is_prepared(message: tuple[int, Any]) -> bool:
    """A grant that has not begun: it does when the page shows its epoch."""
    return message[0] == lib.WIRE_GRANT and bool(message[1].flags & lib.WIRE_GRANT_PREPARED)


class Client:
    """One process of a tenant, played by this one."""

    def __init__(
        self,
        path: Path,
        *,
        page: bool = True,
        hello: bool = True,
        nonce: int = 0,
        patience: float = PATIENCE_S,
        routing_id: bytes = b"",
    ) -> None:
        self.path = path
        self.nonce = nonce or secrets.randbits(63)
        self.context = zmq.Context.instance()
        self.socket: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        if routing_id:
            self.socket.setsockopt(zmq.ROUTING_ID, routing_id)
        self.socket.connect(f"ipc://{path}")
        self.serial = 0
        self.page_socket: socket.socket | None = None
        self.page: Any = None
        self.offer: Any = None
        self.prepared: Any = None  # the last grant that had not begun when its message came
        if page:
            self.open_page()
        if hello:
            self.hello()
            self.expect(lib.WIRE_WELCOME, patience)

    def open_page(self) -> None:
        import mmap

        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        connection.connect(f"{self.path}.page")
        hello = {"magic": lib.WIRE_MAGIC, "version": lib.WIRE_VERSION, "client_nonce": self.nonce}
        connection.send(bytes(ffi.buffer(ffi.new("struct wire_page_hello *", hello))))
        frame, descriptors, _, _ = socket.recv_fds(connection, 64, 1)
        self.offer = ffi.new("struct wire_page_offer *")
        ffi.memmove(self.offer, frame, len(frame))
        view = mmap.mmap(descriptors[0], SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
        self.page_fd = descriptors[0]
        self.page = ffi.cast("struct wire_page *", ffi.from_buffer(view))
        self._view = view
        self.page_socket = connection

    def say_drained(self, epoch: int, slot: int = 0, flags: int = 0, behind: Any = None) -> None:
        """The short way: nothing of this epoch runs any more. The Return would follow, or stands behind the word."""
        assert self.page_socket is not None
        more = b"" if behind is None else core.encode(behind)
        flags |= lib.WIRE_DRAINED_RETURN if more else 0
        self.page_socket.send(struct.pack("<IHHQ", lib.WIRE_MAGIC, slot, flags, epoch) + more)

    def end_page(self) -> None:
        """End the page connection; the page stays mapped. Returns when the daemon has heard of it."""
        assert self.page_socket is not None
        with self.page_socket as connection:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""

    def until_heard(self) -> None:
        """What was said on the page connection has been taken out of it."""
        assert self.page_socket is not None
        unread, connection = bytearray(4), self.page_socket

        def is_read() -> bool:
            fcntl.ioctl(connection, termios.TIOCOUTQ, unread)
            return not any(unread)

        wait_for(is_read, what="reader of the page connection")

    def shown(self, slot: int = 0) -> int:
        return int(lib.wire_page_load_epoch(self.page, slot))

    def send(self, kind: int, **fields: Any) -> int:
        self.serial += 1
        self.socket.send(core.encode(core.new(kind, self.serial, **fields)))
        return self.serial

    def hello(
        self, held: dict[int, int] | None = None, memory: dict[int, int] | None = None, program: bytes = b"fake"
    ) -> None:
        self.serial += 1
        message = core.new(lib.WIRE_HELLO, self.serial, client_nonce=self.nonce, pid=os.getpid(), program=program)
        message.device_count = len(GPUS)
        for device, gpu in enumerate(reversed(GPUS)):  # CUDA's order need not be NVML's
            ffi.memmove(message.uuid[device], gpu.uuid_bytes, 16)
        if held is not None or memory is not None:
            message.flags = lib.WIRE_HELLO_AGAIN
        for gpu_index, epoch in (held or {}).items():
            message.held_epoch[self.device(gpu_index)] = epoch
        for gpu_index, size in (memory or {}).items():
            message.memory_bytes[self.device(gpu_index)] = size
        self.socket.send(core.encode(message))

    @staticmethod
    def device(gpu: int) -> int:
        return len(GPUS) - 1 - gpu

    def ask(self, gpu: int = 0, **fields: Any) -> None:
        self.send(lib.WIRE_TOKEN_REQUEST, device=self.device(gpu), **fields)

    def renew(self, epoch: int, gpu: int = 0, draining: bool = False) -> None:
        flags = lib.WIRE_TOKEN_RENEW | (lib.WIRE_TOKEN_DRAINING if draining else 0)
        self.ask(gpu, epoch=epoch, flags=flags)

    def give_back(self, epoch: int, gpu: int = 0, more: bool = False, **fields: Any) -> None:
        flags = lib.WIRE_RETURN_WANT_MORE if more else 0
        self.send(lib.WIRE_RETURN, device=self.device(gpu), epoch=epoch, flags=flags, **fields)

    def receive(self, seconds: float = PATIENCE_S) -> tuple[int, Any] | None:
        if not self.socket.poll(int(seconds * 1000)):
            return None
        return core.decode(self.socket.recv())

    def expect(self, kind: int, seconds: float = PATIENCE_S, skip: bool = True, prepared: bool = False) -> Any:
        """The next message of this type; others are passed over, and so are grants that have not begun."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self.receive(max(0.0, deadline - time.monotonic()))
            assert answer is not None, f"no message of type {kind} within {seconds} s"
            if is_prepared(answer):
                self.prepared = answer[1]
            if answer[0] == kind and (prepared or not is_prepared(answer)):
                return answer[1]
            assert skip, f"type {answer[0]} instead of {kind}"

    def grant(self, seconds: float = PATIENCE_S) -> Any:
        """The next grant that begins: by its message, or because the page shows the epoch of a prepared one."""
        deadline = time.monotonic() + seconds
        while True:
            prepared = self.prepared
            if prepared is not None and self.shown(self.device(prepared.device)) == prepared.epoch:
                self.prepared = None
                return prepared
            answer = self.receive(min(0.005, max(0.0, deadline - time.monotonic())))
            if answer is None:
                assert time.monotonic() < deadline, f"no grant within {seconds} s"
            elif is_prepared(answer):
                self.prepared = answer[1]
            elif answer[0] == lib.WIRE_GRANT:
                return answer[1]

    def nothing(self, kind: int, seconds: float) -> None:
        """No message of this type for so long."""
        deadline = time.monotonic() + seconds
        while (answer := self.receive(max(0.0, deadline - time.monotonic()))) is not None:
            assert answer[0] != kind or is_prepared(answer), f"a message of type {kind}"

    def close(self) -> None:
        self.socket.close(0)
        if self.page_socket is not None:
            self.page_socket.close()
            self.page_socket = None
