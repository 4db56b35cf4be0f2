"""Run programs and tests on a library and a simulated driver that were built with sanitizers (libhook/build.py).

`players` is the short form: the differential fuzzer's player as two tenants of one card and one daemon, so that all
kinds of calls are made from several threads while the token goes to and fro. `suite_on` runs tests of tests/libhook in
a copy of the tree in which libhook/lib leads to the sanitized libraries. Both return what the sanitizers reported.

    python -m tests.sanitize.run address,undefined thread      # `make sanitize`: the tests of the library
    python -m tests.sanitize.run thread tests/libhook/hooks    # a part of them

All tests pass, and nothing is reported; the few that a sanitizer cannot run are left out by name (left_out.py). Reports
are read where the sanitizers write them, and where that is not heard of, in what the tests print.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.bed import ROOT, Bed
from bench.differential import MEMORY, build
from libhook.build import build_sanitized, sanitizer_runtime

FOLDERS = ("libhook", "scheduler_backend", "gemini", "bench", "tests")
SUITE = tuple(f"tests/libhook/{name}" for name in ("ways", "runtime", "hooks", "processes"))
CALLS = 6000
PATIENCE_S = 600


def options(reports: Path) -> dict[str, str]:
    """The environment in which sanitizers write what they find to files in `reports`."""
    common = f"log_path={reports}/report:exitcode=66"
    return {
        "ASAN_OPTIONS": f"{common}:detect_leaks=0",  # a process's objects live as long as it does
        "UBSAN_OPTIONS": f"{common}:print_stacktrace=1",
        # A fork in a process with threads is what the tests are about; Python itself and libzmq were built without.
        "TSAN_OPTIONS": f"{common}:die_after_fork=0:ignore_noninstrumented_modules=1",
    }


def found(reports: Path, printed: str = "") -> list[str]:
    """What was reported, the same thing once, each with the beginning of its story."""
    seen: dict[str, str] = {}
    for path in sorted(reports.iterdir()):
        for text in re.split(r"(?m)^={18,}$", path.read_text(errors="replace")):
            if text.strip():
                summary = re.search(r"SUMMARY: .*", text)
                seen.setdefault(summary[0] if summary else text.strip().splitlines()[0], text.strip()[:3000])
    for line in re.findall(r"SUMMARY: \w+Sanitizer: .*|.*: runtime error: .*", printed):
        seen.setdefault(line, f"{line}\n(seen in what a test printed)")
    return list(seen.values())


def players(names: str, lib: Path, folder: Path) -> list[str]:
    """Two tenants of one card play random calls, with the libraries in `lib`; what was reported."""
    reports = folder / "reports"
    reports.mkdir()
    binary = build(folder)
    runtime = sanitizer_runtime(names)
    with Bed() as bed, ThreadPoolExecutor(2) as pool:

        def play(tenant: str, seed: int, threads: int) -> subprocess.CompletedProcess[str]:
            bed.tenant(tenant, 0.5, 1.0, memory=MEMORY // 2)
            env = bed.environment(tenant) | options(reports)
            env |= {"LD_PRELOAD": f"{runtime}:{lib / 'libgemini_hook.so'}", "LD_LIBRARY_PATH": f"{lib / 'sim'}:{lib}"}
            command = [str(binary), str(seed), str(CALLS), str(threads)]
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)

        runs = list(pool.map(play, ("several", "one"), (2, 1), (4, 1)))
    told = found(reports)
    ends = [f"the player ended with {run.returncode}: {run.stderr[-1000:]}" for run in runs if run.returncode]
    return told or ends


def copied(folder: Path, lib: Path) -> Path:
    """A copy of the tree whose libhook/lib leads to `lib`."""
    tree = folder / "tree"
    skipped = shutil.ignore_patterns("lib", "__pycache__", "*.so", "_core_abi.py", "e2e", "results")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    shutil.copyfile(ROOT / "pyproject.toml", tree / "pyproject.toml")
    for built in (ROOT / "libhook").glob("_core_*"):
        (tree / "libhook" / built.name).symlink_to(built)
    (tree / "libhook" / "lib").symlink_to(lib)
    return tree


def suite_on(names: str, folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """pytest with `arguments` on the libraries with these sanitizers: how it ended, and what they reported."""
    tree = copied(folder, build_sanitized(names))
    reports = folder / "reports"
    reports.mkdir()
    runtime = str(sanitizer_runtime(names))
    environment = {
        **os.environ,
        **options(reports),
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GEMINI_SANITIZER": runtime,
        "LD_PRELOAD": runtime,
        "GEMINI_WAYS_PATIENCE": "60",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.sanitize.left_out"]
    command += ["--tb=short", *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    return done, found(reports, done.stdout + done.stderr)


def main() -> int:
    parts = [word for word in sys.argv[1:] if word.startswith("tests/")] or SUITE
    bad = 0
    for names in [word for word in sys.argv[1:] if word not in parts] or ["address,undefined", "thread"]:
        for part in parts:
            started = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="gemini-sanitize-") as folder:
                done, reports = suite_on(names, Path(folder), part)
            told = done.stdout.strip().splitlines()[-1:] or [f"pytest ended with {done.returncode}"]
            failed = re.findall(r"(?m)^(?:FAILED|ERROR) .*", done.stdout)
            seconds = time.monotonic() - started
            line = f"{names}, {part}: {told[0]}; {len(reports)} reports; {seconds:.0f} s"
            print(line, *failed, *reports, sep="\n", flush=True)
            bad += len(reports) > 0 or done.returncode != 0
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
