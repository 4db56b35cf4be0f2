"""The programs that a test starts: logs in files, readiness by what they say or answer, and an end that is certain.

Only processes started here are ever signalled. Each gets the parent-death signal, so none is left when the tests are
killed. Readiness is an event: the program's own sd_notify message (etcd, kube-apiserver), a request that is answered,
or something seen through the API; a program that ends before is an error with the end of its log.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")
LOG_TAIL = 40
POLL_SECONDS = 0.02
_ports: list[socket.socket] = []  # those given out by free_port


class NotReady(AssertionError):
    """Something did not come up, or not in time."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on, below the range that outgoing connections take theirs from.

    Nobody else is given it as long as this process lives, whether or not it is used by then: its number is an abstract
    Unix address too, which only one can have.
    """
    while True:
        port = random.randrange(12000, 32000)
        taken = socket.socket(socket.AF_UNIX)
        try:
            taken.bind(f"\0gemini-e2e-port-{port}")
            with socket.socket() as probe:
                probe.bind((host, port))
        except OSError:
            taken.close()
        else:
            _ports.append(taken)
            return port


def until(check: Callable[[], Found | None], what: str, seconds: float = 60.0) -> Found:
    """The first result of `check` that is not None or False. For what only asking can tell; prefer a watch."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise NotReady(f"{what}: not within {seconds:g} s")
        time.sleep(POLL_SECONDS)


class Process:
    """One program with a log of its own; `notify`: it says through sd_notify when it is ready."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        logs: Path,
        environment: Mapping[str, str] | None = None,
        notify: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        variables = {**os.environ, **(environment or {})}
        self._notify: socket.socket | None = None
        if notify:
            self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._notify.bind("")  # an abstract name, chosen by the kernel
            variables["NOTIFY_SOCKET"] = "@" + self._notify.getsockname()[1:].decode()
        else:
            variables.pop("NOTIFY_SOCKET", None)
        with self.log.open("ab") as log:
            log.write(f"--- {' '.join(map(str, command))}\n".encode())
            log.flush()
            self._popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, cwd=folder, start_new_session=True,
            )  # fmt: skip
        self.pid = self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def wait_notified(self, seconds: float = 60.0) -> None:
        """Until the program says READY=1 to the service manager, which is us."""
        assert self._notify is not None
        deadline = time.monotonic() + seconds
        exited = os.pidfd_open(self.pid)
        try:
            while True:
                left = deadline - time.monotonic()
                ready, _, _ = select.select([self._notify.fileno(), exited], [], [], max(left, 0.0))
                if self._notify.fileno() in ready and b"READY=1" in self._notify.recv(4096):
                    return
                if exited in ready or left <= 0:
                    raise NotReady(f"{self.name} {'ended' if exited in ready else f'not ready in {seconds:g} s'}{self}")
        finally:
            os.close(exited)

    def wait_http(self, url: str, seconds: float = 60.0, authority: Path | None = None) -> None:
        """Until `url` answers 200."""
        context = ssl.create_default_context(cafile=authority)
        if authority is None:  # a self-signed certificate of the program's own making
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        def answered() -> bool:
            if not self.running:
                raise NotReady(f"{self.name} ended{self}")
            try:
                with urllib.request.urlopen(url, timeout=5, context=context) as reply:
                    return bool(reply.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        try:
            until(answered, f"{self.name} at {url}", seconds)
        except NotReady as why:
            raise NotReady(f"{why}{self}") from None

    def signal(self, number: int) -> None:
        if self.running:
            os.kill(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        return self._popen.wait(seconds)

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM, then SIGKILL when that was not heeded in time; the exit status."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.wait(10)

    def tail(self, lines: int = LOG_TAIL) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __str__(self) -> str:
        return f"; the end of {self.log}:\n{self.tail()}"
