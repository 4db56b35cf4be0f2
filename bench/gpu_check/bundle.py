"""Prepare out/gpu-bundle: what `make gpu-check` needs on a machine without a network.

    python -m bench.gpu_check.bundle [--python 3.12]... [--without PROJECT]...

Wheels of the runtime's packages for each Python, the C parts built here (cffi's ABI mode, which fits any Python), and
the daemon as it is compiled for the Python that runs this. That Python is the one meant where none is named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from libhook import compiled

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "out" / "gpu-bundle"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_26_x86_64", "manylinux_2_24_x86_64",
             "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64")  # fmt: skip
NOT_NEEDED = ("rich",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="which it is for; this one unless said")
    parser.add_argument("--without", action="append", default=[], help="leave a project out, such as matplotlib")
    args = parser.parse_args()
    shutil.rmtree(BUNDLE, ignore_errors=True)
    (BUNDLE / "wheels").mkdir(parents=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["plots"]]
    wanted = [line for line in asked if line.split(">=")[0] not in (*NOT_NEEDED, *args.without)]
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in args.python or [here]:
        print(f"  PIP  wheels for Python {version}", flush=True)
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        subprocess.run(
            [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "download", "--only-binary=:all:",
             "--python-version", version, *platforms, "-d", str(BUNDLE / "wheels"),
             "-c", str(ROOT / "constraints.txt"), *wanted],
            check=True,
        )  # fmt: skip
    environment = {**os.environ, "GEMINI_CFFI_MODE": "abi"}
    subprocess.run([sys.executable, "-m", "libhook.build"], cwd=ROOT, env=environment, check=True)
    shutil.copytree(ROOT / "libhook" / "lib", BUNDLE / "lib")
    shutil.copy2(ROOT / "libhook" / "_core_abi.py", BUNDLE / "_core_abi.py")
    for path in (path for package in compiled.GROUPS for path in compiled.outputs(package) if path.exists()):
        there = BUNDLE / "compiled" / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there)
    for version in args.python or []:
        if version != here:
            print(f"  the daemon is compiled for Python {here} alone; say PYTHON=python{version} for {version}")
    program = str(BUNDLE / "lib" / "launch_overhead")
    overhead = ["-std=gnu11", "-O2", "-o", program, "bench/launch_overhead.c", "-ldl", "-lpthread"]
    subprocess.run([os.environ.get("CC", "gcc"), *overhead], cwd=ROOT, check=True)
    size = sum(path.stat().st_size for path in BUNDLE.rglob("*") if path.is_file())
    print(f"{BUNDLE.relative_to(ROOT)}: {size / 2**20:.0f} MiB; bring the tree with it to the GPU, then make gpu-check")
    return 0


if __name__ == "__main__":
    sys.exit(main())
