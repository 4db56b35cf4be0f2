"""A real node that shares simulated cards: its machine, its daemon and device plugin, and what daemon and cards say."""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.api import Object
from tests.e2e.node import Node
from tests.e2e.plane import Plane
from tests.e2e.pods import INSIDE, LIBRARIES
from tests.e2e.process import Process, free_port, until

USER = "gemini-device-plugin"
# Of a card: busy part of each process over some seconds, once so many of them work.
BUSY = """
import json, sys, time
from libhook.observer import Timeline
card = int(sys.argv[4])
with Timeline(sys.argv[1]) as seen:
    first, deadline = seen.busy(card)[1], time.monotonic() + 60
    while sum(busy > first.get(pid, 0) + 5e7 for pid, busy in seen.busy(card)[1].items()) < int(sys.argv[2]):
        assert time.monotonic() < deadline, "they do not all work"
        time.sleep(0.05)
    began, before = seen.busy(card)
    time.sleep(float(sys.argv[3]))
    ended, after = seen.busy(card)
    print(json.dumps({pid: (after[pid] - before.get(pid, 0)) / (ended - began) for pid in after}))
"""
STATE = """
import http.client, json, socket
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/gemini/control.sock")
connection.request("GET", "/state")
print(connection.getresponse().read().decode())
"""


@contextlib.contextmanager
def simulated(cards: int = 2) -> Iterator[str]:
    """GEMINI_SIM of a machine of one's own."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    try:
        yield f"id={name},gpus={cards},memory=80GiB,name=NVIDIA H200"
    finally:
        for left in Path("/dev/shm").glob(f"gemini-sim-*-{name}*"):
            left.unlink()


class Daemon:
    """The node's daemon, which runs within the block unless it is stopped."""

    def __init__(self, node: Node, lab: str) -> None:
        self._node, self._running = node, contextlib.ExitStack()
        self._command = [sys.executable, "-m", "gemini", "serve", "--state-dir", "/run/gemini", f"--sim={lab}"]

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Anew, where it runs."""
        self.stop()
        self._running.enter_context(self._node.running("daemon", self._command))

    def stop(self) -> None:
        self._running.close()


@dataclass(frozen=True)
class Sharing:
    """A real node that shares simulated cards."""

    uuids: list[str]
    daemon: Daemon


@contextlib.contextmanager
def device_plugin(plane: Plane, node: Node, lab: str, *options: str) -> Iterator[Process]:
    """Ready, as the user of its role."""
    port = free_port()
    command = [
        sys.executable, "-m", "gemini", "device-plugin", "--node", node.name, "--port", str(port), f"--sim={lab}",
        "--kubeconfig", str(plane.kubeconfig(USER)), "--install-dir", str(node.folder / "install"), *options,
    ]  # fmt: skip
    with node.running("device-plugin", command) as running:
        running.wait_http(f"http://127.0.0.1:{port}/readyz")
        yield running


def with_load(pod: Object) -> Object:
    """The pod, with the load generator mounted for its first container, as $LOAD."""
    spec = pod["spec"]
    spec["hostPID"] = True  # the simulated machine knows its users by process id; a card does not ask for it
    spec["volumes"] = [{"name": "load", "hostPath": {"path": str(LIBRARIES)}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "load", "mountPath": INSIDE, "readOnly": True}]
    spec["containers"][0]["env"].append({"name": "LOAD", "value": f"{INSIDE}/gemini-load"})
    return pod


def state(node: Node) -> Object:
    """What the daemon says; on a busy machine it may take longer than it waits for who asks."""

    def asked() -> Object | None:
        with contextlib.suppress(AssertionError):
            said: Object = json.loads(node.output([sys.executable, "-c", STATE]))
            return said
        return None

    return until(asked, "an answer of the daemon", 300)


def parts_of_tenants(node: Node, lab: str, many: int, seconds: float, card: int = 0) -> Iterator[tuple[Object, float]]:
    """Each tenant, with its part of the card by the card's own timeline, once so many programs work. Whose the programs
    are, the daemon knows."""
    watch = [sys.executable, "-c", BUSY, lab, str(many), str(seconds), str(card)]
    busy = json.loads(node.output(watch))
    for tenant in state(node)["tenants"]:
        yield tenant, sum(busy.get(str(pid), 0.0) for pid in tenant["clients"])
