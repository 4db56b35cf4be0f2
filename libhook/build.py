"""The one builder of everything in C: `python -m libhook.build` (also run by pip, see setup.py).

What it makes, all below libhook/ and all ignored by git:

    _core*.so                   the Python extension over core/ and carrier/ (without Python.h: ABI mode, and
                                lib/libgemini_core.so)
    lib/libgemini_hook.so       the preload library: core/ driver/ runtime/ hooks/
    lib/sim/libcuda.so.1        the simulated driver: sim/driver/ and core it shares
    lib/sim/libnvidia-ml.so.1   the simulated NVML: sim/nvml/
    lib/libgemini_observer.so   reads the simulated device's timeline: sim/observer/
    lib/gemini-load             the load generator: sim/load.c

`--sanitize address,undefined` or `--sanitize thread` makes the shared libraries and the load generator once more with
gcc's sanitizers in them, in build/sanitize/NAME (docs/proof.md); `preloaded` says how such a library is preloaded.

The declarations that Python sees are the parts of core/*.h and carrier/*.h between "cffi: begin" and "cffi: end".
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LIB = ROOT / "lib"
CFLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", f"-I{ROOT.parent}"]
PYTHON_DIRS = ("core", "carrier")
HOOK_DIRS = ("core", "driver", "runtime", "hooks")
# Both the library and the simulated driver export cu*: each must reach its own functions, whoever else defines them.
BIND_INSIDE = "-Wl,-Bsymbolic-functions"
# Loads on old C libraries (driver/floor.h says how), and takes the C library's place for dlsym (hooks/dlsym.S).
HOOK_FLAGS = ("-include", str(ROOT / "driver" / "floor.h"), f"-Wl,--version-script={ROOT / 'hooks' / 'exports.map'}")
SANITIZED = ("-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-Wno-tsan")
# These run when the sanitizer's own start-up calls dlsym, which is ours: before it can keep books of any access.
BEFORE_SANITIZERS = ("hooks/entry.c", "driver/real.c")
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
CFFI_PART = re.compile(r"/\* cffi: begin \*/(.*?)/\* cffi: end \*/", re.S)


def headers(*folders: str) -> list[Path]:
    """All headers of the named folders, by name in each."""
    return [p for folder in folders for p in sorted((ROOT / folder).glob("*.h"))]


def declarations() -> str:
    """The C declarations that Python sees, in the order of the headers' names (wire.h last needs none)."""
    return "\n".join(part for header in headers(*PYTHON_DIRS) for part in CFFI_PART.findall(header.read_text()))


def sources(*folders: str) -> list[Path]:
    """All C and assembly sources of the named folders, sorted."""
    return sorted(p for folder in folders for p in (ROOT / folder).glob("*.[cS]"))


def _newer(target: Path, inputs: list[Path]) -> bool:
    return target.exists() and all(p.stat().st_mtime <= target.stat().st_mtime for p in inputs)


def _compiler() -> list[str]:
    return [os.environ.get("CC", "gcc"), *CFLAGS, *os.environ.get("GEMINI_CFLAGS", "").split()]


def link(target: Path, inputs: list[Path], *flags: str, shared: bool = True) -> None:
    """Compile and link `inputs` into `target`, unless it is newer than every C file and header here."""
    if not inputs:
        return
    included = sorted([*ROOT.rglob("*.h"), *ROOT.rglob("*.map")])
    if _newer(target, [*inputs, *included, Path(__file__)]):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + f".{os.getpid()}.tmp")
    command = [*_compiler(), *(["-shared"] if shared else []), "-o", str(temporary), *map(str, inputs)]
    print(f"  CC  {target.relative_to(ROOT.parent)}", flush=True)
    subprocess.run([*command, *flags], check=True)
    temporary.replace(target)


