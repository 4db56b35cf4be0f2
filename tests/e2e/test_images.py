"""Our own image, built by buildah from the Containerfile that a user builds too: what it says, what is not in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from libhook import build, info
from tests.e2e.build import ROOT
from tests.e2e.product_image import NAME, ProductImage

pytestmark = pytest.mark.timeout(900)
LABELS = "org.opencontainers.image."
# What would let whoever breaks in make more of it, or was there to build with.
TOOLS = ("gcc", "cc", "ld", "as", "make", "git", "pip", "pip3")
PARTS = ("extender", "webhook", "plugin", "reporter")
SITE = "/opt/gemini/lib/python3.11/site-packages"


def sh(product: ProductImage, script: str, *options: str | Path) -> str:
    return product.podman.run("--rm", *options, "--entrypoint", "sh", NAME, "-c", script)


def test_it_says_its_version_and_commit_as_the_program_in_it_does(product: ProductImage) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = re.fullmatch(
        r"gemini (\S+) \(commit (\S+), library [0-9a-f]{40}\)\n", product.podman.run("--rm", NAME, "--version")
    )
    assert said is not None
    assert said.groups() == (version, info.commit())
    (looked,) = json.loads(product.podman.podman("image", "inspect", NAME))
    labels = looked["Config"]["Labels"]
    assert (labels[f"{LABELS}version"], labels[f"{LABELS}revision"]) == said.groups()
    assert re.search(rf"^appVersion: {version}\b", (ROOT / "deploy/helm/gemini/Chart.yaml").read_text(), re.M)


def test_it_runs_as_nobody_unless_told_and_loads_every_part_of_a_cluster(product: ProductImage) -> None:
    imports = "; ".join(f"import gemini.{part}.app" for part in PARTS)
    said = sh(
        product, f"id -u && python -c '{imports}; import kubernetes.aio.config, grpc' && echo loaded", "--read-only"
    )
    assert said == "65532\nloaded\n"


def test_there_is_no_compiler_no_pip_and_no_source_in_it(product: ProductImage) -> None:
    looked, left = " ".join(TOOLS), "/src /wheel /opt/build"
    assert sh(product, f"for tool in {looked}; do command -v $tool; done; ls -d {left} 2>/dev/null; true") == ""


def test_what_it_gives_to_other_containers_asks_for_no_newer_c_library_than_the_wheel(
    product: ProductImage, tmp_path: Path
) -> None:
    sh(product, f"cp -r {SITE}/libhook /mnt", "--user", "0", "--volume", f"{tmp_path}:/mnt")
    assert (tmp_path / "libhook/lib/libgemini_hook.so").exists()
    build.check_floor(tmp_path / "libhook")


def test_where_nothing_builds_images_it_says_what_to_install_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(
        ["/bin/sh", ROOT / "deploy/images/build.sh", "gemini"],
        env={key: value for key, value in os.environ.items() if key != "IMAGE_TOOL"} | {"PATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gemini: nothing builds images here; install buildah, podman or docker\n"
