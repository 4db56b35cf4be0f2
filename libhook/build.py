"""The one builder of everything in C: `python -m libhook.build` (also run by pip, see setup.py).

What it makes, all below libhook/ and all ignored by git:

    _core*.so                   the Python extension over core/ and carrier/ (without Python.h: ABI mode, and
                                lib/libgemini_core.so)
    lib/libgemini_hook.so       the preload library: core/ driver/ runtime/ hooks/
    lib/sim/libcuda.so.1        the simulated driver: sim/driver/ and core it shares
    lib/sim/libnvidia-ml.so.1   the simulated NVML: sim/nvml/
    lib/libgemini_observer.so   reads the simulated device's timeline: sim/observer/
    lib/gemini-load             the load generator: sim/load.c

The declarations that Python sees are the parts of core/*.h and carrier/*.h between "cffi: begin" and "cffi: end".
"""

from __future__ import annotations

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


def link(target: Path, inputs: list[Path], *flags: str, shared: bool = True) -> None:
    """Compile and link `inputs` into `target`, unless it is newer than every C file and header here."""
    if not inputs:
        return
    included = sorted([*ROOT.rglob("*.h"), *ROOT.rglob("*.map")])
    if _newer(target, [*inputs, *included, Path(__file__)]):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "gcc")
    extra = os.environ.get("GEMINI_CFLAGS", "").split()
    temporary = target.with_name(target.name + f".{os.getpid()}.tmp")
    command = [compiler, *CFLAGS, *extra, *(["-shared"] if shared else []), "-o", str(temporary), *map(str, inputs)]
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


def build_all() -> None:
    """Build whatever is missing or older than its sources."""
    build_extension()
    link(LIB / "libgemini_hook.so", sources(*HOOK_DIRS), *HOOK_FLAGS, "-Wl,-z,defs", "-Wl,-z,now", BIND_INSIDE)
    sim = ("-Wl,-z,defs", BIND_INSIDE, "-ldl", "-lpthread", "-lrt")
    link(LIB / "sim" / "libcuda.so.1", sources("sim/model", "sim/driver"), "-Wl,-soname,libcuda.so.1", *sim)
    link(LIB / "sim" / "libnvidia-ml.so.1", sources("sim/model", "sim/nvml"), "-Wl,-soname,libnvidia-ml.so.1", *sim)
    link(LIB / "libgemini_observer.so", sources("sim/model", "sim/observer"), *sim)
    if (ROOT / "sim" / "load.c").exists():
        link(LIB / "gemini-load", [ROOT / "sim" / "load.c"], "-ldl", "-lpthread", "-lm", shared=False)


if __name__ == "__main__":
    try:
        build_all()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        sys.exit(f"gemini: the build failed: {error}; it needs gcc and the C library's headers")
