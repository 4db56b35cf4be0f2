"""Shares without Kubernetes: podman's containers hold them by name, whoever is killed and whatever is emptied."""

from __future__ import annotations

import json
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import until_shares
from tests.e2e.conftest import built
from tests.e2e.image import IMAGE, write_image
from tests.e2e.node import lacking
from tests.e2e.podman import Podman
from tests.e2e.pods import INSIDE, LIBRARIES
from tests.e2e.process import Process, until

pytestmark = pytest.mark.timeout(900)
SHARES = {"big": "0.6", "small": "0.4"}
CDI = "/run/cdi"
# GPU time of each process of the card over some seconds, once all of those named have worked since we began to look.
BUSY = """
import json, sys, time
from libhook.observer import Timeline
wanted = set(map(int, sys.argv[3:]))
with Timeline(sys.argv[1]) as seen:
    first, deadline = seen.busy(0)[1], time.monotonic() + 60
    while not all(seen.busy(0)[1].get(pid, 0) > first.get(pid, 0) + 5e7 for pid in wanted):
        assert time.monotonic() < deadline, f"they do not all work: {seen.busy(0)}"
        time.sleep(0.02)
    began, before = seen.busy(0)
    time.sleep(float(sys.argv[2]))
    ended, after = seen.busy(0)
    print(json.dumps({pid: (after[pid] - before.get(pid, 0)) / (ended - began) for pid in wanted}))
"""


class Workstation:
    """A machine with podman, a simulated card and the daemon."""

    def __init__(self, podman: Podman) -> None:
        self.podman = podman
        self.id = f"e2e-{uuid.uuid4().hex[:8]}"
        self.sim = f"id={self.id},memory=8GiB,name=NVIDIA H200"
        self._node = ["--state-dir", podman.folder / "s"]
        archive, busybox = podman.folder / "image.tar", built("node") / "busybox"
        write_image(archive, busybox)
        podman.podman("load", "-i", archive)
        archive.unlink()
        self.daemon: Process | None = None

    def start_daemon(self) -> None:
        self.daemon = self.podman.start("daemon", [*self._gemini("serve"), f"--sim={self.sim}", "--cdi-dir", CDI])
        until(
            lambda: not self.gemini("share", "list", check=False).startswith("gemini:"), "an answer of the daemon", 60
        )

    def restart_daemon(self, number: int) -> None:
        assert self.daemon is not None
        self.daemon.signal(number)
        self.daemon.wait(20)
        self.start_daemon()

    def _gemini(self, *words: str) -> list[str | Path]:
        return [sys.executable, "-m", "gemini", *words, *self._node]

    def gemini(self, *words: str, check: bool = True) -> str:
        return self.podman.output(self._gemini(*words), check)

    def start(self, name: str) -> None:
        """A container that holds the share of its own name and keeps the card busy."""
        # A card does not ask for the machine's process ids; the simulated one knows its users by them.
        options = [
            "--name",
            name,
            "--pid",
            "host",
            "-v",
            f"{LIBRARIES}:{INSIDE}:ro",
            "--entrypoint",
            f"{INSIDE}/gemini-load",
        ]
        self.podman.run(
            "-d", *options, "--device", f"gemini.io/share={name}", IMAGE, "--kernel-us", "2000", "--seconds", "1000"
        )

    def pid(self, name: str) -> int:
        pid = int(self.podman.podman("inspect", "--format", "{{.State.Pid}}", name))
        assert pid, f"{name} has ended: {self.podman.podman('logs', name, check=False)}"
        return pid

    def busy(self, seconds: float) -> dict[str, float]:
        """By the device's own timeline: which part of the card's time each container had."""
        pids = {name: self.pid(name) for name in SHARES}
        said = self.podman.output([sys.executable, "-c", BUSY, self.id, str(seconds), *map(str, pids.values())])
        busy = json.loads(said)
        return {name: busy[str(pid)] for name, pid in pids.items()}


@pytest.fixture(scope="module")
def podman(logs: Path) -> Iterator[Podman]:
    if why := lacking():
        pytest.skip(why.replace("a kubelet", "podman here"))
    with Podman(built("containers"), logs) as started:
        yield started


@pytest.fixture(scope="module")
def workstation(podman: Podman) -> Iterator[Workstation]:
    made = Workstation(podman)
    made.start_daemon()
    try:
        yield made
    finally:
        for left in Path("/dev/shm").glob(f"gemini-sim-*-{made.id}*"):
            left.unlink()


def assert_shares(workstation: Workstation) -> None:
    wanted = {name: float(share) for name, share in SHARES.items()}
    until_shares(lambda: workstation.busy(3), wanted, 0.05, least=0.5, seconds=180)


def test_two_containers_hold_their_shares_while_one_and_the_daemon_are_killed_and_started_again(
    workstation: Workstation,
) -> None:
    podman = workstation.podman
    for name, share in SHARES.items():
        said = workstation.gemini("share", "add", name, "--request", share, "--memory", "2GiB")
        assert said == f"podman run --device gemini.io/share={name} IMAGE CMD\n"
        workstation.start(name)
    assert "libgemini_hook" in podman.podman("exec", "big", "env", "-i", "/bin/grep", "libgemini", "/proc/self/maps")
    assert_shares(workstation)
    before = workstation.pid("small")
    podman.podman("kill", "--signal", "KILL", "small")
    podman.podman("wait", "small")
    workstation.restart_daemon(signal.SIGKILL)
    podman.podman("start", "small")
    assert workstation.pid("small") != before
    assert_shares(workstation)
    listed = [line.split() for line in workstation.gemini("share", "ls").splitlines()]
    assert [(words[0], words[1], words[-2], words[-1]) for words in listed[1:]] == [
        (name, share, "1", f"gemini.io/share={name}") for name, share in SHARES.items()
    ]
    assert "big is used by 1 process (" in workstation.gemini("share", "remove", "big", check=False)
    podman.podman("rm", "--force", "--time", "0", *SHARES)
    until(
        lambda: not workstation.gemini("share", "remove", *SHARES, check=False) or None, "the end of both shares", 180
    )


def test_a_share_is_a_device_again_after_its_folder_was_emptied_and_none_once_it_is_removed(
    workstation: Workstation,
) -> None:
    podman = workstation.podman
    workstation.gemini("share", "add", "left")
    (file,) = podman.output(["find", CDI, "-type", "f"]).split()
    podman.output(["rm", file])
    until(lambda: podman.output(["find", CDI, "-type", "f"]).split() == [file] or None, "the file anew", 180)
    podman.output(["rm", file])
    workstation.restart_daemon(signal.SIGTERM)
    assert podman.output(["find", CDI, "-type", "f"]).split() == [file]
    workstation.gemini("share", "add", "more")
    asked = ("--rm", "--device", "gemini.io/share=more", "--entrypoint", "/bin/env", IMAGE)
    assert f"GEMINI_SIM={workstation.sim}\n" in podman.run(*asked)
    workstation.gemini("share", "remove", "more")
    assert "unresolvable CDI devices gemini.io/share=more" in podman.run(*asked, check=False)
    assert podman.output(["find", CDI, "-type", "f"]).split() == [file]
    workstation.gemini("share", "remove", "left")
    assert "gemini.io/share=left" not in workstation.gemini("share", "list")
    assert "unresolvable CDI devices gemini.io/share=left" in podman.run(
        "--device=gemini.io/share=left", IMAGE, check=False
    )
