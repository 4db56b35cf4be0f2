"""Every panel and rule against a real Prometheus that scrapes the real parts: daemon, device plugin, extender, webhook.

Pods with shares are placed by the extender and given their tenants by the plugin; programs then work as those tenants
on the simulated card. All is well at first. Then the daemon is started again with another ordering, first come first
served, under which the largest tenant misses its share. One tenant's program comes back without the library, and a few
things more go wrong, so that there is something to see in every panel.

GEMINI_PICTURES=FOLDER draws every board of a longer run into that folder (`make pictures`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

from bench.bed import HOOK, LIB, LOAD
from gemini.kube.device import write_device
from gemini.observability import boards, rules
from gemini.placement.model import Device
from gemini.placement.model import Node as Cards
from libhook.observer import Timeline
from tests.e2e.conftest import built
from tests.e2e.dcgm import dcgm_exporter
from tests.e2e.fake_node import FakeNode
from tests.e2e.pictures import chosen, draw
from tests.e2e.plane import Plane
from tests.e2e.process import NotReady, Process, free_port, until
from tests.e2e.prometheus import Prometheus, prometheus
from tests.e2e.test_extender import CORE, DEVICES, GIB, gemini
from tests.e2e.test_extender import crd as crd
from tests.e2e.test_plugin import asked, device, fake_plugin, sharepod, short_folder
from tests.e2e.test_plugin import role as role

pytestmark = pytest.mark.timeout(900)
SCRAPE = 1.0
PATIENCE = 180.0
PICTURES = os.environ.get("GEMINI_PICTURES")
QUIET_SECONDS = 40.0 if PICTURES else 0.0  # how long all is well, for who looks at a picture
ILL_SECONDS = 20.0 if PICTURES else 0.0


@dataclass
class Scene:
    """A node at work, and the Prometheus that watches it."""

    plane: Plane
    prometheus: Prometheus
    state: Path
    machine: str
    tenants: dict[str, str]  # pod -> tenant
    restart_daemon: Callable[[str], None]
    ask_for: Callable[[str], None]  # another pod of this name, which finds no room
    stack: contextlib.ExitStack

    def load(self, pod: str, *options: object, hooked: bool = True) -> Process:
        """A program of the pod's: with the library, or as one that came without."""
        socket = self.state / "tenants" / self.tenants[pod] / "tenant.sock"
        environment = {**os.environ, "GEMINI_SIM": self.machine, "LD_LIBRARY_PATH": str(LIB / "sim")}
        environment |= {"GEMINI_SOCKET": str(socket)} | ({"LD_PRELOAD": str(HOOK)} if hooked else {})
        return self.run(f"load-{pod}", environment, *options)

    def stranger(self) -> Process:
        environment = {**os.environ, "GEMINI_SIM": self.machine, "LD_LIBRARY_PATH": str(LIB / "sim")}
        return self.run("load-stranger", environment, "--burst", 1, "--gap-us", 50000)

    def run(self, name: str, environment: dict[str, str], *options: object) -> Process:
        command = [LOAD, "--seconds", "0", *map(str, options)]
        return self.stack.enter_context(self.plane.running(name, command, environment))

    def held(self, pod: str) -> float:
        """The share that its tenant holds; 0: nothing is known of it."""
        found = self.prometheus.query(f'gemini:held:ratio{{tenant="{self.tenants[pod]}"}}')
        return found[0][1] if found else 0.0


