"""Our own image, as the chart names it, without a registry and without a network: this machine's Python, the packages
that `gemini-gpu[cluster]` asks for, and this tree as it was built, each at the path where this machine has it.

The programs are those of image.py besides, and kube-scheduler, so that the chart's second scheduler runs from it too.
Plots are left out: no part of a cluster makes any.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.e2e import image

ROOT = Path(__file__).resolve().parents[2]
NAME, TAG = "docker.io/gemini/gemini", "e2e"
PACKAGES = ("gemini", "scheduler_backend", "libhook")
LEFT_OUT = frozenset({"matplotlib"})
TESTS = frozenset({"test", "tests", "docs"})
STDLIB_LEFT_OUT = TESTS | frozenset({"idlelib", "tkinter", "ensurepip", "site-packages", "dist-packages", "turtledemo"})
START = """#!/bin/sh
export PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1
exec {python} -m {module} "$@"
"""


def write_product_image(archive: Path, busybox: Path, scheduler: Path, name: str = f"{NAME}:{TAG}") -> None:
    """A docker-archive of two layers, as `ctr image import` reads it, for pods that name `name`."""
    base = image.layer(busybox.resolve(), [Path(path) for name in image.PROGRAMS if (path := shutil.which(name))])
    top = archive.with_name("product-layer.tar")
    try:
        _write_layer(top, scheduler)
        with top.open("rb") as content:
            digests = [hashlib.sha256(base).hexdigest(), hashlib.file_digest(content, "sha256").hexdigest()]
        config = json.dumps({
            "architecture": image.architecture(), "os": "linux",
            "config": {"Entrypoint": ["gemini"], "Env": ["PATH=/usr/bin:/bin:/usr/sbin:/sbin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }).encode()  # fmt: skip
        settings = hashlib.sha256(config).hexdigest() + ".json"
        layers = [f"{digest}/layer.tar" for digest in digests]
        manifest = json.dumps([{"Config": settings, "RepoTags": [name], "Layers": layers}]).encode()
        with tarfile.open(archive, "w") as tar:
            for path, text in ((settings, config), (layers[0], base), ("manifest.json", manifest)):
                image.add(tar, path, text)
            tar.add(top, layers[1])
    finally:
        top.unlink(missing_ok=True)


def _write_layer(path: Path, scheduler: Path) -> None:
    python = Path(sys.executable).resolve()
    site = Path(sysconfig.get_path("purelib"))
    files = {python, *_stdlib(), *_packages(), *(file for name in PACKAGES for file in _files(ROOT / name))}
    linked = image.libraries(python, *(file for file in files if ".so" in file.name))
    with tarfile.open(path, "w") as tar:
        for file in sorted(files | linked):
            tar.add(file.resolve(), str(file), recursive=False)
        tar.add(scheduler, "usr/bin/kube-scheduler")
        start = {"path": f"{ROOT}:{site}", "python": python}
        image.add(tar, "usr/bin/gemini", START.format(module="gemini", **start).encode(), 0o755)


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file())


def _stdlib() -> Iterator[Path]:
    for kind in ("stdlib", "platstdlib"):
        folder = Path(sysconfig.get_path(kind, vars={"base": sys.base_prefix, "platbase": sys.base_prefix}))
        for entry in folder.iterdir():
            if entry.name not in STDLIB_LEFT_OUT and not entry.name.startswith("config-"):
                yield from (entry,) if entry.is_file() else _files(entry)


def _packages() -> Iterator[Path]:
    """The files of all distributions that ours asks for, in its cluster flavour."""
    site = Path(sysconfig.get_path("purelib"))
    left, seen = [Requirement("gemini-gpu[cluster]")], set(LEFT_OUT)
    while left:
        asked = left.pop()
        key = f"{asked.name}{sorted(asked.extras)}"
        if asked.name in LEFT_OUT or key in seen:
            continue
        seen.add(key)
        try:
            found = distribution(asked.name)
        except PackageNotFoundError:
            raise AssertionError(f"{asked.name} is not installed in {sys.prefix}; make build") from None
        for text in found.requires or ():
            wanted = Requirement(text)
            marker = wanted.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *asked.extras)):
                left.append(wanted)
        paths = (Path(str(found.locate_file(file))) for file in found.files or ())
        inside = (path for path in paths if path.is_relative_to(site))
        used = (path for path in inside if not TESTS.union([".."]) & set(path.relative_to(site).parts))
        yield from (path for path in used if path.is_file())