def build_extension() -> None:
    """The Python extension over the core: API mode where Python.h is there, else ABI mode over a shared library."""
    import cffi

    inputs = [*sources(*PYTHON_DIRS), *headers(*PYTHON_DIRS), Path(__file__)]
    have_python_h = (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()
    if os.environ.get("GEMINI_CFFI_MODE") == "abi":
        have_python_h = False
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    target = ROOT / (f"_core_api{suffix}" if have_python_h else "_core_abi.py")
    if not _newer(target, inputs):
        ffi = cffi.FFI()
        ffi.cdef(declarations())
        print(f"  CFFI {target.relative_to(ROOT.parent)}", flush=True)
        if have_python_h:
            includes = "\n".join(f'#include "{h.relative_to(ROOT.parent)}"' for h in headers(*PYTHON_DIRS))
            ffi.set_source(
                "libhook._core_api",
                includes,
                sources=[str(p) for p in sources(*PYTHON_DIRS)],
                include_dirs=[str(ROOT.parent)],
                extra_compile_args=["-std=gnu11", "-O2"],
            )
            ffi.compile(tmpdir=str(ROOT.parent / "build" / "cffi"), target=str(target))
        else:
            ffi.set_source("libhook._core_abi", None)
            with contextlib.redirect_stdout(io.StringIO()):  # cffi says the path again
                ffi.emit_python_code(str(target))
    if not have_python_h:
        link(LIB / "libgemini_core.so", sources(*PYTHON_DIRS), "-fvisibility=default", "-lpthread")


def build_libraries(lib: Path = LIB, *more: str) -> None:
    """The shared libraries and the load generator in `lib`, those that are missing or older than their sources."""
    hook = sources(*HOOK_DIRS)
    if more:
        hook = [_plain_object(lib, path) if str(path.relative_to(ROOT)) in BEFORE_SANITIZERS else path for path in hook]
    link(lib / "libgemini_hook.so", hook, *more, *HOOK_FLAGS, "-Wl,-z,defs", "-Wl,-z,now", BIND_INSIDE)
    sim = (*more, "-Wl,-z,defs", BIND_INSIDE, "-ldl", "-lpthread", "-lrt")
    link(lib / "sim" / "libcuda.so.1", sources("sim/model", "sim/driver"), "-Wl,-soname,libcuda.so.1", *sim)
    link(lib / "sim" / "libnvidia-ml.so.1", sources("sim/model", "sim/nvml"), "-Wl,-soname,libnvidia-ml.so.1", *sim)
    link(lib / "libgemini_observer.so", sources("sim/model", "sim/observer"), *sim)
    if (ROOT / "sim" / "load.c").exists():
        link(lib / "gemini-load", [ROOT / "sim" / "load.c"], *more, "-ldl", "-lpthread", "-lm", shared=False)


def _plain_object(lib: Path, source: Path) -> Path:
    """The object of one of the library's sources, without sanitizers."""
    target = lib / "plain" / f"{source.stem}.o"
    if not _newer(target, [source, *ROOT.rglob("*.h"), Path(__file__)]):
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*_compiler(), *HOOK_FLAGS[:2], "-c", "-o", str(target), str(source)], check=True)
    return target


def build_sanitized(names: str) -> Path:
    """The libraries with the named sanitizers (gcc's -fsanitize=NAMES) in them; the folder they are in."""
    lib = ROOT.parent / "build" / "sanitize" / names.replace(",", "-")
    build_libraries(lib, f"-fsanitize={names}", *SANITIZED)
    return lib


def sanitizer_runtime(names: str) -> Path:
    """What has to come first in a process that loads sanitized libraries; FileNotFoundError where gcc has none."""
    wanted = next(library for name, library in RUNTIMES.items() if name in names.split(","))
    said = subprocess.run([*_compiler()[:1], f"-print-file-name={wanted}"], capture_output=True, text=True, check=True)
    found = Path(said.stdout.strip())
    if not found.is_absolute() or not found.exists():
        raise FileNotFoundError(f"gcc has no {wanted}")
    return found.resolve()


def preloaded(*libraries: Path) -> str:
    """LD_PRELOAD for these; GEMINI_SANITIZER names the sanitizers' runtime where they were built with it."""
    return ":".join(filter(None, [os.environ.get("GEMINI_SANITIZER"), *map(str, libraries)]))


def build_all() -> None:
    """Build whatever is missing or older than its sources."""
    build_extension()
    build_libraries()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m libhook.build", description="Build everything in C.")
    parser.add_argument("--sanitize", metavar="NAMES", help="once more, with these sanitizers, in build/sanitize/NAMES")
    names = parser.parse_args().sanitize
    if names is not None and not set(names.split(",")) & set(RUNTIMES):
        parser.error(f"--sanitize {names}: one of {', '.join(RUNTIMES)} must be among them, as in address,undefined")
    try:
        if names:
            build_sanitized(names)
        else:
            build_all()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f"gemini: the build failed: {error}; it needs gcc and the C library's headers", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
