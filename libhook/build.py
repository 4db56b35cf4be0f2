"""The one builder of everything in C: `python -m libhook.build` (also run by pip, see setup.py).

What it makes, all ignored by git, below libhook/:

    _core_api.abi3.so           the Python extension over core/, carrier/ and placement/, for any Python from
                                3.11 on (without Python.h: ABI mode, _core_abi.py and lib/libgemini_core.so)
    lib/libgemini_hook.so       the preload library: core/ driver/ runtime/ hooks/
    lib/sim/libcuda.so.1        the simulated driver: sim/driver/ and core it shares; libcuda.so leads to it
    lib/sim/libnvidia-ml.so.1   the simulated NVML: sim/nvml/
    lib/sim/libcudart.so.*      the simulated CUDA runtime, of each major version: sim/runtime/
    lib/sim/libcublas*.so.*     stand-ins for cuBLAS and cuBLASLt, which compute nothing: sim/compute/, sim/cublas*/
    lib/sim/libcudnn.so.9       a stand-in for cuDNN, which refuses all that would launch: sim/compute/, sim/cudnn/
    lib/libgemini_observer.so   reads the simulated device's timeline: sim/observer/
    lib/gemini-load             the load generator: sim/load/
    lib/gemini-probe            what a card's driver does, where Gemini relies on it: probe/

and beside the Python modules that libhook/compiled.py names, what mypyc makes of them.

Objects of the shared libraries and programs lie in build/objects (libhook/objects.py): what did not change is not
compiled again. `--libraries` makes these alone, without the extension and the Python modules.

`--sanitize address,undefined` or `--sanitize thread` makes the shared libraries and the load generator once more with
gcc's sanitizers in them, in build/sanitize/NAME (docs/proof.md); `preloaded` says how such a library is preloaded.

The declarations that Python sees are the parts of the headers there between "cffi: begin" and "cffi: end".
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
from collections.abc import Sequence
from pathlib import Path

from libhook import compiled, objects
from libhook.objects import Compiler

ROOT = Path(__file__).resolve().parent
LIB = ROOT / "lib"
# Paths in flags begin at the tree, in which the compiler works: in a copy of it the command is the same.
CFLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-I."]
PYTHON_DIRS = ("core", "carrier", "placement")
HOOK_DIRS = ("core", "driver", "runtime", "hooks")
# Both the library and the simulated driver export cu*: each must reach its own functions, whoever else defines them.
BIND_INSIDE = "-Wl,-Bsymbolic-functions"
VERSIONS = ("-include", "libhook/driver/versions.h")
HOOK_FLOOR = ("-include", "libhook/driver/floor.h")
SIM_FLAGS = (*HOOK_FLOOR, "-include", "libhook/sim/floor.h")
# By their own names: on a new system -lpthread and -ldl name nothing, and an old one then finds neither.
OLD_LIBRARIES = ("-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2", "-Wl,--as-needed")
CUDA_MAJORS = (12, 13)
# Libraries that programs are linked against by a name with a version in it: name, versions, sources, definitions.
PUBLISHED = (
    ("libcudart", CUDA_MAJORS, ("sim/runtime",)),
    ("libcublas", CUDA_MAJORS, ("sim/compute", "sim/cublas"), '-DCOMPUTE_NAME="the simulated cuBLAS"'),
    ("libcublasLt", CUDA_MAJORS, ("sim/compute", "sim/cublaslt"), '-DCOMPUTE_NAME="the simulated cuBLASLt"'),
    ("libcudnn", (9,), ("sim/compute", "sim/cudnn"), '-DCOMPUTE_NAME="the simulated cuDNN"'),
)
FLOOR = (2, 28)  # glibc that everything loads on; the preload library alone on older ones (driver/floor.h)
BUILD_ID = "-Wl,--build-id=sha1"  # libhook/info.py reads it
# Loads on old C libraries (driver/floor.h), and takes the C library's place for dlsym and dlopen (hooks/dlsym.S).
HOOK_FLAGS = (*HOOK_FLOOR, "-Wl,--version-script=libhook/hooks/exports.map")
SANITIZED = ("-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-Wno-tsan")
# These run when the sanitizer's own start-up calls dlsym and dlopen, which are ours: before it keeps books of accesses.
BEFORE_SANITIZERS = ("hooks/entry.c", "hooks/opened.c", "driver/real.c")
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


def link(target: Path, inputs: list[Path], *flags: str, shared: bool = True, plain: Sequence[str] = ()) -> None:
    """Compile and link `inputs` into `target`, as far as something in them changed; `plain` are compiled without the
    sanitizers among the flags."""
    if not inputs:
        return
    compiling = [flag for flag in flags if not flag.startswith(("-Wl,", "-l", "-L"))]
    as_asked = Compiler([*_compiler(), *compiling])
    without = [flag for flag in compiling if flag not in SANITIZED and not flag.startswith("-fsanitize=")]
    as_plain = Compiler([*_compiler(), *without])
    compilers = [(as_plain if str(path.relative_to(ROOT)) in plain else as_asked, path) for path in inputs]
    # The libraries that it is linked with stand behind the objects that need them.
    command = [*_compiler(), *(["-shared"] if shared else [])]
    objects.link(target, compilers, command, flags, sorted(ROOT.rglob("*.map")))


def build_extension() -> None:
    """The Python extension over the core: API mode where Python.h is there, else ABI mode over a shared library."""
    import cffi

    inputs = [*sources(*PYTHON_DIRS), *headers(*PYTHON_DIRS), Path(__file__)]
    have_python_h = (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()
    if os.environ.get("GEMINI_CFFI_MODE") == "abi":
        have_python_h = False
    target = ROOT / ("_core_api.abi3.so" if have_python_h else "_core_abi.py")
    for older in ROOT.glob("_core_api.cpython-*.so"):  # named for one Python, it would be loaded before this
        older.unlink()
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
                extra_compile_args=["-std=gnu11", "-O2", *VERSIONS],
            )
            ffi.compile(tmpdir=str(ROOT.parent / "build" / "cffi"), target=str(target))
        else:
            ffi.set_source("libhook._core_abi", None)
            with contextlib.redirect_stdout(io.StringIO()):  # cffi says the path again
                ffi.emit_python_code(str(target))
    if not have_python_h:
        link(LIB / "libgemini_core.so", sources(*PYTHON_DIRS), "-fvisibility=default", *VERSIONS, "-lpthread")


def build_hook(lib: Path = LIB, *more: str) -> None:
    """The preload library in `lib`, if it is not of the sources as they are."""
    flags = (*more, *HOOK_FLAGS, BUILD_ID, "-Wl,-z,defs", "-Wl,-z,now", BIND_INSIDE)
    link(lib / "libgemini_hook.so", sources(*HOOK_DIRS), *flags, plain=BEFORE_SANITIZERS if more else ())


def build_libraries(lib: Path = LIB, *more: str) -> None:
    """The shared libraries and programs in `lib`, those that are not of the sources as they are."""
    build_hook(lib, *more)
    floor = () if more else SIM_FLAGS  # sanitizers are for this machine, and replace functions of their own
    sim = (*more, *floor, "-Wl,-z,defs", BIND_INSIDE, "-ldl", "-lpthread", "-lrt")
    link(lib / "sim" / "libcuda.so.1", sources("sim/model", "sim/driver"), "-Wl,-soname,libcuda.so.1", *sim)
    needs = (f"-L{lib / 'sim'}", "-Wl,--no-as-needed", "-l:libcuda.so.1", "-Wl,--filter=libcuda.so.1")
    link(lib / "sim" / "libcuda.so", sources("sim/unversioned"), "-Wl,-soname,libcuda.so", *needs, *sim)
    link(lib / "sim" / "libnvidia-ml.so.1", sources("sim/model", "sim/nvml"), "-Wl,-soname,libnvidia-ml.so.1", *sim)
    for name, majors, folders, *defines in PUBLISHED:
        for major in majors:
            soname = f"{name}.so.{major}"  # its symbols have its own name as their version, as NVIDIA's have
            front = (*defines, f"-DCUDA_MAJOR={major}", f"-Wl,-soname,{soname}", "-Wl,--default-symver")
            link(lib / "sim" / soname, sources(*folders), *front, *sim)
    link(lib / "libgemini_observer.so", sources("sim/model", "sim/observer"), *sim)
    program = more or (*SIM_FLAGS, "-DGEMINI_PROGRAM", "-Wl,--wrap=__libc_start_main", *OLD_LIBRARIES)
    link(lib / "gemini-load", sources("sim/load"), *program, "-ldl", "-lpthread", "-lm", shared=False)
    link(lib / "gemini-probe", sources("probe"), *program, "-ldl", "-lpthread", shared=False)


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
    if os.environ.get("GEMINI_CFFI_MODE") != "abi":
        compiled.compile_all()


def check_floor(root: Path = ROOT) -> None:
    """Raise ValueError where something that was built asks for a newer C library than FLOOR."""
    modules = (path for package in compiled.GROUPS for path in compiled.outputs(package))
    built = (p for p in (*(root / "lib").rglob("*"), *root.glob("_core_api*.so"), *modules) if p.is_file())
    for path in sorted(p for p in built if p.read_bytes()[:4] == b"\x7fELF"):
        listed = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True)
        for name, version in re.findall(r"(\w+)@GLIBC_([\d.]+)", listed.stdout):
            if tuple(map(int, version.split("."))) > FLOOR:
                raise ValueError(f"{path.name} needs {name} of glibc {version}; see libhook/sim/floor.h")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m libhook.build", description="Build everything in C.")
    parser.add_argument("--sanitize", metavar="NAMES", help="once more, with these sanitizers, in build/sanitize/NAMES")
    parser.add_argument("--libraries", action="store_true", help="the shared libraries and programs alone")
    arguments = parser.parse_args()
    names = arguments.sanitize
    if names is not None and not set(names.split(",")) & set(RUNTIMES):
        parser.error(f"--sanitize {names}: one of {', '.join(RUNTIMES)} must be among them, as in address,undefined")
    try:
        if names:
            build_sanitized(names)
        elif arguments.libraries:
            build_libraries()
        else:
            build_all()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f"gemini: the build failed: {error}; it needs gcc and the C library's headers", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
