"""What the commands ask of the daemon, over its control socket: HTTP/1.1, see docs/protocol.md.

A daemon that was started by a command ends by itself some seconds after its last tenant, so one that just answered may
be gone at the next question (starting.py).
"""

from __future__ import annotations

import contextlib
import grp
import http.client
import json
import os
import socket
import struct
import time
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemini.cli.node import Node
from gemini.cli.problem import Problem, cause_of
from scheduler_backend import private
from scheduler_backend.config import SYSTEM_STATE_DIR
from scheduler_backend.problem import Problem as DaemonProblem

ENDING = 503  # the answer of a daemon that takes no tenants any more
TOO_MANY = 429  # ... of one whose places this user has all
AGAIN_SECONDS = 0.1


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
