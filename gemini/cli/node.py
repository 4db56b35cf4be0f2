"""The local node as the commands see it: where the daemon's state lies, and what a process of it has as environment.

A node is a state directory: `control.sock` (control.py), a socket for each tenant, and the flock that keeps a second
daemon out (starting.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import libhook
from gemini.cli.problem import Problem
from scheduler_backend import private
from scheduler_backend.problem import Problem as DaemonProblem

LIB = Path(libhook.__file__).resolve().parent / "lib"
HOOK = LIB / "libgemini_hook.so"
SIM = LIB / "sim"
LOAD = LIB / "gemini-load"
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")  # found by their place in the search path
SUN_PATH = 107  # bytes that fit into sockaddr_un.sun_path, less the final zero
LONGEST_SOCKET = "tenants/{name}/tenant.sock.page"


def simulation(sim: str | None) -> str | None:
    """The simulated machine that is meant: `--sim=SPEC`, else GEMINI_SIM; bare `--sim` is one GPU. None: a real one."""
    inherited = os.environ.get("GEMINI_SIM") or None
    return inherited if sim is None else sim or inherited or "gpus=1"


@dataclass(frozen=True)
class Node:
    """One node daemon's place: its state directory and the machine (real, or simulated by a GEMINI_SIM text)."""

    state_dir: Path
    sim: str | None = None

    @property
    def control(self) -> Path:
        return self.state_dir / "control.sock"

    def check_path(self, tenant: str = "x") -> None:
        longest = self.state_dir / LONGEST_SOCKET.format(name=tenant)
        over = len(os.fsencode(longest)) - SUN_PATH
        if over > 0:
            raise Problem(
                f"the socket path {longest} is {over} bytes too long for a Unix socket ({SUN_PATH}); "
                "choose a shorter --state-dir or --name"
            )

    def prepare(self) -> None:
        """Make the state directory; Problem where that cannot be written."""
        self.check_path()
        try:
            self.state_dir.mkdir(parents=True, exist_ok=True, mode=private.FOLDER_MODE)
            private.check_folder(self.state_dir)
        except OSError as error:
            raise Problem(f"state directory {self.state_dir}: {error.strerror}; choose another --state-dir") from None
        except DaemonProblem as error:
            raise Problem(str(error)) from None
        if not os.access(self.state_dir, os.W_OK | os.X_OK):
            raise Problem(f"state directory {self.state_dir} cannot be written; choose another --state-dir")

    def environment(self) -> dict[str, str]:
        """Additions to a process's environment that make it see this node's GPUs (nothing, on a real one)."""
        return {} if self.sim is None else sim_environment(self.sim)


def sim_front() -> list[str]:
    """Simulated libraries that have to be loaded before others of their name: published packages bring NVIDIA's own
    and look for them beside themselves first, where only a library that is there already comes before."""
    return sorted(str(path) for path in SIM.glob("*.so.*") if path.name not in DRIVER)


def sim_environment(spec: str) -> dict[str, str]:
    inherited = os.environ.get("LD_LIBRARY_PATH", "")
    paths = [str(SIM), *(p for p in inherited.split(":") if p and p != str(SIM))]
    return {"GEMINI_SIM": spec, "LD_LIBRARY_PATH": ":".join(paths)}


def preloaded_else(ours: Sequence[str]) -> list[str]:
    """What is preloaded besides these."""
    return [path for path in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if path not in ours]


def outside() -> dict[str, str]:
    """The environment of a process of ours that is in no tenant, though this one may be, or is to start some."""
    environment = {name: value for name, value in os.environ.items() if name not in ("GEMINI_SOCKET", "LD_PRELOAD")}
    others = preloaded_else([str(HOOK), *sim_front()])
    return {**environment, **({"LD_PRELOAD": " ".join(others)} if others else {})}


def tenant_environment(
    node: Node, socket_path: str, shares: tuple[float, float], memory_bytes: int = 0, gpus: Sequence[str] = ()
) -> dict[str, str]:
    """Additions to the environment of a tenant's process (docs/operations.md lists them)."""
    ours = [str(HOOK), *(sim_front() if node.sim is not None else [])]
    return {
        **node.environment(),
        "LD_PRELOAD": " ".join([*ours, *preloaded_else(ours)]),
        "GEMINI_SOCKET": socket_path,
        "GEMINI_REQUEST": f"{shares[0]:g}",
        "GEMINI_LIMIT": f"{shares[1]:g}",
        **({"GEMINI_MEMORY_LIMIT": str(memory_bytes)} if memory_bytes else {}),
        **({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}),
    }
