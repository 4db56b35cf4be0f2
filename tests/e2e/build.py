"""Builds the real parts that end-to-end tests run against: Kubernetes, etcd, kwok, and what clusters run beside us.

    python -m tests.e2e.build [--nice N] [--jobs N] [PART]...

Each part is built once into a folder of the cache named by a hash of what decides its content (go.mod, go.sum, flags,
Go's version), so a second run finds it and returns at once. A folder is made under a temporary name and renamed when
whole: what is there is complete. A file lock of each part keeps two runs from building it side by side. The cache is
$GEMINI_E2E_CACHE, else gemini-e2e in the user's cache folder; $GEMINI_E2E_NICE and $GEMINI_E2E_JOBS are the defaults
of the options.

Parts:
- `controlplane` is the seven programs of controlplane/go.mod, and kwok's own stages joined into one file (7 minutes
  cold on two cores, 3 GiB)
- `nvidia` is nvidia/go.mod (a minute; needs a C compiler)
- `helm` is helm/go.mod (3 minutes)
- `hami` is hami/go.mod, HAMi's scheduler (2 minutes; needs a C compiler)
- `controllers` is controllers/go.mod: Kueue's controller, and Karpenter, which adds kwok's nodes (6 minutes)
- `jobcontrollers` is jobcontrollers/go.mod: JobSet's and Ray's controllers. Most of their libraries are those of
  `controllers`, and compiled once for both (1 minute more)
- `containerd` is containerd/go.mod (3 minutes), a containerd that knows CDI, which Debian's does not
- `node` is containerd, runc and busybox for a real kubelet, taken from PATH or else unpacked, not installed, from
  Debian's packages
- `containers` is podman and buildah with what they need, `prometheus` is that and promtool, likewise
- `debians` are bare root file systems with a Python
- `image` is what our own image is made of where there is no registry
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.gpu_check.bundle import PLATFORMS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRESS_SECONDS = 20.0
DEBIAN_PACKAGES = ("containerd", "runc", "busybox-static")
CONTAINER_PROGRAMS = ("podman", "buildah", "conmon", "runc")  # Debian's packages have the same names
NODE_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox")
PROMETHEUS_PROGRAMS = ("prometheus", "promtool")
FETCHED = ("node", "containers", "prometheus", "debians", "image")  # first: others may compute meanwhile
BESIDE = ("hami", "controllers", "jobcontrollers")
PARTS = (*FETCHED, "controlplane", "nvidia", "helm", "policy", *BESIDE, "containerd")
OPTIONAL = (*FETCHED, *BESIDE)  # without these the tests that want them skip
# The oldest Debian with Python 3.11, the one after it, and what becomes the next one, for the newest Python. A Python
# and no compiler; libstdc++6, which numpy needs, is in every Debian that has apt. What testing signs is valid for a
# week, and mirrors may be further behind than that.
DEBIANS = ("bookworm", "trixie", "forky")
LATE = '--aptopt=Acquire::Check-Valid-Until "false"'
DEBIAN_MIRROR = os.environ.get("GEMINI_DEBIAN_MIRROR")  # else mmdebstrap's own choice
BARE_PACKAGES = ("base-files", "coreutils", "dash", "libstdc++6", "python3-venv")
# The two bases of deploy/images/Containerfile, with all the packages that it would fetch.
IMAGE_RELEASE, IMAGE_PYTHON = "bookworm", "3.11"
IMAGE_BASES = {
    "run.tar": ("libstdc++6", "python3"),
    "build.tar": ("gcc", "libc6-dev", "libpython3-dev", "python3-venv"),
}
SLIM = ("man", "locale", "doc", "info")  # folders of /usr/share that a slim image has not
ROOT_BYTES = 2 << 30  # of a root file system while it is made
TRIES = 3
RECIPE = 1  # raise it when the way of building below changes what comes out
# The order matters to kwok no more than to `kubectl kustomize`, which would join the same files.
KWOK_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
# What controllers want of the API server, definitions and webhooks: the module, and where in it they stand; by part.
MANIFESTS = {
    "controllers": {
        "kueue-crds": ("sigs.k8s.io/kueue", "config/components/crd/bases"),
        "kueue-hooks": ("sigs.k8s.io/kueue", "config/components/webhook"),
        "karpenter-crds": ("sigs.k8s.io/karpenter", "pkg/apis/crds"),
        "kwok-crds": ("sigs.k8s.io/karpenter", "kwok/apis/crds"),
    },
    "jobcontrollers": {
        "jobset-crds": ("sigs.k8s.io/jobset", "config/components/crd/bases"),
        "jobset-hooks": ("sigs.k8s.io/jobset", "config/components/webhook"),
        "ray-crds": ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),
    },
}


class CannotBuild(RuntimeError):
    """A part cannot be had on this machine; the text says why, in one line fit for a skipped test."""


def say(text: str) -> None:
    print(f"  E2E  {text}", file=sys.stderr, flush=True)


def cache_folder() -> Path:
    named = os.environ.get("GEMINI_E2E_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemini-e2e"


def roomy(size: int) -> Path:
    """A folder for `size` bytes of files that come and go: in memory where that is large, else on the disk."""
    shared = Path("/dev/shm")
    available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    if available and int(available[1]) << 10 > 2 * size and shared.is_dir() and shutil.disk_usage(shared).free > size:
        return shared
    return Path(tempfile.gettempdir())


class Builder:
    def __init__(self, nice: int | None = None, jobs: int | None = None) -> None:
        self.nice = int(os.environ.get("GEMINI_E2E_NICE") or 0) if nice is None else nice
        self.jobs = int(os.environ.get("GEMINI_E2E_JOBS") or 0) if jobs is None else jobs
        self.cache = cache_folder()

    def controlplane(self) -> Path:
        """The folder with etcd, kube-*, kubectl, kubelet, kwok and kwok-stages.yaml."""
        module = HERE / "controlplane"
        return self._part(module, "0", lambda out: self._build_controlplane(module, out))

    def nvidia(self) -> Path:
        """The folder with nvidia-device-plugin."""
        module = HERE / "nvidia"
        return self._part(module, "1", lambda out: self._go_build(module, out, cgo="1", versions=[]))

    def helm(self) -> Path:
        """The folder with helm."""
        module = HERE / "helm"
        return self._part(module, "0", lambda out: self._go_build(module, out, cgo="0", versions=[]))

    def policy(self) -> Path:
        """The folder with kube-score."""
        module = HERE / "policy"
        return self._part(module, "0", lambda out: self._go_build(module, out, cgo="0", versions=[]))

    def controllers(self) -> Path:
        """The folder with kueue and karpenter, which adds kwok's nodes, and their MANIFESTS."""
        module = HERE / "controllers"
        return self._part(module, "0", lambda out: self._build_controllers(module, out))

    def hami(self) -> Path:
        """The folder with scheduler, which is HAMi's extender and webhook."""
        module = HERE / "hami"
        return self._part(module, "1", lambda out: self._go_build(module, out, cgo="1", versions=[]))

    def jobcontrollers(self) -> Path:
        """The folder with jobset and ray-operator, and their MANIFESTS."""
        module = HERE / "jobcontrollers"
        return self._part(module, "0", lambda out: self._build_jobcontrollers(module, out))

    def containerd(self) -> Path:
        """The folder with a containerd that knows CDI, its shim and ctr."""
        module = HERE / "containerd"
        return self._part(module, "0", lambda out: self._go_build(module, out, cgo="0", versions=[]))

    def node(self) -> Path:
        """The folder with containerd, its shim, ctr, runc and busybox (links where the machine has them)."""
        found = {name: path for name in NODE_PROGRAMS if (path := shutil.which(name))}
        if len(found) == len(NODE_PROGRAMS):
            key = hashlib.sha256(repr(found).encode()).hexdigest()[:16]
            return self._once(f"node-own-{key}", lambda out: self._link(out, found))
        missing = ", ".join(sorted(set(NODE_PROGRAMS) - set(found)))
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise CannotBuild(f"{missing} not on PATH, and no apt-get to take them from")
        return self._once("node-debian", self._unpack_debian)

    def prometheus(self, fetch: bool = True) -> Path:
        """The folder with prometheus and promtool; without `fetch` only where they are there already."""
        found = {name: path for name in PROMETHEUS_PROGRAMS if (path := shutil.which(name))}
        if len(found) == len(PROMETHEUS_PROGRAMS):
            return self._once("prometheus-own", lambda out: self._link(out, found))
        if not (fetch or (self.cache / "prometheus-debian").is_dir()):
            raise CannotBuild(f"no promtool on PATH nor in {self.cache}; get it: python -m tests.e2e.build prometheus")
        return self._once("prometheus-debian", self._unpack_prometheus)

    def containers(self) -> Path:
        """A folder with `root`, to be laid over a system without podman and buildah; empty where it has them."""
        if all(shutil.which(name) for name in CONTAINER_PROGRAMS):
            return self._once("containers-own", lambda out: None)
        return self._once("containers-debian", self._unpack_containers)

    def debians(self) -> Path:
        """The cache, with a bare root file system of each of DEBIANS in it."""
        return [self.debian(release) for release in DEBIANS][-1].parent

    def image(self) -> Path:
        """The folder with IMAGE_BASES as archives, and `wheels`, of all that the image's Python installs."""
        if os.geteuid() != 0:
            raise CannotBuild("the base of an image needs root")
        key = hashlib.sha256(f"{IMAGE_RELEASE} {IMAGE_BASES} {SLIM} {self._image_requirements()}".encode())
        key.update((ROOT / "constraints.txt").read_bytes())
        program = self.mmdebstrap()
        return self._once(f"image-{key.hexdigest()[:16]}", lambda out: self._make_image_parts(program, out))

    def debian(self, release: str) -> Path:
        """A root file system with BARE_PACKAGES and what they need, unpacked and not configured."""
        if os.geteuid() != 0:
            raise CannotBuild("a root file system of Debian needs root")
        key = hashlib.sha256(" ".join(BARE_PACKAGES).encode()).hexdigest()[:8]
        program = self.mmdebstrap()
        return self._once(f"{release}-{key}", lambda out: self._unpack_root(program, release, out))

    def mmdebstrap(self) -> str:
        """The program's path: this system's, or Debian's unpacked; it is a script and needs apt, Perl and Python."""
        if found := shutil.which("mmdebstrap"):
            return found
        unpacked = self._once("mmdebstrap-debian", lambda out: self._unpack(out, lambda: ["mmdebstrap"]))
        return str(unpacked / "root" / "usr" / "bin" / "mmdebstrap")

    # -- the parts

    def _build_controlplane(self, module: Path, out: Path) -> None:
        listed = self.go(module, "list", "-m", "-json", "k8s.io/kubernetes", "sigs.k8s.io/kwok")
        decoder, versions = json.JSONDecoder(), {}
        while listed := listed.lstrip():
            one, end = decoder.raw_decode(listed)
            versions[one["Path"]] = one["Version"]
            listed = listed[end:]
        kubernetes = versions["k8s.io/kubernetes"]
        major, minor = kubernetes.lstrip("v").split(".")[:2]
        base = "k8s.io/component-base/version."
        # What the release's own build stamps in: the API server, kubectl and the kubelet compare versions.
        self._go_build(module, out, cgo="0", versions=[
            f"{base}gitVersion={kubernetes}", f"{base}gitMajor={major}", f"{base}gitMinor={minor}",
            f"{base}gitTreeState=clean", f"k8s.io/client-go/pkg/version.gitVersion={kubernetes}",
            f"sigs.k8s.io/kwok/pkg/consts.Version={versions['sigs.k8s.io/kwok']}",
        ])  # fmt: skip
        (out / "server").rename(out / "etcd")
        # Only now: before the build has fetched it, a module has no folder.
        stages = self._module_folder(module, "sigs.k8s.io/kwok") / "kustomize/stage"
        files = [path for part in KWOK_STAGES for path in sorted((stages / part).glob("*.yaml"))]
        if not files:
            raise CannotBuild(f"there are no stages for kwok in {stages}")
        texts = [path.read_text() for path in files if path.name != "kustomization.yaml"]
        (out / "kwok-stages.yaml").write_text("\n---\n".join(texts))

    def _build_controllers(self, module: Path, out: Path) -> None:
        self._go_build(module, out, cgo="0", versions=[])
        (out / "kwok").rename(out / "karpenter")
        self._copy_manifests(module, out)

    def _build_jobcontrollers(self, module: Path, out: Path) -> None:
        self._go_build(module, out, cgo="0", versions=[])
        self._copy_manifests(module, out)

    def _copy_manifests(self, module: Path, out: Path) -> None:
        for name, (source, folder) in MANIFESTS[module.name].items():
            (out / name).mkdir()
            for file in sorted((self._module_folder(module, source) / folder).glob("*.yaml")):
                (out / name / file.name).write_text(file.read_text())

    def _unpack_debian(self, out: Path) -> None:
        root = self._unpack(out, lambda: list(DEBIAN_PACKAGES))
        folders = ("usr/sbin", "usr/bin", "bin")
        found = {path.name: str(path.relative_to(out)) for folder in folders for path in (root / folder).iterdir()}
        self._link(out, {name: found[name] for name in NODE_PROGRAMS})

    def _unpack_prometheus(self, out: Path) -> None:
        root = self._unpack(out, lambda: ["prometheus"])
        self._link(out, {name: str((root / "usr/bin" / name).relative_to(out)) for name in PROMETHEUS_PROGRAMS})

    def _unpack_containers(self, out: Path) -> None:
        def with_needs() -> list[str]:
            """These packages and those they need that this system lacks."""
            options = ["--print-uris", "--no-install-recommends", "-qq", "-y"]
            command = ["apt-get", "install", *options, *CONTAINER_PROGRAMS]
            listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            return [words[1].split("_")[0] for line in listed.splitlines() if len(words := line.split()) > 1]

        self._unpack(out, with_needs)

    def _unpack(self, out: Path, packages: Callable[[], list[str]]) -> Path:
        """Debian's packages, fetched and laid into out/root. `packages` is asked again once the lists are fresh."""
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise CannotBuild("no apt-get here to take it from")
        with tempfile.TemporaryDirectory(dir=self.cache) as fetched:
            os.chmod(fetched, 0o755)  # apt drops its rights while it downloads
            for fresh in (False, True):
                if fresh:  # the list was old, or there was none
                    with self.locked("apt"):
                        subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
                wanted = packages()
                say(f"fetching Debian's {', '.join(wanted) or 'list of packages'}")
                download = ["apt-get", "download", "-q", *wanted]
                got = subprocess.run(download, cwd=fetched, capture_output=True, text=True, check=False)
                if wanted and got.returncode == 0:
                    break
            else:
                raise CannotBuild(f"{' '.join(download)}: {got.stderr.strip()[-200:]}")
            for package in sorted(Path(fetched).glob("*.deb")):
                subprocess.run(["dpkg-deb", "-x", package, out / "root"], check=True)
        return out / "root"

    def _unpack_root(self, program: str, release: str, out: Path) -> None:
        say(f"making a root file system of Debian {release}")
        options = ["--variant=extract", "--skip=download/empty", f"--include={','.join(BARE_PACKAGES)}", "--quiet"]
        command = [program, *options, LATE, release, str(out), *filter(None, [DEBIAN_MIRROR])]
        made = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if made.returncode:
            raise CannotBuild(f"mmdebstrap makes no {release}: {made.stderr.strip()[-200:]}")
        # As configuring the package would make it; trixie's pip does not start without.
        authorities = sorted((out / "usr/share/ca-certificates/mozilla").glob("*.crt"))
        (out / "etc/ssl/certs/ca-certificates.crt").write_text("".join(path.read_text() for path in authorities))

    def _make_image_parts(self, program: str, out: Path) -> None:
        say("fetching the wheels of the image")
        # Those that pip of that Debian would choose there; its Python need not be this machine's.
        only = ["--only-binary=:all:", "--python-version", IMAGE_PYTHON]
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "download", *only, *platforms]
        pins = ["-c", str(ROOT / "constraints.txt")]
        self._try([*command, *pins, "-d", str(out / "wheels"), *self._image_requirements()], "pip download")
        # Beside an unpacked mmdebstrap lies its mmtarfilter, which --dpkgopt calls by name.
        path = f"{os.environ.get('PATH', os.defpath)}:{Path(program).parent}"
        # dpkg asks the disk to keep each file: minutes where others use it too.
        environment = {**os.environ, "PATH": path, "TMPDIR": str(roomy(ROOT_BYTES))}
        slim = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in SLIM]
        for name, packages in IMAGE_BASES.items():
            say(f"making {name}, a root file system of Debian {IMAGE_RELEASE} with {', '.join(packages)}")
            options = ["--variant=minbase", "--quiet", f"--include={','.join(packages)}", *slim]
            mirror = filter(None, [DEBIAN_MIRROR])
            self._try([program, *options, IMAGE_RELEASE, str(out / name), *mirror], "mmdebstrap", environment)

    def _try(self, command: list[str], what: str, environment: dict[str, str] | None = None) -> None:
        """What fetches something: once more where it failed, for networks do that."""
        for _ in range(TRIES):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
            )
            if done.returncode == 0:
                return
            say(f"{what} failed: {done.stderr.strip()[-200:]}")
        raise CannotBuild(f"{what}: {done.stderr.strip()[-200:]}")

    def _image_requirements(self) -> list[str]:
        """What `pip install -c constraints.txt '.[cluster]'` takes, to build it included."""
        with (ROOT / "pyproject.toml").open("rb") as file:
            said = tomllib.load(file)
        project = said["project"]
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        pinned = {line.partition("==")[0]: line for line in lines if "==" in line}
        asked = [*project["dependencies"], *project["optional-dependencies"]["cluster"]]
        return sorted({*(pinned[line.partition(">=")[0]] for line in asked), *said["build-system"]["requires"]})

    def _link(self, out: Path, programs: dict[str, str]) -> None:
        for name, target in programs.items():
            (out / name).symlink_to(target)

    # -- how a part is built

    def _part(self, module: Path, cgo: str, make: Callable[[Path], None]) -> Path:
        if shutil.which("go") is None:
            raise CannotBuild("Go is not on PATH (1.26 or later builds the control plane)")
        key = hashlib.sha256(f"{RECIPE} {cgo} {self.go(module, 'env', 'GOVERSION', 'GOARCH')}".encode())
        for name in ("go.mod", "go.sum"):
            key.update((module / name).read_bytes())
        return self._once(f"{module.name}-{key.hexdigest()[:16]}", make)

    def _once(self, name: str, make: Callable[[Path], object]) -> Path:
        done = self.cache / name
        if done.is_dir():
            return done
        self.cache.mkdir(parents=True, exist_ok=True)
        with self.locked(name):
            if not done.is_dir():
                for left in self.cache.glob(f".{name}-*"):  # by a run that was killed; nobody else builds it now
                    shutil.rmtree(left, ignore_errors=True)
                unfinished = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=self.cache))
                try:
                    unfinished.chmod(0o755)
                    make(unfinished)
                    unfinished.rename(done)
                finally:
                    shutil.rmtree(unfinished, ignore_errors=True)
        return done

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Nobody else has the lock of that name: that of a part, or of what parts share."""
        locks = self.cache / "locks"
        locks.mkdir(exist_ok=True)
        with (locks / name).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another build of {name} in {self.cache}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _environment(self, cgo: str = "0") -> dict[str, str]:
        flags = "-mod=readonly -trimpath -buildvcs=false" + (f" -p={self.jobs}" if self.jobs else "")
        return {**os.environ, "CGO_ENABLED": cgo, "GOFLAGS": flags, "GOWORK": "off"}

    def go(self, module: Path, *arguments: str) -> str:
        """What the command says, run in a folder with a go.mod.

        Raises:
            CannotBuild: it failed.
        """
        done = subprocess.run(
            ["go", *arguments], cwd=module, env=self._environment(), text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise CannotBuild(f"go {' '.join(arguments[:3])} in {module}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def _module_folder(self, module: Path, name: str) -> Path:
        """Where the module `name` lies, once a build of `module` has fetched it."""
        return Path(self.go(module, "list", "-m", "-f", "{{.Dir}}", name).strip())

    def _go_build(self, module: Path, out: Path, cgo: str, versions: list[str]) -> None:
        stamps = "".join(f" -X {version}" for version in versions)
        command = ["nice", "-n", str(self.nice)] if self.nice else []
        command += ["go", "build", "-v", "-ldflags", f"-s -w{stamps}", "-o", f"{out}/", "tool"]
        say(f"building the tools of {module.name}/go.mod (cold: minutes; again: seconds)")
        started = said = time.monotonic()
        packages, tail = 0, [""]
        # -v names each package when its compilation ends; downloads and errors come on the same stream.
        with subprocess.Popen(
            command, cwd=module, env=self._environment(cgo), stderr=subprocess.PIPE, text=True
        ) as building:
            assert building.stderr is not None
            for line in building.stderr:
                packages += 1
                tail = [*tail[-40:], line]
                if time.monotonic() - said > PROGRESS_SECONDS:
                    said = time.monotonic()
                    say(f"{said - started:4.0f} s, {packages} packages, {line.strip()}")
        if building.returncode:
            raise CannotBuild(f"go build in {module} failed:\n{''.join(tail)}")
        say(f"{time.monotonic() - started:.0f} s: {', '.join(sorted(path.name for path in out.iterdir()))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--nice", type=int, help="niceness of the compilation")
    parser.add_argument("--jobs", type=int, help="compilations side by side (go build -p)")
    options = parser.parse_args()
    builder = Builder(options.nice, options.jobs)
    makers = {name: getattr(builder, name) for name in PARTS}
    if unknown := set(options.parts) - set(makers):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(makers)}")
    status = 0
    for part in options.parts or list(makers):
        try:
            say(f"{part}: {makers[part]()}")
        except CannotBuild as why:
            say(f"{part}: {why}")
            status = status or int(part not in OPTIONAL)
    return status


if __name__ == "__main__":
    sys.exit(main())
