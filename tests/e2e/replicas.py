"""Replicas of the extender behind one address, as a Service of Kubernetes puts them there.

Each connection goes to one of the replicas that are Ready, in turns, and stays there. Ready is judged by the probe that
the installation has, at its own intervals: kube-proxy itself is not here.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.e2e.conftest import ROOT
from tests.e2e.plane import HOST, Plane
from tests.e2e.process import Process, free_port, until

WRITTEN = ROOT / "deploy/kustomize/cluster"
DEFAULTS = {"periodSeconds": 10.0, "timeoutSeconds": 1.0, "failureThreshold": 3.0}  # Kubernetes' own


def probe() -> dict[str, float]:
    """What the installation says of its extender's readiness probe."""
    (said,) = re.findall(r"readinessProbe:\s*({.*})", (WRITTEN / "deployment-extender.yaml").read_text())
    return DEFAULTS | {key: float(number) for key, number in re.findall(r"(\w+Seconds|failureThreshold): (\d+)", said)}


def http_timeout() -> str:
    """How long the installation's scheduler waits for an answer."""
    (said,) = re.findall(r"httpTimeout: (\w+)", (WRITTEN / "configmap-scheduler.yaml").read_text())
    return said


@dataclass
class Service:
    """`connections`: how many each replica was given."""

    url: str
    replicas: list[Process]
    ready: list[bool]
    connections: list[int] = field(default_factory=list)


@contextlib.contextmanager
def replicated(plane: Plane, user: str, count: int = 2, policies: str = "") -> Iterator[Service]:
    """Replicas of the extender with the credentials of `user`, all Ready."""
    ports = [free_port() for _ in range(count)]
    with contextlib.ExitStack() as stack:
        replicas = []
        for number, port in enumerate(ports):
            command = [
                sys.executable, "-m", "gemini", "extender", "--kubeconfig", str(plane.kubeconfig(user)),
                "--port", str(port), "--policies", policies,
            ]  # fmt: skip
            ready = f"http://{HOST}:{port}/readyz"
            replicas.append(stack.enter_context(plane.running(f"extender-{number}", command, ready_url=ready)))
        yield stack.enter_context(_forwarding(replicas, ports))


@contextlib.contextmanager
def _forwarding(replicas: list[Process], ports: Sequence[int]) -> Iterator[Service]:
    over = threading.Event()
    with socket.create_server((HOST, 0)) as server:
        service = Service(f"http://{HOST}:{server.getsockname()[1]}", replicas, [True] * len(ports), [0] * len(ports))
        threads = [threading.Thread(target=_accept, args=(server, service, ports))]
        threads += [threading.Thread(target=_probe, args=(service, i, port, over)) for i, port in enumerate(ports)]
        for thread in threads:
            thread.start()
        try:
            yield service
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _probe(service: Service, number: int, port: int, over: threading.Event) -> None:
    said, failed = probe(), 0
    while not over.wait(said["periodSeconds"]):
        connection = http.client.HTTPConnection(HOST, port, timeout=said["timeoutSeconds"])
        try:
            connection.request("GET", "/readyz")
            failed = 0 if connection.getresponse().status == 200 else failed + 1
        except (OSError, http.client.HTTPException):
            failed += 1
        finally:
            connection.close()
        service.ready[number] = failed < said["failureThreshold"]


def _accept(server: socket.socket, service: Service, ports: Sequence[int]) -> None:
    for number in itertools.cycle(range(len(ports))):
        if not service.ready[number] and any(service.ready):
            continue
        try:
            client, _ = server.accept()
        except OSError:
            return
        # It may have waited for the connection, and the replica is not Ready any more.
        chosen = number if service.ready[number] or not any(service.ready) else service.ready.index(True)
        service.connections[chosen] += 1
        try:
            replica = socket.create_connection((HOST, ports[chosen]))
        except OSError:
            client.close()
            continue
        for one, other in ((client, replica), (replica, client)):
            threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    one.close()


def hold(service: Service, number: int) -> None:
    """Stops a replica as a machine without memory does: it neither answers nor ends."""
    service.replicas[number].signal(signal.SIGSTOP)
    state = f"/proc/{service.replicas[number].pid}/stat"
    until(lambda: _stat(state) == "T", "the replica to be stopped")


def _stat(path: str) -> str:
    with open(path) as text:
        return text.read().rpartition(")")[2].split()[0]
