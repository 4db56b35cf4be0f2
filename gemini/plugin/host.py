"""What the plugin does to its node: the library put where containers can mount it, CDI files, cores of containers.

I/O on files only, all of it quick; nothing here decides. Cores are bound by the cpuset of the pod's (or container's)
cgroup, so that they hold for every process of it, static ones and `kubectl exec` too; both cgroup versions.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gemini import cdi
from gemini.kube import names
from gemini.plugin.cores import parse_cpus, write_cpus
from scheduler_backend import private

CGROUPS = Path("/sys/fs/cgroup")
NODES = Path("/sys/devices/system/node")
NVIDIA_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_DEPTH = 6  # of a pod's cgroup below the root: cgroup root, kubepods, class of service, pod


class CannotBind(OSError):
    """The cores of a container could not be set; one line."""


def install(library: Path, folder: Path, preload: bool, sim: Path | None) -> tuple[str, str | None, str | None]:
    """Puts the library (and what else containers mount) into `folder`: paths of library, ld.so.preload and simulated
    driver. A file is replaced whole, so that containers which run keep theirs. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    private.replace_file(folder / library.name, library.read_bytes(), 0o755)
    preloaded = None
    if preload:
        private.replace_file(folder / "ld.so.preload", f"{names.LIBRARY_PATH}\n".encode())
        preloaded = str(folder / "ld.so.preload")
    if sim is None:
        return str(folder / library.name), preloaded, None
    simulated = folder / "sim"
    simulated.mkdir(exist_ok=True)
    for file in sim.iterdir():
        private.replace_file(simulated / file.name, file.read_bytes(), 0o755)
    return str(folder / library.name), preloaded, str(simulated)


class Host:
    """`cdi`: folder of CDI files, or None."""

    def __init__(self, cdi: Path | None = None, cgroups: Path = CGROUPS, nodes: Path = NODES) -> None:
        self._cdi, self._cgroups, self._nodes = cdi, cgroups, nodes

    # ---- CDI

    def write_cdi(self, name: str, text: str) -> None:
        if self._cdi is not None:
            self._cdi.mkdir(parents=True, exist_ok=True)
            private.replace_file(self._cdi / name, text.encode())

    def read_cdi(self, name: str) -> str:
        """Empty where there is none."""
        with contextlib.suppress(OSError):
            return "" if self._cdi is None else (self._cdi / name).read_text(errors="replace")
        return ""

    def drop_cdi(self, name: str) -> None:
        if self._cdi is not None:
            (self._cdi / name).unlink(missing_ok=True)

    def cdi_tenants(self) -> list[str]:
        """Those that have a file."""
        begin, end = cdi.CONTAINER_FILE.split("{}")
        found = [] if self._cdi is None else self._cdi.glob(cdi.CONTAINER_FILE.format("*"))
        return [path.name.removeprefix(begin).removesuffix(end) for path in found]

    # ---- device nodes

    def device_nodes(self, minors: tuple[int, ...]) -> tuple[str, ...]:
        wanted = [*(f"/dev/nvidia{minor}" for minor in minors), *NVIDIA_NODES]
        return tuple(path for path in wanted if os.path.exists(path))

    # ---- cores

    def cores_of_node(self, numa: int) -> set[int]:
        """Cores of a NUMA node; none where it is not known."""
        try:
            return parse_cpus((self._nodes / f"node{numa}/cpulist").read_text())
        except (OSError, ValueError):
            return set()

    def pod_cgroup(self, uid: str) -> Path:
        """The pod's cgroup in the tree that has the cpusets. Raises CannotBind."""
        root = self._cpuset_root()
        wanted = {f"pod{uid}", f"pod{uid.replace('-', '_')}.slice"}
        for folder, children, _ in os.walk(root):
            depth = len(Path(folder).relative_to(root).parts)
            for child in children:
                if child in wanted or any(child.endswith(f"-{one}") for one in wanted):
                    return Path(folder) / child
            inside = "kubepods" in folder
            children[:] = [c for c in children if depth < _DEPTH and (inside or "kubepods" in c or depth < 2)]
        raise CannotBind(f"no cgroup of pod {uid} below {root}; mount the host's /sys/fs/cgroup into the plugin")

    def allowed(self, group: Path) -> set[int]:
        """The cores that a pod could have at most: its parent's."""
        for name in ("cpuset.effective_cpus", "cpuset.cpus.effective", "cpuset.cpus"):
            with contextlib.suppress(OSError, ValueError):
                if cores := parse_cpus((group.parent / name).read_text()):
                    return cores
        return set(os.sched_getaffinity(0))

    def bound(self, group: Path) -> set[int]:
        """The cores that a cgroup was restricted to, which is none where it has what its parent has."""
        with contextlib.suppress(OSError, ValueError):
            cores = parse_cpus((group / "cpuset.cpus").read_text())
            return cores if cores != self.allowed(group) else set()
        return set()

    def containers(self, group: Path) -> set[Path]:
        try:
            return {path for path in group.iterdir() if path.is_dir()}
        except OSError:
            return set()

    def bind(self, group: Path, cores: set[int]) -> None:
        """Restricts a cgroup and all below it. Version 1 takes no cpuset that leaves out cores of a child's, so the
        children come first; a child that ends meanwhile is no matter. Raises CannotBind."""
        folders = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]
        for folder in folders:
            try:
                (folder / "cpuset.cpus").write_text(write_cpus(cores))
            except OSError as error:
                if folder == group or folder.exists():
                    raise CannotBind(f"{folder}/cpuset.cpus: {error.strerror}; the plugin must be root, with the "
                                     "host's /sys/fs/cgroup writable") from None  # fmt: skip

    def _cpuset_root(self) -> Path:
        version1 = self._cgroups / "cpuset"
        return version1 if version1.is_dir() else self._cgroups
