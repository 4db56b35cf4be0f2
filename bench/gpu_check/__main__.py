"""Bring what the checks need, then start them. Standard library only; no network; changes nothing outside the tree.

Python packages that this Python lacks are unpacked from out/gpu-bundle/wheels into out/gpu-site (wheels are archives;
neither pip nor venv is needed). What the machine has, such as the numpy of its PyTorch, stays. The C parts are built
here where there is a gcc, else taken from out/gpu-bundle/lib.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "out" / "gpu-bundle"
SITE = ROOT / "out" / "gpu-site" / f"cp{sys.version_info.major}{sys.version_info.minor}"
NEEDED = {  # module -> the project that brings it
    "cffi": "cffi",
    "_cffi_backend": "cffi",
    "pycparser": "pycparser",
    "pynvml": "nvidia-ml-py",
    "numpy": "numpy",
    "uvloop": "uvloop",
    "prometheus_client": "prometheus-client",
    "aiohttp": "aiohttp",
    "aiohappyeyeballs": "aiohappyeyeballs",
    "aiosignal": "aiosignal",
    "attr": "attrs",
    "frozenlist": "frozenlist",
    "multidict": "multidict",
    "propcache": "propcache",
    "yarl": "yarl",
    "idna": "idna",
    "typing_extensions": "typing-extensions",
}
WISHED = {  # for plots; without them the figures are there all the same
    "matplotlib": "matplotlib",
    "PIL": "pillow",
    "contourpy": "contourpy",
    "cycler": "cycler",
    "dateutil": "python-dateutil",
    "fontTools": "fonttools",
    "kiwisolver": "kiwisolver",
    "packaging": "packaging",
    "pyparsing": "pyparsing",
    "six": "six",
}


def fits(tag: str) -> bool:
    """May a wheel with this `python-abi-platform` tag be loaded by this Python?"""
    python, abi, platform = tag.split("-")
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if platform != "any" and "x86_64" not in platform:
        return False
    if "musl" in platform and "manylinux" not in platform:
        return False
    if "abi3" in abi:
        match = re.match(r"cp3(\d+)", python)
        return match is not None and int(match.group(1)) <= sys.version_info.minor
    return (here in python.split(".") and abi in (here, "none")) or ("py3" in python and abi == "none")


def wheel_of(project: str) -> Path | None:
    """The bundle's wheel of a project for this Python."""
    plain = project.replace("-", "_").lower()
    for wheel in sorted((BUNDLE / "wheels").glob("*.whl")):
        parts = wheel.stem.split("-")
        if parts[0].lower().replace("-", "_") == plain and fits("-".join(parts[-3:])):
            return wheel
    return None


def bring_packages() -> list[str]:
    """Unpack what is missing; returns the projects that could not be brought."""
    missing = []
    for module, project in {**NEEDED, **WISHED}.items():
        if importlib.util.find_spec(module) is not None:
            continue
        wheel = wheel_of(project)
        if wheel is None:
            if module in NEEDED:
                missing.append(project)
            continue
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(SITE)
    return sorted(set(missing))


def bring_c_parts(environment: dict[str, str]) -> str | None:
    """Build the C parts, or take the bundle's; returns why there are none."""
    if shutil.which(os.environ.get("CC", "gcc")):
        done = subprocess.run(
            [sys.executable, "-m", "libhook.build"],
            cwd=ROOT,
            env={**environment, "GEMINI_CFFI_MODE": "abi"},  # API mode wants Python.h and setuptools
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return None
        why = (done.stderr.strip().splitlines() or ["?"])[-1]
        print(f"  the build failed here ({why}); taking the bundle's", flush=True)
    if not (BUNDLE / "lib" / "libgemini_hook.so").exists():
        return "no gcc here and no built libraries in out/gpu-bundle/lib"
    shutil.copytree(BUNDLE / "lib", ROOT / "libhook" / "lib", dirs_exist_ok=True)
    for old in (ROOT / "libhook").glob("_core_api*.so"):
        old.unlink()  # of another Python
    shutil.copy2(BUNDLE / "_core_abi.py", ROOT / "libhook" / "_core_abi.py")
    return None


def bring_compiled() -> None:
    """The daemon compiled for this Python, where the bundle has it and the tree has not."""
    there = BUNDLE / "compiled"
    for path in there.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
        target = ROOT / path.relative_to(there)
        if not target.exists():
            shutil.copy2(path, target)


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - what comes after would only say SyntaxError
        print(f"gpu-check: Python {sys.version.split()[0]} is too old; say PYTHON=python3.11 or later", file=sys.stderr)
        return 2
    SITE.mkdir(parents=True, exist_ok=True)
    sys.path.append(str(SITE))
    missing = bring_packages()
    if missing:
        print(
            f"gpu-check: {', '.join(missing)} not installed and not in {BUNDLE}; "
            "run make gpu-bundle where there is a network, and bring the tree with its out/gpu-bundle here",
            file=sys.stderr,
        )
        return 2
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")]), str(SITE)]
    environment = {**os.environ, "PYTHONPATH": ":".join(path)}
    problem = bring_c_parts(environment)
    if problem is not None:
        print(f"gpu-check: {problem}; run make gpu-bundle where there is a gcc", file=sys.stderr)
        return 2
    bring_compiled()
    os.execve(sys.executable, [sys.executable, "-m", "bench.gpu_check.runner", *sys.argv[1:]], environment)


if __name__ == "__main__":
    sys.exit(main())
