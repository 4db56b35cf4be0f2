"""A real node: the unmodified kubelet on containerd and runc, in mount and process namespaces of its own. Needs root.

One kill of the namespace's first process ends every container and mount; what would be left is a cgroup folder and an
address on the loopback device, which `stop` removes. The network is the machine's. A pod without hostNetwork has an
empty one with a loopback of its own and an address that leads nowhere (the CNI plugin is the few lines below). So no
bridge and no forwarding is set up here.

Programs of the node (a device plugin, the node daemon) run inside by `running`, where /var/lib/kubelet is the
kubelet's. From outside the same folder is `node.kubelet_folder`. Process ids inside differ from those outside.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.e2e.api import ApiError, Object
from tests.e2e.image import IMAGE, write_image
from tests.e2e.plane import PREFIX, Plane
from tests.e2e.process import Process, free_port, until

CGROUPS = Path("/sys/fs/cgroup")
CNI_VERSION = "0.4.0"
# One script under two names: `loopback`, which containerd always calls, and `nowhere`.
CNI_PLUGIN = """#!/bin/sh
if [ "$CNI_COMMAND" = VERSION ]; then
    echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}'
elif [ "$CNI_COMMAND" = ADD ]; then
    if [ "${0##*/}" = loopback ]; then
        nsenter --net="$CNI_NETNS" ip link set lo up >&2
        address=127.0.0.1/8
    else
        id=$(printf %s "$CNI_CONTAINERID" | cut -c1-4)
        address=10.252.$((0x$id / 256)).$((0x$id % 256))/32
    fi
    echo '{"cniVersion":"0.4.0","interfaces":[{"name":"'"$CNI_IFNAME"'","sandbox":"'"$CNI_NETNS"'"}],'
    echo '"ips":[{"version":"4","interface":0,"address":"'"$address"'"}],"dns":{}}'