@pytest.fixture(scope="module")
def scene(plane: Plane, crd: None, role: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    program = built("prometheus") / "prometheus"
    machine = f"id=e2e-watched-{os.getpid()},gpus=1,memory=80GiB,name=NVIDIA H200"
    with contextlib.ExitStack() as stack:
        ports = {"gemini-daemon": free_port(), "gemini-plugin": free_port(), "gemini-webhook": free_port()}
        targets = {job: f"http://127.0.0.1:{port}" for job, port in ports.items()}
        targets["gemini-webhook"] = targets["gemini-webhook"].replace("http:", "https:")
        targets["gemini-extender"] = stack.enter_context(gemini(plane, webhook_port=ports["gemini-webhook"]))
        node = stack.enter_context(FakeNode(plane, "watched"))
        state = stack.enter_context(short_folder())
        seen = stack.enter_context(Timeline(machine))
        stack.callback(forget, machine)
        stack.enter_context(device(plane, node.name, [one.uuid for one in seen.devices()]))
        stack.enter_context(other_node(plane))
        targets["dcgm-exporter"] = stack.enter_context(dcgm_exporter([one.uuid for one in seen.devices()]))
        daemon = contextlib.ExitStack()
        stack.callback(daemon.close)

        def start(settings: str) -> None:
            daemon.close()
            config = state / "gemini.toml"
            config.write_text(settings)
            port = str(ports["gemini-daemon"])
            command = [sys.executable, "-m", "gemini", "serve", "--state-dir", str(state), f"--sim={machine}"]
            command += ["--config", str(config), "--metrics-port", port]
            daemon.enter_context(plane.running("daemon", command, ready_url=f"http://127.0.0.1:{port}/healthz"))

        start("")
        install = tmp_path_factory.mktemp("install")
        stack.enter_context(fake_plugin(plane, node, state, install, port=ports["gemini-plugin"]))
        node.wait_capacity(CORE, 100)
        namespace = stack.enter_context(plane.namespace())
        path = f"/api/v1/namespaces/{namespace}/pods"
        shares = {
            "train": {"gpu_request": "0.6", "gpu_memory": "40Gi"},
            "tune": {"gpu_request": "0.05", "gpu_memory": "8Gi"},
            "serve": {"gpu_request": "0.2", "gpu_memory": "20Gi"},
            "notebook": {"gpu_request": "0.1", "gpu_limit": "0.2", "gpu_memory": "4Gi"},
        }
        for name, said in shares.items():
            plane.api.post(path, sharepod(name, node, "true", **said))

        def ask_for(name: str) -> None:
            plane.api.post(path, sharepod(name, node, "true", gpu_request="0.05", gpu_memory="60Gi"))

        ask_for("vast")
        pods = node.bound(namespace, len(shares))
        assert all(node.admit_all(pods))
        found = [one["name"] for one in asked(state)["tenants"]]
        tenants = {pod: next(name for name in found if pod in name) for pod in shares}
        watching = stack.enter_context(prometheus(plane.folder / "prometheus", plane.logs, program, targets, SCRAPE))
        yield Scene(plane, watching, state, machine, tenants, start, ask_for, stack)


def forget(machine: str) -> None:
    for left in Path("/dev/shm").glob(f"gemini-sim-*-{machine.split(',')[0].removeprefix('id=')}*"):
        left.unlink()


@contextlib.contextmanager
def other_node(plane: Plane) -> Iterator[None]:
    """A node with one card that nobody uses and one that is out of service."""
    with plane.nodes(1, prefix="other", capacity={CORE: "200"}) as (name,):
        cards = tuple(Device(m, uuid=f"GPU-other-{m}", model="H200", memory=80 * GIB, health=not m) for m in range(2))
        plane.api.post(DEVICES, write_device(Cards(name, cards)))
        try:
            yield
        finally:
            plane.api.delete(f"{DEVICES}/{name}")


def test_every_panel_and_rule_returns_data_and_what_goes_wrong_fires_its_alert(scene: Scene) -> None:
    began = time.time()
    watching = scene.prometheus
    scene.load("train", "--kernel-us", 1000, "--alloc", 8 * GIB)
    scene.load("tune", "--kernel-us", 1000)
    serve = scene.load("serve", "--kernel-us", 500)
    notebook = scene.load("notebook", "--burst", 20, "--gap-us", 20000)
    until(lambda: scene.held("train") > 0.5 and scene.held("serve") > 0.15, "the shares that were promised", PATIENCE)
    time.sleep(QUIET_SECONDS)
    assert not {"GeminiShareMissed", "GeminiOutside", "GeminiStranger", "GeminiDown"} & set(watching.firing())

    scene.restart_daemon('ordering = "fifo"\n')  # who came first is served first, whoever was promised what
    again = time.time()
    until(  # what is counted before Prometheus has asked for the first time has not grown, for Prometheus
        lambda: any(at > again for _, at in watching.query("timestamp(gemini_protocol_errors_total)")),
        "a first look at the new daemon",
        PATIENCE,
    )
    notebook.stop()
    scene.ask_for("late")
    scene.load("notebook", "--burst", 20, "--gap-us", 20000, hooked=False)
    scene.stranger()
    scene.load("serve", "--kernel-us", 30000, "--burst", 1, "--gap-us", 500000)  # longer than any quota
    scene.load("serve", "--alloc", 30 * GIB)
    send_nonsense(scene.state / "tenants" / scene.tenants["notebook"] / "tenant.sock")
    freeze(scene, serve)
    wanted = {"GeminiShareMissed": "train", "GeminiOutside": "notebook"}

    passing = {"GeminiCardOutOfService", "GeminiLeaseLost", "GeminiMemoryRefused", "GeminiProtocolErrors"}
    seen: set[str] = set()  # what fires for a while only

    def fired() -> bool:
        firing = watching.firing()
        seen.update(firing)
        return passing <= seen and all(
            {alert["labels"]["tenant"] for alert in firing.get(name, [])} == {scene.tenants[pod]}
            for name, pod in wanted.items()
        )

    with telling(watching):
        until(fired, f"{', '.join(wanted)} to fire, and {', '.join(sorted(passing))} to have fired", PATIENCE)
    time.sleep(ILL_SECONDS)
    for alert in (alert for alerts in watching.firing().values() for alert in alerts):
        assert "<no value>" not in json.dumps(alert["annotations"]), alert
        assert "error" not in alert["annotations"]["summary"], alert
    assert_rules(watching)
    assert_boards(watching)
    if PICTURES:
        ended, train = time.time(), scene.tenants["train"]
        for board in boards.BOARDS:
            draw(board, lambda expr: watching.history(chosen(expr, SCRAPE, train), began, ended, SCRAPE), began,
                 Path(PICTURES) / f"{board.uid}.png")  # fmt: skip


@contextlib.contextmanager
def telling(watching: Prometheus) -> Iterator[None]:
    """Says what Prometheus knows where something did not come."""
    try:
        yield
    except NotReady as why:
        asked_for = (
            "ALERTS",
            "gemini:held:ratio",
            "gemini:wanted:ratio",
            "gemini_request_ratio",
            "min_over_time(up[30s])",
        )
        known = [f"{expr}: {labels} {value:.3f}" for expr in asked_for for labels, value in watching.query(expr)]
        raise NotReady("\n".join([str(why), *known])) from None


def assert_rules(watching: Prometheus) -> None:
    """Every rule evaluates, every recorded series is there, and what every alert watches is."""
    found = watching.rules()
    assert len(found) == len(rules.RECORDS) + len(rules.ALERTS)
    assert [(rule["name"], rule.get("lastError")) for rule in found if rule["health"] != "ok"] == []
    for record in rules.RECORDS:
        assert watching.query(record.name), record.name
    for alert in rules.ALERTS:
        if not alert.watched.startswith("absent("):
            assert watching.query(rules.spelt(alert.watched, SCRAPE)), alert.name


def assert_boards(watching: Prometheus) -> None:
    for board in boards.BOARDS:
        for panel in board.panels:
            for query in panel.queries:
                found = watching.query(chosen(query.expr, SCRAPE))
                assert found, f"{board.title}, {panel.title}: {query.expr}"
        for name, series in board.variables:
            assert all(labels.get(name) for labels, _ in watching.query(series)), name


def send_nonsense(path: Path) -> None:
    context: zmq.Context[Any] = zmq.Context()
    with context, context.socket(zmq.DEALER) as sender:
        sender.connect(f"ipc://{path}")
        sender.send(b"nonsense")
        assert sender.poll(PATIENCE * 1000), "no answer to nonsense"


def freeze(scene: Scene, process: Process) -> None:
    """Until the daemon has taken the token back from it."""

    def lost() -> int:
        name = scene.tenants["serve"]
        return int(next(t for t in asked(scene.state)["tenants"] if t["name"] == name)["leases_lost"])

    before = lost()  # one that held while the daemon was started again has lost that lease
    process.signal(signal.SIGSTOP)
    try:
        until(lambda: lost() > before, "a lost lease", PATIENCE)
    finally:
        process.signal(signal.SIGCONT)
