"""A whole Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kwok, kube-scheduler.

    python -m tests.e2e.plane --nodes 3        # by hand: prints the KUBECONFIG to use and runs until Ctrl-C

Unmodified programs from build.py. State lies in a fresh folder in memory and goes with the plane; logs stay in the
folder given. The scheduler is started by each test with its own KubeSchedulerConfiguration, for extenders are named
there. Order matters at the end: what uses the API server first, then that one, then etcd, without which it would hang.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.e2e.api import Api, ApiError, Object, condition
from tests.e2e.build import Builder
from tests.e2e.pki import Authority, write_kubeconfig
from tests.e2e.process import Process, free_port, until

HOST = "127.0.0.1"
PREFIX = "gemini-e2e-"  # of the folder; the pid of its owner follows
ADMINS = ("system:masters",)
NODE_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "250"}
FAKE_NODE = {"kwok.x-k8s.io/node": "fake"}
HOOK = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5, "failurePolicy": "Fail"}
KUBECTL_SECONDS = 120


def own_name(prefix: str) -> str:
    """A name that nothing else on the plane has or had."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


class Plane:
    """The running plane. `api` and `admin` (a kubeconfig) may do everything; see `kubeconfig` for lesser users."""

    def __init__(
        self, tools: Path, logs: Path, feature_gates: str = "", flags: Sequence[str] = (), without_stage: str = ""
    ) -> None:  # fmt: skip
        """`flags`: more of them for the API server. `without_stage`: one of kwok's that is left out."""
        memory = Path("/dev/shm")
        base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
        for left in base.glob(f"{PREFIX}*"):  # by tests that were killed
            if not Path("/proc", left.name.removeprefix(PREFIX).split("-")[0]).exists():
                shutil.rmtree(left, ignore_errors=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
        self.tools, self.logs, self._gates, self._flags = tools, logs, feature_gates, flags
        self._without_stage = without_stage
        logs.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(self.folder / "pki")
        self._port = free_port()
        self.server = f"https://{HOST}:{self._port}"
        self.admin = self.kubeconfig("admin", ADMINS)
        self.api = Api(self.server, self.authority.client_context("admin", ADMINS))
        self._started: list[Process] = []  # in order; stopped from the end

    # -- up and down

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._etcd = self._start_etcd()
        self.start_apiserver()
        self._start_controllers()
        self._start_kwok()
        self.wait_default_account("default")

    def stop(self) -> None:
        while self._started:
            self.stop_process(self._started[-1])
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None,
        notify: bool = False, folder: Path | None = None,
    ) -> Process:  # fmt: skip
        """Starts a program beside the plane; it is stopped, at the latest, before the plane is."""
        process = Process(name, command, self.logs, environment, notify, folder)
        self._started.append(process)
        return process

    @contextlib.contextmanager
    def running(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None,
        ready_url: str | None = None,
    ) -> Iterator[Process]:  # fmt: skip
        """A program for as long as the block runs, such as `[sys.executable, "-m", "gemini", "extender", ...]`."""
        process = self.run(name, command, environment)
        try:
            if ready_url:
                process.wait_http(ready_url)
            yield process
        finally:
            self.stop_process(process)

    def stop_process(self, process: Process) -> None:
        """Ends what `run` started; no harm where it has ended by itself, or was stopped before."""
        if process in self._started:
            self._started.remove(process)
        process.stop()

    # -- users

    def kubeconfig(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Credentials of `user`, by client certificate; what it may do is RBAC's affair."""
        path = self.folder / f"{user.replace(':', '_').replace('/', '_')}.kubeconfig"
        return self.authority.kubeconfig(path, self.server, user, groups)

    def account_kubeconfig(self, namespace: str, account: str) -> Path:
        """Credentials of a ServiceAccount, by a token that the API server signs, as a pod of it would have."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token = self.api.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        kubeconfig = self.folder / f"account-{namespace}-{account}.kubeconfig"
        return write_kubeconfig(
            kubeconfig, self.server, self.authority.certificate, {"token": token["status"]["token"]}
        )

    def log(self, namespace: str, name: str, awaited: str, container: str = "main") -> str:
        """What a pod has said, as soon as that has `awaited` in it: a container is ready before its first line."""

        def said() -> str | None:
            text = self.kubectl("-n", namespace, "logs", name, "-c", container).stdout
            return text if awaited in text else None

        return until(said, f"the log of pod {name} with {awaited!r} in it")

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """kubectl as admin; `text` goes to its standard input."""
        command = [
            str(self.tools / "kubectl"),
            "--kubeconfig",
            str(self.admin),
            f"--request-timeout={KUBECTL_SECONDS}s",
        ]
        home = {**os.environ, "HOME": str(self.folder)}  # its discovery cache would outlive the plane otherwise
        done = subprocess.run(
            [*command, *arguments], input=text, text=True, capture_output=True, timeout=2 * KUBECTL_SECONDS, env=home,
            check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: status {done.returncode}: {done.stderr}{done.stdout}")
        return done

    # -- objects

    @contextlib.contextmanager
    def namespace(self, prefix: str = "e2e") -> Iterator[str]:
        """A namespace of one's own, with its ServiceAccount there: pods may be created at once. None is left."""
        name = own_name(prefix)
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            self.wait_default_account(name)
            yield name
        finally:
            with contextlib.suppress(ApiError):
                self.api.delete(f"/api/v1/namespaces/{name}")  # from now on nobody makes pods there
            pods = f"/api/v1/namespaces/{name}/pods"
            with contextlib.suppress(ApiError):
                self.api.delete(pods, grace_seconds=0)
            self.api.wait(pods, lambda left: not left, f"the end of the pods of {name}")

    def wait_default_account(self, namespace: str) -> None:
        self.api.wait_one(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", lambda account: True)

    @contextlib.contextmanager
    def nodes(
        self, count: int, prefix: str = "fake", capacity: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None,
    ) -> Iterator[list[str]]:  # fmt: skip
        """kwok's nodes, Ready, with `capacity` on top of the usual; gone at the end, pods on them too.

        Their names end in -0, -1.. and are nobody else's: what a test leaves of a node (a lease, say, until the garbage
        collector comes) is not taken for a later one's.
        """
        own = own_name(prefix)
        names = [f"{own}-{index}" for index in range(count)]
        resources = {**NODE_CAPACITY, **(capacity or {})}
        with ThreadPoolExecutor(8) as pool:
            make = functools.partial(self._make_node, resources, dict(labels or {}), dict(annotations or {}))
            try:
                list(pool.map(make, names))
                self.wait_nodes(names, seconds=60 + count / 20)
                yield names
            finally:
                list(pool.map(self._remove_node, names))

    def wait_nodes(self, names: Sequence[str], seconds: float = 60) -> None:
        """Until the nodes are Ready and rid of the taint that new nodes bear."""
        ready = condition("Ready")

        def usable(nodes: list[Object]) -> bool:
            free = {node["metadata"]["name"] for node in nodes if ready(node) and not node["spec"].get("taints")}
            return free.issuperset(names)

        self.api.wait("/api/v1/nodes", usable, f"{len(names)} nodes ready", seconds)

    def _make_node(self, resources: Object, labels: Object, annotations: Object, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok", **labels}
        meta = {"name": name, "labels": labels, "annotations": {**FAKE_NODE, **annotations}}
        self.api.post("/api/v1/nodes", {"metadata": meta, "status": {"capacity": resources, "allocatable": resources}})

    def _remove_node(self, name: str) -> None:
        with contextlib.suppress(ApiError):
            self.api.delete(f"/api/v1/nodes/{name}")

    @contextlib.contextmanager
    def webhook(
        self, name: str, url: str, validating: bool = False, resources: Sequence[str] = ("pods",),
        operations: Sequence[str] = ("CREATE",), **more: object,
    ) -> Iterator[None]:  # fmt: skip
        """The API server asks `url` about these objects for as long as the block runs; it fails closed.

        The server at `url` shows a pair of `authority.issue(..., hosts=("127.0.0.1",))`. `more` goes into the webhook
        as it is, such as `namespaceSelector` or `failurePolicy`.
        """
        kind = "Validating" if validating else "Mutating"
        rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": resources}
        hook = {
            "name": f"{name}.e2e.gemini.io", "rules": [rule], "clientConfig": self._hook_at(url), **HOOK, **more,
        }  # fmt: skip
        # The API server learns of the configuration by a watch of its own. A second webhook, which refuses one certain
        # object since nobody listens where it asks, tells when that has happened: both become known at once.
        probe = f"probe-{uuid.uuid4().hex[:8]}"
        refusing = {
            "name": f"{probe}.e2e.gemini.io",
            "rules": [{**rule, "operations": ["CREATE"], "resources": ["configmaps"]}],
            "clientConfig": self._hook_at(f"https://{HOST}:1/"), **HOOK,
            "matchConditions": [{"name": "probe", "expression": f"object.metadata.name == '{probe}'"}],
        }  # fmt: skip
        path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations"
        self.api.post(path, {"metadata": {"name": name}, "webhooks": [hook, refusing]})
        try:
            until(lambda: not self._creates(probe), f"{name} known to the API server")
            yield
        finally:
            self.api.delete(f"{path}/{name}")
            until(lambda: self._creates(probe), f"{name} forgotten by the API server")

    def _hook_at(self, url: str) -> Object:
        return {"url": url, "caBundle": self.authority.bundle}

    def _creates(self, name: str) -> bool:
        """Whether a configmap of that name would be let in."""
        body = {"metadata": {"name": name}}
        try:
            self.api.call("POST", "/api/v1/namespaces/default/configmaps", body, {"dryRun": "All"})
        except ApiError:
            return False
        return True

    # -- the programs

    @contextlib.contextmanager
    def scheduler(self, configuration: Object | None = None, name: str = "kube-scheduler") -> Iterator[Process]:
        """kube-scheduler with a KubeSchedulerConfiguration (see scheduler_configuration), ready to schedule."""
        chosen = json.loads(json.dumps(configuration or scheduler_configuration()))
        kubeconfig = str(self.kubeconfig("system:kube-scheduler"))
        chosen.setdefault("clientConnection", {})["kubeconfig"] = kubeconfig
        path, port = self.folder / f"{name}.json", free_port()
        path.write_text(json.dumps(chosen, indent=1))
        command: list[str | Path] = [
            self.tools / "kube-scheduler", f"--config={path}", f"--bind-address={HOST}", f"--secure-port={port}",
            f"--cert-dir={self.folder / 'scheduler'}", f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}", "--v=2",
        ]  # fmt: skip
        with self.running(name, command, ready_url=f"https://{HOST}:{port}/readyz") as scheduler:
            yield scheduler

    def _start_etcd(self) -> str:
        client, peer = f"http://{HOST}:{free_port()}", f"http://{HOST}:{free_port()}"
        self.run("etcd", [
            self.tools / "etcd", "--name=e2e", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=e2e={peer}",
            "--log-level=warn",
        ], notify=True).wait_notified()  # fmt: skip
        return client

    def restart_apiserver(self) -> None:
        """Kills the API server and starts a new one on the same address and etcd: every client's watch breaks."""
        self.kill_apiserver()
        self.start_apiserver()

    def kill_apiserver(self) -> None:
        self._apiserver.kill()  # asked to end it would wait for the open watches
        self.stop_process(self._apiserver)

    def start_apiserver(self) -> None:
        serving = self.authority.issue("kube-apiserver", hosts=(HOST, "localhost", "kubernetes", "kubernetes.default"))
        kubelets = self.authority.issue("kube-apiserver-kubelet-client", ADMINS)
        accounts = self._account_key()
        gates = [f"--feature-gates={self._gates}"] if self._gates else []
        self._apiserver = self.run("kube-apiserver", [
            self.tools / "kube-apiserver", f"--etcd-servers={self._etcd}", f"--secure-port={self._port}",
            f"--bind-address={HOST}", f"--advertise-address={HOST}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16", f"--client-ca-file={self.authority.certificate}",
            f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}", "--authorization-mode=Node,RBAC",
            "--allow-privileged=true", "--enable-priority-and-fairness=false", "--shutdown-delay-duration=0s",
            f"--kubelet-client-certificate={kubelets.certificate}", f"--kubelet-client-key={kubelets.key}",
            f"--kubelet-certificate-authority={self.authority.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
            # Nobody is a front proxy here; without an authority for them the components' logs fill with complaints.
            f"--requestheader-client-ca-file={self.authority.certificate}", "--requestheader-allowed-names=nobody",
            "--requestheader-username-headers=X-Remote-User", *gates, *self._flags,
        ], notify=True)  # fmt: skip
        self._started.insert(1, self._started.pop())  # right after etcd, a restarted one too: the last but one to end
        self._apiserver.wait_notified()
        self._apiserver.wait_http(f"{self.server}/readyz", authority=self.authority.certificate)  # RBAC's roles are in

    def _start_controllers(self) -> None:
        kubeconfig = self.kubeconfig("system:kube-controller-manager")
        self.run("kube-controller-manager", [
            self.tools / "kube-controller-manager", f"--kubeconfig={kubeconfig}", "--leader-elect=false",
            f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={HOST}", f"--secure-port={free_port()}", f"--cert-dir={self.folder / 'controllers'}",
            f"--service-account-private-key-file={self._account_key()}", "--use-service-account-credentials=true",
            f"--root-ca-file={self.authority.certificate}", "--allocate-node-cidrs=false",
            f"--flex-volume-plugin-dir={self.folder / 'flex'}", "--kube-api-qps=200", "--kube-api-burst=400",
        ])  # fmt: skip

    def _start_kwok(self) -> None:
        stages = (self.tools / "kwok-stages.yaml").read_text().split("\n---\n")
        chosen = self.folder / "kwok-stages.yaml"
        chosen.write_text("\n---\n".join(one for one in stages if f"  name: {self._without_stage}\n" not in one))
        self.run("kwok", [
            self.tools / "kwok", f"--kubeconfig={self.admin}", f"--config={chosen}",
            "--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40", f"--node-ip={HOST}",
        ])  # fmt: skip

    def _account_key(self) -> Path:
        path = self.folder / "pki/accounts.key"
        if not path.exists():  # RSA, for the tokens are signed with RS256
            key = rsa.generate_private_key(65537, 2048)
            traditional = serialization.PrivateFormat.TraditionalOpenSSL
            path.write_bytes(key.private_bytes(serialization.Encoding.PEM, traditional, serialization.NoEncryption()))
        return path


def scheduler_configuration(extenders: Sequence[Object] = (), **more: object) -> Object:
    """A KubeSchedulerConfiguration with short backoffs; what `more` says goes in as it is, such as `profiles=[...]`."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "extenders": list(extenders),
        **more,
    }


def extender(
    url: str, resources: Sequence[str], ignored: Sequence[str] = (), node_cache_capable: bool = False,
    verbs: Sequence[str] = ("filter", "prioritize", "bind"),
) -> Object:  # fmt: skip
    """One entry of `extenders`; `ignored` are those of `resources` that the scheduler itself does not count."""
    managed = [{"name": name, "ignoredByScheduler": name in ignored} for name in resources]
    return {
        "urlPrefix": url,
        **{f"{verb}Verb": verb for verb in verbs},
        "weight": 1,
        "nodeCacheCapable": node_cache_capable,
        "managedResources": managed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1, help="fake nodes (kwok)")
    parser.add_argument("--logs", type=Path, default=Path("out/e2e/by-hand"))
    options = parser.parse_args()
    with Plane(Builder().controlplane(), options.logs) as plane, plane.nodes(options.nodes), plane.scheduler():
        print(f"export KUBECONFIG={plane.admin} PATH={plane.tools}:$PATH\n# logs in {options.logs}; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            signal.sigwait([signal.SIGTERM])
    return 0


if __name__ == "__main__":
    sys.exit(main())