fi
"""


def lacking() -> str:
    """Why no kubelet can run here, in one line; empty when it can (as far as can be told without trying)."""
    if os.geteuid() != 0:
        return "a kubelet needs root"
    for program in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(program) is None:
            return f"a kubelet's node needs the program {program}"
    tried = subprocess.run(["unshare", "-m", "-p", "-f", "--mount-proc", "true"], capture_output=True, text=True)
    if tried.returncode:
        return f"no namespaces of one's own here: {tried.stderr.strip()}"
    probe = _hierarchies()[0] / f"{PREFIX}{os.getpid()}-probe"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as why:
        return f"no cgroups of one's own here: {why}"
    return ""


class _Inside(Process):
    """A program in the node's namespaces: what is signalled is not nsenter, which waits, but the program it started."""

    def signal(self, number: int) -> None:
        if self.running:
            for pid in _children(self.pid) or [self.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


class Node:
    """A node named `name` of the plane; `programs` is the folder of build.py's part `node`, `runtime` that of its part
    `containerd`, where the runtime must know CDI. Use as a context."""

    def __init__(self, plane: Plane, programs: Path, name: str, runtime: Path | None = None) -> None:
        self.plane, self.name, self._programs = plane, name, programs
        self._runtime = runtime or programs
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=plane.folder))
        self.kubelet_folder = self.folder / "kubelet"  # /var/lib/kubelet of the inside
        self.address = f"10.251.{random.randrange(256)}.{random.randrange(1, 255)}"
        self._cgroup = f"{PREFIX}{os.getpid()}-{name}"
        self._health_port = free_port()
        self._socket = self.folder / "containerd.sock"
        self.cdi_folder = self.folder / "cdi"
        self._path = {"PATH": f"{self._runtime}:{programs}:{os.environ['PATH']}"}

    # -- up and down

    def __enter__(self) -> Node:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        _remove_left_addresses()
        mine = ["dev", "lo", "label", f"lo:e{os.getpid()}"]
        subprocess.run(["ip", "address", "add", f"{self.address}/32", *mine], check=True)
        for hierarchy in _hierarchies():
            for left in hierarchy.glob(f"{PREFIX}*"):  # by tests that were killed
                if not Path("/proc", left.name.removeprefix(PREFIX).split("-")[0]).exists():
                    _remove_cgroup(left)
            _make_cgroup(hierarchy, self._cgroup)
        self._init = self.plane.run(f"{self.name}-init", [
            "unshare", "-m", "-p", "-f", "--kill-child=SIGKILL", "--mount-proc", "--propagation", "private",
            sys.executable, Path(__file__).with_name("node_init.py"), self.folder,
        ], notify=True)  # fmt: skip
        self._init.wait_notified()
        self._start_containerd()
        self.start_kubelet()
        self.plane.wait_nodes([self.name])

    def stop(self) -> None:
        with contextlib.suppress(ApiError, OSError):
            self.plane.api.delete(f"/api/v1/nodes/{self.name}")
        if hasattr(self, "_init"):
            self._init.kill()  # and with it all that runs inside
            self.plane.stop_process(self._init)
        for hierarchy in _hierarchies():
            own = hierarchy / self._cgroup
            until(functools.partial(_remove_cgroup, own), f"the end of {own}")
        subprocess.run(["ip", "address", "del", f"{self.address}/32", "dev", "lo"], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def running(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Iterator[Process]:
        """A program inside the node's namespaces for as long as the block runs."""
        process = self.run(name, command, environment)
        try:
            yield process
        finally:
            process.stop()

    def run(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Process:
        return _Inside(name, self._inside(command), self.plane.logs, {**self._path, **(environment or {})})

    def output(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, seconds: float = 180
    ) -> str:
        """What a program says that runs inside, such as an observer, and ends."""
        variables = {**os.environ, **self._path, **(environment or {})}
        done = subprocess.run(
            self._inside(command), env=variables, text=True, capture_output=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, (
            f"{command[0]} in {self.name}: status {done.returncode}: {done.stderr}{done.stdout}"
        )
        return done.stdout

    def _inside(self, command: Sequence[str | Path]) -> list[str]:
        return ["nsenter", "-t", str(self.init_pid), "-m", "-p", "--", *map(str, command)]

    @property
    def init_pid(self) -> int:
        """The node's first process, as seen from outside."""
        return _children(self._init.pid)[0]

    # -- the kubelet

    def start_kubelet(self) -> None:
        self.kubelet = self.run(f"{self.name}-kubelet", [
            self.plane.tools / "kubelet", f"--config={self._kubelet_config()}", f"--hostname-override={self.name}",
            f"--kubeconfig={self.plane.kubeconfig(f'system:node:{self.name}', ('system:nodes',))}",
            f"--node-ip={self.address}", f"--cert-dir={self.folder / 'kubelet-pki'}", "--v=2",
        ])  # fmt: skip
        self.kubelet.wait_http(f"http://{self.address}:{self._health_port}/healthz")

    def restart_kubelet(self, number: int = signal.SIGTERM) -> None:
        """A new kubelet on the same state; containers go on. Returns when the new one is healthy."""
        self.kubelet.signal(number)
        self.kubelet.wait(20)
        self.start_kubelet()

    def wait_capacity(self, resource: str, amount: int, seconds: float = 120) -> None:
        """Until the node offers so much of `resource`: its device plugin has registered and said what it has."""
        self.plane.api.wait_one(
            f"/api/v1/nodes/{self.name}",
            lambda node: node["status"]["allocatable"].get(resource, "0") == str(amount),
            f"{amount} {resource} on {self.name}", seconds,
        )  # fmt: skip

    def _kubelet_config(self) -> Path:
        serving = self.plane.authority.issue(f"system:node:{self.name}", ("system:nodes",), (self.address, self.name))
        config: Object = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": free_port(self.address),
            "healthzBindAddress": self.address,
            "healthzPort": self._health_port,
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(self.plane.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,  # a lower one needs a right that containers seldom have
            "volumePluginDir": str(self.folder / "flex"),
            "nodeStatusUpdateFrequency": "1s",  # a plugin's devices show at once, for the tests' sake
            "syncFrequency": "2s",
        }
        path = self.folder / "kubelet.json"
        if not path.exists():
            path.write_text(json.dumps(config, indent=1))
        return path

    # -- containerd

    def _start_containerd(self) -> None:
        config = self.folder / "containerd.toml"
        config.write_text(self._containerd_config())
        for name in ("cni/bin", "cni/conf"):
            (self.folder / name).mkdir(parents=True)
        for name in ("loopback", "nowhere"):
            plugin = self.folder / "cni/bin" / name
            plugin.write_text(CNI_PLUGIN)
            plugin.chmod(0o755)
        network = {"cniVersion": CNI_VERSION, "name": "nowhere", "plugins": [{"type": "nowhere"}]}
        (self.folder / "cni/conf/10-nowhere.conflist").write_text(json.dumps(network))
        containerd = self.run(f"{self.name}-containerd", [self._runtime / "containerd", "--config", config])
        archive = self.folder / "image.tar"
        write_image(archive, self._programs / "busybox")

        load = self._inside(self._import(archive))

        def imported() -> bool:
            assert containerd.running, containerd
            done = subprocess.run(load, env={**os.environ, **self._path}, capture_output=True, check=False)
            return done.returncode == 0

        until(imported, "containerd takes the image")
        archive.unlink()

    def import_image(self, archive: Path, name: str, *more: str) -> None:
        """Another image for pods of this node, a docker-archive of the image `name`, which has `more` names here."""
        self.output(self._import(archive), seconds=300)
        for other in more:
            self.output([*self._images, "tag", name, other])

    def _import(self, archive: Path) -> list[str | Path]:
        return [*self._images, "import", archive]

    @property
    def _images(self) -> list[str | Path]:
        return ["ctr", "--address", self._socket, "--namespace", "k8s.io", "image"]

    def _containerd_config(self) -> str:
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        cdi = f'enable_cdi = true\ncdi_spec_dirs = ["{self.cdi_folder}"]' if self._runtime != self._programs else ""
        return f"""
version = 2
root = "{self.folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "{self._socket}"
[ttrpc]
address = "{self._socket}.ttrpc"
[{cri}]
sandbox_image = "{IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
{cdi}
[{cri}.cni]
bin_dir = "{self.folder}/cni/bin"
conf_dir = "{self.folder}/cni/conf"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
BinaryName = "{self._programs / "runc"}"
SystemdCgroup = false
"""


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _hierarchies() -> list[Path]:
    """The mounted cgroup trees: one (version 2), or one for each controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink())


def _remove_left_addresses() -> None:
    """Of nodes whose tests were killed: the label ends in the pid of their owner."""
    listed = subprocess.run(
        ["ip", "-o", "-4", "address", "show", "dev", "lo"], text=True, capture_output=True, check=True
    )
    for words in (line.replace("\\", " ").split() for line in listed.stdout.splitlines()):  # `\` stands for a new line
        for label in (word for word in words if word.startswith("lo:e")):
            if not Path("/proc", label.removeprefix("lo:e")).exists():
                subprocess.run(["ip", "address", "del", words[3], "dev", "lo"], capture_output=True, check=False)


def _make_cgroup(hierarchy: Path, name: str) -> None:
    own = hierarchy / name
    own.mkdir(exist_ok=True)
    for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one of version 1, which takes no process then
        if hierarchy.name == "cpuset":
            (own / setting).write_text((hierarchy / setting).read_text())


def _remove_cgroup(own: Path) -> bool:
    """Removes the tree bottom-up; False while some process of it is still ending."""
    try:
        for folder, _, _ in os.walk(own, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True
