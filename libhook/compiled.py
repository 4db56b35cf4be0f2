"""Python modules that are compiled as well as read: `python -m libhook.compiled` (the builder runs it, see build.py).

The token machine and the daemon around it wake a hundred times a second and card, each time after a sleep in which
others had the processor's caches: what they cost is what they touch, and an interpreter touches much. mypyc makes C of
the modules as they stand, and the typed Python stays the only source. Where there is no mypyc, no `Python.h` or another
Python than the one that compiled, the modules are read as they are, and do the same more slowly.

What it makes lies beside the modules, named for this Python, and is ignored by git; one library of each group has the
code. `--remove` takes all of it away. pytest refuses to run what is older than its source (tests/conftest.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))  # .cpython-311-x86_64-linux-gnu.so
LIBRARY = "compiled__mypyc"  # mypyc's name for the library of a group called `compiled`
# package -> its compiled modules, as patterns below it. What is compiled calls each other directly: a group is whole.
GROUPS: dict[str, tuple[str, ...]] = {
    "scheduler_backend": ("core/*.py",),
}


def sources(package: str) -> list[Path]:
    """The modules of a group, sorted."""
    found = (path for pattern in GROUPS[package] for path in (ROOT / package).glob(pattern))
    return sorted(path for path in found if path.name != "__init__.py")


def outputs(package: str) -> list[Path]:
    """What compiling a group makes: its library, and a small one for each module."""
    return [ROOT / package / (LIBRARY + SUFFIX), *(path.with_name(path.stem + SUFFIX) for path in sources(package))]


def stale() -> list[Path]:
    """Sources that are newer than what was compiled of them; none where nothing was."""
    old = []
    for package in GROUPS:
        library, *_ = outputs(package)
        if library.exists():
            made = library.stat().st_mtime
            old += [path for path in sources(package) if path.stat().st_mtime > made]
    return old


def remove(package: str) -> None:
    """Take away what was compiled of a package, by this Python or another, as far as it lies beside a module."""
    for path in (ROOT / package).rglob("*.cpython-*.so"):
        name = path.name.partition(".")[0]
        if name == LIBRARY or path.with_name(f"{name}.py").exists():
            path.unlink()


def why_not() -> str:
    """What is missing for compiling; "" where nothing is."""
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "Python.h"
    return "" if importlib.util.find_spec("mypyc") else "mypy"


def compile_all() -> None:
    """Compile the groups that are missing or older than their sources. Raises CalledProcessError."""
    missing = why_not()
    for package in GROUPS:
        made = outputs(package)
        inputs = [*sources(package), Path(__file__)]
        if all(path.exists() for path in made) and made[0].stat().st_mtime >= max(p.stat().st_mtime for p in inputs):
            continue
        remove(package)
        if missing:
            print(f"  (no {missing}: {package} is not compiled, and takes a third more processor time)", flush=True)
            continue
        print(f"  MYPYC {package} ({len(inputs) - 1} modules)", flush=True)
        log = ROOT / "build" / "mypyc" / f"{package}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            result = subprocess.run(
                [sys.executable, "-m", "libhook.compiled", package], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
            )
        if result.returncode:
            sys.stderr.write(log.read_text(errors="replace")[-4000:])
            remove(package)
            result.check_returncode()
        made[0].touch()  # after the modules' own, whichever was written last


def _compile(package: str) -> None:
    """Compile one group, in a process of its own: setuptools takes the whole process."""
    from mypyc.build import mypycify
    from setuptools import setup

    work = ROOT / "build" / "mypyc" / package
    options = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={work / 'cache'}"]
    extensions = mypycify(
        [*options, *(str(path.relative_to(ROOT)) for path in sources(package))],
        only_compile_paths=[str(path.relative_to(ROOT)) for path in sources(package)],
        group_name=f"{package}.{LIBRARY.removesuffix('__mypyc')}",
        target_dir=str(work),
        opt_level="2",
        debug_level="1",
    )
    setup(
        name=f"{package}-compiled",
        packages=[],
        ext_modules=extensions,
        script_args=["-q", "build_ext", "--inplace", f"--build-temp={work}", f"--build-lib={work}"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m libhook.compiled", description="Compile Python modules to C.")
    parser.add_argument("package", nargs="?", choices=sorted(GROUPS), help="one group, anew and with all that is said")
    parser.add_argument("--remove", action="store_true", help="take away what was compiled; modules are read again")
    arguments = parser.parse_args()
    if arguments.remove:
        for package in GROUPS:
            remove(package)
    elif arguments.package:
        _compile(arguments.package)
    else:
        compile_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
