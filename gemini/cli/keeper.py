"""Keeps a tenant for what its command left running: a launcher may put its work into the background and exit.

`gemini run` exits when its command does. Where processes of the tenant live on, it leaves this behind: a process of a
session of its own that registers the same tenant, watches the daemon, and ends when the last of those processes has.
`python -m gemini.cli.keeper`, with a JSON object on standard input; a line on standard output says that it has begun.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gemini.cli.comeback import Comeback
from gemini.cli.control import ask, tenant_path
from gemini.cli.node import Node, outside
from gemini.cli.problem import Problem
from gemini.cli.starting import register

START_SECONDS = 20.0
MARK = "GEMINI_SOCKET"
MOST_BYTES = 8 << 20  # Linux starts no program with more words than 6 MiB
HELPER = (
    b"resource_tracker import main"  # of Python's multiprocessing: it uses no card, and lives as long as its program
)


def left_behind(socket_path: str) -> set[int]:
    """Processes of this user that were started with this tenant's socket; those that hide it are not found. Root may
    read what any user's process, or one in a container, says of itself: theirs keep no tenant of his."""
    mark = f"{MARK}={socket_path}".encode()
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError, StopIteration):
                if not _is_ours(Path(entry.path)) or mark not in _begun(Path(entry.path, "environ")).split(b"\0"):
                    continue
                if HELPER not in _begun(Path(entry.path, "cmdline")):
                    found.add(int(entry.name))
    return found


def _is_ours(process: Path) -> bool:
    """Of this user by its real number (the owner of its folder in /proc may be root's), and seen from here by no other
    number than it has itself. Raises OSError, StopIteration."""
    lines = (process / "status").read_text(errors="replace").splitlines()
    user = next(line.split()[1] for line in lines if line.startswith("Uid:"))
    return int(user) == os.getuid() and os.readlink(process / "ns/pid") == os.readlink("/proc/self/ns/pid")


def _begun(file: Path) -> bytes:
    """How it begins; a process can make it as long as it likes."""
    with file.open("rb") as source:
        return source.read(MOST_BYTES)


def members(node: Node, name: str) -> set[int]:
    """Processes of the tenant that the daemon knows."""
    try:
        tenants = ask(node, "GET", "/state", timeout=5.0)["tenants"]
    except Problem:
        return set()
    return {pid for tenant in tenants if tenant["name"] == name for pid in tenant.get("clients", [])}


def leave(node: Node, spec: Mapping[str, Any], socket_path: str) -> bool:
    """Start a keeper where there is somebody to keep the tenant for. Whether there is one."""
    others = (left_behind(socket_path) | members(node, spec["name"])) - {os.getpid()}
    if not hasattr(os, "pidfd_open") or not others:
        return False
    told = {"state_dir": str(node.state_dir), "sim": node.sim, "spec": dict(spec), "socket": socket_path}
    keeper = subprocess.Popen(
        [sys.executable, "-m", "gemini.cli.keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        env=outside(),
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with suppress(OSError), keeper.stdin as begin:
        begin.write(json.dumps(told).encode())
    ready, _, _ = select.select([keeper.stdout], [], [], START_SECONDS)
    return bool(ready) and keeper.stdout.readline() == b"kept\n"


def wait_for(pids: set[int]) -> None:
    """Until one of these has ended, or some time has passed."""
    poll = select.poll()
    fds = []
    try:
        for pid in pids:
            with suppress(OSError):
                fds.append(os.pidfd_open(pid))
                poll.register(fds[-1], select.POLLIN)
        if len(fds) == len(pids):
            poll.poll(60_000)
    finally:
        for fd in fds:
            os.close(fd)


def main() -> int:
    told = json.load(sys.stdin)
    node = Node(Path(told["state_dir"]), told["sim"])
    spec, socket_path = {**told["spec"], "pid": os.getpid()}, told["socket"]
    with suppress(Problem):
        register(node, spec)
        print("kept", flush=True)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        Comeback(node, spec, lambda _text: None).start()
        while pids := left_behind(socket_path) | members(node, spec["name"]):
            wait_for(pids)
        ask(node, "DELETE", tenant_path(spec["name"]), timeout=5.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
