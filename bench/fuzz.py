"""Does any input break a decoder? Fuzzers of tests/fuzz/ for a given time each, with sanitizers on.

Uses libFuzzer where there is a clang that has it (Debian: clang and libclang-rt-dev), which steers by coverage; else
gcc and the plain mutator of tests/fuzz/driver.c. What was found to be interesting stays in the corpus folder, so that
a later run goes on from there; an input that breaks a claim stays in FOLDER/TARGET-findings.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.report import ROOT, report

FUZZ = ROOT / "tests" / "fuzz"
# The decoder that each target plays with.
TARGETS = {
    "zmtp": ("runtime/zmtp.c",),
    "wire": ("core/wire.c", "core/token.c"),
    "options": ("runtime/options.c", "runtime/log.c", "sim/model/spec.c"),
}
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-error=unused-parameter")
FLAGS = ("-std=gnu11", "-O1", "-g", *WARNINGS, f"-I{ROOT}", "-fno-sanitize-recover=all")
SANITIZED = {**os.environ, "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=0", "UBSAN_OPTIONS": "abort_on_error=1"}


def libfuzzer() -> str | None:
    """A clang that links libFuzzer, or None."""
    names = ["clang", *(f"clang-{version}" for version in range(25, 10, -1))]
    for compiler in filter(None, map(shutil.which, names)):
        asked = [compiler, "-fsanitize=fuzzer,address", "-x", "c", "-", "-o", "/dev/null"]
        source = "#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *d, size_t s) { return d && s ? 0 : 0; }"
        if subprocess.run(asked, input=source, text=True, capture_output=True).returncode == 0:
            return compiler
    return None


def build(target: str, folder: Path, clang: str | None = None, sources: Path = ROOT / "libhook") -> Path:
    """The fuzzer of `target`, with libFuzzer if `clang` is given; its decoder may come from another tree."""
    binary = folder / (target + ("-libfuzzer" if clang else "-plain"))
    parts = [str(FUZZ / f"{target}.c"), *(str(sources / name) for name in TARGETS[target])]
    if clang:
        command = [clang, "-fsanitize=fuzzer,address,undefined,float-cast-overflow", *FLAGS, *parts]
    else:
        command = ["gcc", "-fsanitize=address,undefined", *FLAGS, *parts, str(FUZZ / "driver.c")]
    subprocess.run([*command, "-o", str(binary)], check=True)
    return binary


def play(target: str, seconds: int, folder: Path, clang: str | None) -> dict[str, Any]:
    """Fuzz one target; returns what was run and what was found."""
    with tempfile.TemporaryDirectory(prefix="gemini-fuzz-") as place:
        plain = build(target, Path(place))
        corpus, findings = folder / target, folder / f"{target}-findings"
        for made in (corpus, findings):
            made.mkdir(parents=True, exist_ok=True)
        subprocess.run([plain, "--seeds", corpus], check=True, env=SANITIZED)
        command: list[object] = [plain, "--seconds", seconds, "--seed", time.time_ns() % 2**32]
        if clang:
            fuzzer = build(target, Path(place), clang)
            command = [fuzzer, f"-max_total_time={seconds}", "-max_len=8192", "-print_final_stats=1", corpus]
        started = time.monotonic()
        log = Path(place) / "log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                list(map(str, command)), cwd=findings, stdout=output, stderr=subprocess.STDOUT, env=SANITIZED
            )
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        text = log.read_text(errors="replace")
        count = re.search(r"number_of_executed_units: (\d+)" if clang else r"(\d+) inputs", text)
        features = re.findall(r"cov: (\d+) ft: (\d+)", text)
        if child.returncode:
            (findings / "log").write_text(text)
    return {
        "engine": "libFuzzer" if clang else "plain mutator",
        "wall_s": round(time.monotonic() - started, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "inputs": int(count.group(1)) if count else 0,
        "edges": int(features[-1][0]) if features else None,
        "features": int(features[-1][1]) if features else None,
        "exit_status": child.returncode,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"which of {', '.join(TARGETS)}; all when none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60; the record: 3600)")
    parser.add_argument("--jobs", type=int, default=1, help="how many targets at once (default 1)")
    parser.add_argument("--corpus", type=Path, default=ROOT / "out" / "fuzz", help="where inputs are kept (out/fuzz)")
    parser.add_argument("--plain", action="store_true", help="the plain mutator, also where there is libFuzzer")
    arguments = parser.parse_args()
    targets = arguments.targets or list(TARGETS)
    for target in targets:
        if target not in TARGETS:
            parser.error(f"{target} is no target; there are {', '.join(TARGETS)}")
    clang = None if arguments.plain else libfuzzer()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = list(pool.map(lambda t: play(t, arguments.seconds, arguments.corpus.resolve(), clang), targets))
    figures = {"seconds": arguments.seconds, "targets": dict(zip(targets, runs, strict=True))}
    return report(
        "does any input break a decoder?",
        figures,
        {target: run["exit_status"] == 0 and run["inputs"] > 0 for target, run in zip(targets, runs, strict=True)},
    )


if __name__ == "__main__":
    raise SystemExit(main())
