"""Prepare what `make gpu-check` needs on a machine without a network: one archive, to be unpacked there.

    python -m bench.gpu_check.bundle [--python 3.12]... [--without PROJECT]... [--out out/gpu-bundle]

In the folder: wheels of the runtime's packages for each Python, the C parts built here (cffi's ABI mode, which fits any
Python), and the daemon compiled for each Python. One that does not run this is asked to compile by itself, in an
environment below build/bundle. Beside the folder, the archive has it and this tree, as it is tracked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from libhook import compiled, info

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path("out") / "gpu-bundle"  # in every tree
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_26_x86_64", "manylinux_2_24_x86_64",
             "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64")  # fmt: skip
NOT_NEEDED = ("rich",)
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
COMPILERS = ("mypy", "setuptools>=80,<85")
TOP = "gemini"  # the archive's one folder
WHAT = (
    "import json, pathlib, sys, sysconfig; print(json.dumps({'version': '%d.%d' % sys.version_info[:2], "
    "'headers': (pathlib.Path(sysconfig.get_paths()['include']) / 'Python.h').exists(), "
    "'suffix': sysconfig.get_config_var('EXT_SUFFIX')}))"
)


def bring_wheels(bundle: Path, version: str, without: Sequence[str]) -> None:
    """The wheels of the runtime's packages for one Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["plots"]]
    wanted = [line for line in asked if line.split(">=")[0] not in (*NOT_NEEDED, *without)]
    print(f"  PIP  wheels for Python {version}", flush=True)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "download", "--only-binary=:all:", "--python-version", version, *platforms,
         "-d", str(bundle / "wheels"), "-c", str(ROOT / "constraints.txt"), *wanted],
        check=True,
    )  # fmt: skip


def bring_c_parts(bundle: Path) -> None:
    """The libraries and programs, for any Python. The tree keeps its own extension alone."""
    abi = ROOT / "libhook" / "_core_abi.py"
    had = abi.exists()
    subprocess.run(
        [sys.executable, "-m", "libhook.build"], cwd=ROOT, env={**os.environ, "GEMINI_CFFI_MODE": "abi"}, check=True
    )
    shutil.copytree(ROOT / "libhook" / "lib", bundle / "lib", ignore=shutil.ignore_patterns(info.COMMIT.name))
    shutil.copy2(abi, bundle / "_core_abi.py")
    if not had:
        abi.unlink()
    overhead = ["-std=gnu11", "-O2", "-o", str(bundle / "lib" / "launch_overhead")]
    words = [os.environ.get("CC", "gcc"), *overhead, "bench/launch_overhead.c", "-ldl", "-lpthread"]
    subprocess.run(words, cwd=ROOT, check=True)


def asked_of(python: str) -> dict[str, str | bool] | None:
    """The version of an interpreter, whether it has headers, and its suffix; None where it does not run."""
    try:
        done = subprocess.run([python, "-c", WHAT], capture_output=True, text=True, timeout=30, check=True)
        found: dict[str, str | bool] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # a name that leads to nothing, too
        return None
    return found


def take(bundle: Path, tree: Path, suffix: str) -> int:
    """Copy what was compiled of the daemon in a tree for the Python of this suffix; returns how much there was."""
    made = [path for package in compiled.GROUPS for path in (tree / package).rglob(f"*{suffix}")]
    for path in made:
        there = bundle / "compiled" / path.relative_to(tree)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there)
    return len(made)


def compile_by(bundle: Path, version: str) -> str:
    """Have another Python compile the daemon, in a tree of its own; returns why it cannot, or ""."""
    python = shutil.which(f"python{version}") or ""
    found = asked_of(python)
    if found is None or found["version"] != version:
        return f"there is no python{version} here"
    if not found["headers"]:
        return f"python{version} has no Python.h here"
    tree, environment = ROOT / "build" / "bundle" / version, ROOT / "build" / "bundle" / f"{version}-venv"
    print(f"  VENV {environment.relative_to(ROOT)}", flush=True)
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    mine = str(environment / "bin" / "python")
    pip = [mine, "-m", "pip", "-q", "--disable-pip-version-check", "install", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *COMPILERS], check=True)
    shutil.rmtree(tree, ignore_errors=True)
    for package in ("libhook", *compiled.GROUPS):
        leave_out = shutil.ignore_patterns("*.so", "*.so.*", "__pycache__", "lib")
        shutil.copytree(ROOT / package, tree / package, ignore=leave_out)
    shutil.copy2(ROOT / "pyproject.toml", tree / "pyproject.toml")
    subprocess.run([mine, "-m", "libhook.compiled"], cwd=tree, check=True)
    return "" if take(bundle, tree, str(found["suffix"])) else f"python{version} compiled nothing"


def pack(bundle: Path) -> Path | None:
    """An archive of the tracked tree and the bundle, beside it; None where git cannot say what is tracked."""
    asked = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False)
    if asked.returncode != 0:
        return None
    commit = bundle / "commit"
    commit.write_text(f"{info.commit()}\n")
    archive = bundle.with_name(f"{bundle.name}.tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        for name in asked.stdout.decode().split("\0"):
            if name and (ROOT / name).exists():
                file.add(ROOT / name, f"{TOP}/{name}")
        file.add(commit, f"{TOP}/{info.COMMIT.relative_to(ROOT)}")
        file.add(bundle, f"{TOP}/{PLACE}")
    return archive


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="which it is for; this one unless said")
    parser.add_argument("--without", action="append", default=[], help="leave a project out, such as matplotlib")
    parser.add_argument("--out", type=Path, default=ROOT / PLACE)
    args = parser.parse_args()
    bundle: Path = args.out.resolve()
    shutil.rmtree(bundle, ignore_errors=True)
    (bundle / "wheels").mkdir(parents=True)
    versions = args.python or [HERE]
    for version in versions:
        bring_wheels(bundle, version, args.without)
    bring_c_parts(bundle)
    for version in versions:
        if version == HERE:
            why = "" if take(bundle, ROOT, compiled.SUFFIX) else f"{compiled.why_not() or 'nothing'} is missing here"
        else:
            why = compile_by(bundle, version)
        if why:
            print(f"  the daemon is not compiled for Python {version}, and is read there: {why}")
    archive = pack(bundle)
    size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    print(f"{bundle}: {size / 2**20:.0f} MiB")
    if archive is not None:
        print(
            f"{archive}: {archive.stat().st_size / 2**20:.0f} MiB; unpack it beside the GPU, then, in {TOP}: "
            f"python{versions[0]} -m bench.gpu_check"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
