"""Fixtures of the end-to-end tests: the plane (once a session), namespaces, toy services; logs of a test that failed.

Tests take the product's parts as command lines: `plane.running("extender", [sys.executable, "-m", "gemini", "extender",
...], ready_url=...)`, and point `plane.scheduler(scheduler_configuration([extender(url, resources)]))` at them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.build import Builder, CannotBuild, roomy
from tests.e2e.checkouts import Checkout, checkout
from tests.e2e.node import Node, lacking
from tests.e2e.plane import Plane, own_name
from tests.e2e.podman import Podman
from tests.e2e.product_image import BUILT_BYTES, ProductImage, cannot_build, driver_for
from tests.e2e.sharing import simulated
from tests.e2e.vendor import SIMULATED

ROOT = Path(__file__).resolve().parents[2]
RUNS_KEPT = 5
TAIL_LINES = 12
_sizes: dict[Path, int] = {}  # of each log when the running test began
_folder: list[Path] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def logs() -> Path:
    """The folder of this run's logs; those of older runs go, but for the last few."""
    runs = ROOT / "out/e2e"
    runs.mkdir(parents=True, exist_ok=True)
    older = sorted((path for path in runs.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for old in older[: -(RUNS_KEPT - 1)]:
        shutil.rmtree(old, ignore_errors=True)
    folder = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir()
    _folder[:] = [folder]
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what `make wheel` makes in this tree, which another file of tests may do anew at any time."""
    (ROOT / "out").mkdir(exist_ok=True)
    with open(ROOT / "out/wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(["make", "wheel"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        (found,) = (ROOT / "out/wheel").glob("*.whl")
        return Path(shutil.copy(found, tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="session")
def tools() -> Path:
    return built("controlplane")


def built(part: str) -> Path:
    """The folder of a part of build.py; the test is skipped where it cannot be had, with the reason."""
    try:
        return Path(getattr(Builder(), part)())
    except CannotBuild as why:
        pytest.skip(f"{part}: {why}")


def checked_out(project: str) -> Checkout:
    """Of checkouts.py; the test is skipped where the environment names none, or it does not build."""
    try:
        return checkout(project)
    except CannotBuild as why:
        pytest.skip(f"{project}: {why}")


@pytest.fixture(scope="session")
def plane(tools: Path, logs: Path) -> Iterator[Plane]:
    """etcd, API server, controllers and kwok, without nodes and without a scheduler: those are the test's own."""
    # There is no service network: the API server asks webhooks at their pods' addresses.
    with Plane(tools, logs, flags=["--enable-aggregator-routing=true"]) as started:
        yield started


@pytest.fixture(scope="module")
def node(plane: Plane) -> Iterator[Node]:
    """A real kubelet; skipped, with the reason, where none can run. A module's: pods of others must not land on it."""
    if why := lacking():
        pytest.skip(why)
    with Node(plane, built("node"), own_name("real")) as started:
        yield started


@pytest.fixture(scope="module")
def cdi_node(plane: Plane) -> Iterator[Node]:
    """The same with a containerd that knows CDI, in `node.cdi_folder`."""
    if why := lacking():
        pytest.skip(why)
    with Node(plane, built("node"), own_name("cdi"), built("containerd")) as started:
        yield started


@pytest.fixture(scope="session")
def product(logs: Path) -> Iterator[ProductImage]:
    """Our own image, built of this tree by buildah; skipped, with the reason, where that does not run."""
    if why := lacking():
        pytest.skip(why.replace("a kubelet", "buildah here"))
    parts, programs, busybox = built("image"), built("containers"), built("node") / "busybox"
    where = roomy(BUILT_BYTES)
    if (free := shutil.disk_usage(where).free) < BUILT_BYTES:
        pytest.skip(f"{where} has room for {free >> 20} MiB; to build our own image takes {BUILT_BYTES >> 20}")
    with Podman(programs, logs, "image", where, driver_for(where)) as podman:
        if why := cannot_build(podman, busybox):
            pytest.skip(why)
        yield ProductImage(podman, parts)


@pytest.fixture(scope="session")
def vendor() -> Path:
    """NVIDIA's device plugin, for tests.e2e.vendor; skipped where it or the simulated NVML cannot be had."""
    if not (SIMULATED / "libnvidia-ml.so.1").exists():
        pytest.skip(f"no simulated NVML in {SIMULATED}: make build")
    if (
        why := lacking()
    ):  # the plugin's folder is compiled in, so even beside a fake kubelet it needs a mount of its own
        pytest.skip(why)
    return built("nvidia") / "nvidia-device-plugin"


@pytest.fixture
def machine() -> Iterator[str]:
    """GEMINI_SIM of a simulated machine of one's own, with two cards."""
    with simulated() as one:
        yield one


@pytest.fixture
def namespace(plane: Plane) -> Iterator[str]:
    with plane.namespace() as name:
        yield name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _sizes.clear()
    _sizes.update({log: log.stat().st_size for folder in _folder for log in folder.glob("*.log")})
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for log in sorted(log for folder in _folder for log in folder.glob("*.log")):
            with log.open(errors="replace") as text:
                text.seek(_sizes.get(log, 0))
                if written := text.read().splitlines()[-TAIL_LINES:]:
                    report.sections.append(
                        (f"{log}, written during this test", "\n".join(line[:240] for line in written))
                    )
    return report
