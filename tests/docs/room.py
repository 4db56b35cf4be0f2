"""A clean machine for a reader: Debian's own packages unpacked into a folder, and nothing else.

The packages that a page tells root to install, and what they need, are taken from Debian by apt as if on an empty
machine, and unpacked; nothing is installed here. Made once for each list, in the user's cache folder. The room is
that file system, read-only to its reader, in mount and process namespaces of its own: with an empty home, /tmp and
/run, the processors and memory of this machine, and its way to the Python package index. All that was started in it
ends with it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# What every Debian has, as far as programs want it; its packages of priority required, less what only installs.
ESSENTIAL = (
    "base-files", "base-passwd", "bash", "coreutils", "dash", "findutils", "grep", "gzip", "hostname", "libc-bin",
    "mawk", "procps", "sed", "tar", "util-linux",
)  # fmt: skip
USER = 1000
NAME = "reader"
# How this machine reaches the package index: what pip and TLS are told here, and where they look.
PASSED = ("PIP_", "SSL_CERT_", "REQUESTS_CA_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
PLACES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/usr/share/ca-certificates", "/etc/pip.conf")

ENTER = """
set -e
root=$1 own=$2 user=$3; shift 3
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
for folder in home tmp run; do mount --bind "$own/$folder" "$root/$folder"; done
while [ "$1" != -- ]; do mount --rbind "$1" "$root$1"; shift; done
shift
mount -o remount,bind,ro "$root" 2>/dev/null || :
exec chroot --userspec="$user:$user" "$root" "$@"
"""


class CannotHave(Exception):
    """No such machine can be had here; says why in one line."""


def debian(packages: Sequence[str]) -> Path:
    """The root file system with these packages, from the cache or made."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CannotHave(f"no {tool} to take Debian's packages with")
    wanted = sorted({*ESSENTIAL, *packages})
    places = _places()
    name = hashlib.sha256("\n".join([*wanted, *places, Path(__file__).read_text()]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemini-readers"
    done = cache / name
    if done.is_dir():
        return done
    cache.mkdir(parents=True, exist_ok=True)
    fresh = cache / f".{name}-{os.getpid()}"
    try:
        archives = fresh / "archives"
        (archives / "partial").mkdir(parents=True)
        _download(wanted, archives)
        root = fresh / "root"
        root.mkdir()
        for package in sorted(archives.glob("*.deb")):
            _run(["sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --keep-directory-symlink', "sh",
                  str(package), str(root)])  # fmt: skip
        _finish(root, places)
        root.rename(done)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return done


def _download(packages: Sequence[str], archives: Path) -> None:
    status = archives / "status"  # of a machine on which nothing is installed
    status.touch()
    options = [
        f"Dir::State::status={status}", f"Dir::Cache::archives={archives}", "APT::Install-Recommends=no",
        "APT::Sandbox::User=root", "Debug::NoLocking=1",
    ]  # fmt: skip
    command = ["apt-get", *(word for option in options for word in ("-o", option)), "install", "-y", "-qq"]
    try:
        _run([*command, "--download-only", *packages])
    except CannotHave:
        _run(["apt-get", "update", "-qq"])  # the lists are older than what the archive has
        _run([*command, "--download-only", *packages])


def _finish(root: Path, places: Sequence[str]) -> None:
    """What the packages' own scripts would do, as far as it is needed."""
    with (root / "etc/passwd").open("a") as users:
        users.write(f"root:x:0:0:root:/root:/bin/bash\n{NAME}:x:{USER}:{USER}::/home/{NAME}:/bin/bash\n")
    with (root / "etc/group").open("a") as groups:
        groups.write(f"root:x:0:\n{NAME}:x:{USER}:\n")
    awk = root / "usr/bin/awk"
    if not awk.exists():
        awk.symlink_to("mawk")
    for place in places:
        target = root / place.lstrip("/")
        if Path(place).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()


def _places() -> list[str]:
    """Files and folders of this machine by which the package index is reached."""
    named = [word for key, value in os.environ.items() if key.startswith(PASSED) for word in value.split()]
    return sorted({place for place in (*PLACES, *named) if place.startswith("/") and Path(place).exists()})


def room(root: Path, own: Path, environment: Sequence[str] = ()) -> list[str]:
    """The command line of a bash in `root` for tests.docs.reader; `own` becomes its home, /tmp and /run."""
    for folder in ("home", "tmp", "run"):
        (own / folder).mkdir(parents=True, exist_ok=True)
    (own / "tmp").chmod(0o1777)
    home = own / "home" / NAME
    home.mkdir(exist_ok=True)
    _run(["chown", "-R", f"{USER}:{USER}", str(home)])
    passed = [f"{key}={value}" for key, value in os.environ.items() if key.upper().startswith(PASSED)]
    return [
        "unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--propagation", "private",
        "sh", "-c", ENTER, "sh", str(root), str(own), str(USER), *_places(), "--",
        "env", "-i", f"HOME=/home/{NAME}", f"USER={NAME}", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
        "PIP_NO_CACHE_DIR=1", "PIP_NO_COMPILE=1", *passed, *environment, "sh", "-c", "cd; exec bash --noprofile --norc",
    ]  # fmt: skip


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CannotHave(f"{command[0]}: {said[-1] if said else f'status {done.returncode}'}")
