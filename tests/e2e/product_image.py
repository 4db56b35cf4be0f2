"""Our own image, as deploy/images makes it, without a registry and without a network: its bases and the wheels that it
installs are what build.py's part `image` has fetched.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.build import IMAGE_BASES, ROOT
from tests.e2e.image import write_image
from tests.e2e.podman import Podman

REPOSITORY, TAG = "docker.io/gemini/gemini", "e2e"
NAME = f"{REPOSITORY}:{TAG}"
BUILT_BYTES = 3 << 30  # both bases, what is built on them, and the archive
SCHEDULER = "registry.k8s.io/kube-scheduler"
PROBE = "FROM scratch\nCOPY busybox /bin/sh\nRUN true\n"
BUILD_SECONDS = 600
MODEST = ("--isolation", "chroot")  # which takes fewer rights than a container


class ProductImage:
    """The image in the store of a podman, and as `archive`."""

    def __init__(self, podman: Podman, parts: Path) -> None:
        self.podman = podman
        self.archive = podman.folder / "product.tar"
        for base in IMAGE_BASES:
            podman.podman("import", parts / base, f"localhost/{base}:1", seconds=BUILD_SECONDS)
        said = {
            "BASE": "localhost/run.tar:1", "BUILD_BASE": "localhost/build.tar:1",
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/mnt",
        }  # fmt: skip
        arguments = [word for key, value in said.items() for word in ("--build-arg", f"{key}={value}")]
        tool = f"IMAGE_TOOL={' '.join(map(str, podman.buildah))}"
        script = ["env", tool, f"PYTHON={sys.executable}", ROOT / "deploy/images/build.sh", NAME]
        wheels = ("--volume", f"{parts / 'wheels'}:/mnt:ro")
        podman.output([*script, *MODEST, *arguments, *wheels], seconds=BUILD_SECONDS)
        target = f"docker-archive:{self.archive}:{NAME}"
        podman.output([*podman.buildah, "push", "--quiet", NAME, target], seconds=BUILD_SECONDS)


def cannot_build(podman: Podman, busybox: Path) -> str:
    """Why buildah builds nothing on this machine, in one line; empty where it does."""
    folder = podman.folder / "probe"
    folder.mkdir()
    (folder / "busybox").write_bytes(busybox.read_bytes())
    (folder / "busybox").chmod(0o755)
    (folder / "Containerfile").write_text(PROBE)
    said = podman.output([*podman.buildah, "build", *MODEST, "--tag", "localhost/probe:1", folder], check=False)
    listed = podman.output([*podman.buildah, "images", "--quiet", "localhost/probe:1"], check=False)
    return "" if len(listed.split()) == 1 else f"buildah builds no image here: {said.strip()[-200:]}"


def driver_for(folder: Path) -> str:
    """How podman should store layers there: an overlay does not lie on an overlay."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout
    return "vfs" if "overlay" in kind else "overlay"


def write_scheduler_image(archive: Path, busybox: Path, scheduler: Path, version: str) -> str:
    """kube-scheduler as the chart names it for a cluster of that version; its name."""
    name = f"{SCHEDULER}:{version}"
    write_image(archive, busybox, [scheduler], name)
    return name
