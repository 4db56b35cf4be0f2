"""Does any input break a decoder? Fuzzers of tests/fuzz/ for a given time each, with sanitizers on.

Uses libFuzzer where there is a clang that has it (Debian: clang and libclang-rt-dev), which steers by coverage; else
gcc and the plain mutator (tests/fuzz/driver.c). What was found to be interesting stays in the corpus folder, so that a
later run goes on from there. An input that breaks a claim stays in `FOLDER/TARGET-findings`.

`--seconds` is wall time; `--cpu-seconds` is processor time, which is what counts where others use the machine: a target
is played in rounds until it has had so much. `--onto RECORD` goes on from an earlier report: what it says of a target
whose decoder and fuzzer are still the same, to the byte, is added to this run's. SIGINT or SIGTERM end a run early: its
report then says how far it came.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.report import ROOT, report

FUZZ = ROOT / "tests" / "fuzz"
# The decoder that each target plays with.
TARGETS = {
    "zmtp": ("core/zmtp.c",),
    "door": ("core/zmtp.c", "core/wire.c"),
    "wire": ("core/wire.c", "core/token.c"),
    "options": (
        "runtime/options.c",
        "runtime/log.c",
        "sim/model/spec.c",
        "sim/model/profile.c",
        "sim/model/roofline.c",
    ),
}
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-error=unused-parameter")
FLAGS = ("-std=gnu11", "-O1", "-g", *WARNINGS, f"-I{ROOT}", "-fno-sanitize-recover=all")
ROUND_S = 300  # of a run by processor time: what is lost when it is killed
INTERRUPTED = (0, 72, -signal.SIGTERM)  # how a fuzzer ends that is told to: ours, libFuzzer's, one that had not begun
COUNTED = ("wall_s", "cpu_s", "inputs")
SANITIZED = {**os.environ, "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=0", "UBSAN_OPTIONS": "abort_on_error=1"}


stopping = threading.Event()
running: set[int] = set()  # pids of fuzzers


def stop(*_: object) -> None:
    """End the rounds that run, and begin no other. A signal handler."""
    stopping.set()
    for pid in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


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


def digest(target: str) -> str:
    """Of the decoder and its fuzzer, headers included: hours of fuzzing count for this very code only."""
    sources = [FUZZ / "fuzz.h", FUZZ / f"{target}.c", *(ROOT / "libhook" / name for name in TARGETS[target])]
    headers = [path.with_suffix(".h") for path in sources[2:]]
    read = hashlib.sha256()
    for path in [*sources, *filter(Path.exists, headers)]:
        read.update(path.read_bytes())
    return read.hexdigest()[:16]


def round_of(command: list[object], findings: Path, log: Path) -> tuple[int, float]:
    """One run of a fuzzer: its exit status and the processor time it took."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            list(map(str, command)), cwd=findings, stdout=output, stderr=subprocess.STDOUT, env=SANITIZED
        )
        running.add(child.pid)
        if stopping.is_set():  # between the two it found nobody to tell
            os.kill(child.pid, signal.SIGTERM)
        _, status, usage = os.wait4(child.pid, 0)
        running.discard(child.pid)
        child.returncode = os.waitstatus_to_exitcode(status)
    told = stopping.is_set() and child.returncode in INTERRUPTED
    return 0 if told else child.returncode, usage.ru_utime + usage.ru_stime


def play(
    target: str, seconds: int, folder: Path, clang: str | None, cpu_seconds: float | None = None
) -> dict[str, Any]:
    """Fuzz one target for `seconds`, or until it had `cpu_seconds`; returns what was run and what was found."""
    with tempfile.TemporaryDirectory(prefix="gemini-fuzz-") as place:
        plain = build(target, Path(place))
        corpus, findings = folder / target, folder / f"{target}-findings"
        for made in (corpus, findings):
            made.mkdir(parents=True, exist_ok=True)
        subprocess.run([plain, "--seeds", corpus], check=True, env=SANITIZED)
        fuzzer = build(target, Path(place), clang) if clang else plain
        log = Path(place) / "log"
        run: dict[str, Any] = {"engine": "libFuzzer" if clang else "plain mutator", "wall_s": 0.0, "cpu_s": 0.0}
        run |= {"inputs": 0, "edges": None, "features": None, "exit_status": 0, "sources": digest(target)}
        started = time.monotonic()
        while not stopping.is_set():
            left = seconds - run["wall_s"]
            if cpu_seconds is not None:
                left = min(left, ROUND_S, cpu_seconds - run["cpu_s"])
            left = max(1, round(left))
            command: list[object] = [fuzzer, "--seconds", left, "--seed", time.time_ns() % 2**32]
            if clang:
                command = [fuzzer, f"-max_total_time={left}", "-max_len=8192", "-print_final_stats=1", corpus]
            run["exit_status"], cpu_s = round_of(command, findings, log)
            text = log.read_text(errors="replace")
            count = re.search(r"number_of_executed_units: (\d+)" if clang else r"(\d+) inputs", text)
            if features := re.findall(r"cov: (\d+) ft: (\d+)", text):
                run["edges"], run["features"] = map(int, features[-1])
            run["inputs"] += int(count.group(1)) if count else 0
            run["cpu_s"] = round(run["cpu_s"] + cpu_s, 1)
            run["wall_s"] = round(time.monotonic() - started, 1)
            (folder / f"{target}.json").write_text(json.dumps(run))  # for who ends it early
            if run["exit_status"]:
                (findings / "log").write_text(text)
                return run
            if run["wall_s"] >= seconds or cpu_seconds is None or run["cpu_s"] >= cpu_seconds:
                return run
        return run


def earlier(record: Path | None, target: str) -> dict[str, Any]:
    """What a recorded run says of a target, if it was of the same code and found nothing; else nothing."""
    if record is None or not record.exists():
        return {}
    run: dict[str, Any] = json.loads(record.read_text())["targets"].get(target, {})
    return run if run.get("sources") == digest(target) and run["exit_status"] == 0 else {}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"which of {', '.join(TARGETS)}; all when none is named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60; the record: 3600)")
    parser.add_argument("--cpu-seconds", type=float, help="of processor time, each, in all; --seconds is the most then")
    parser.add_argument("--onto", type=Path, help="a recorded run: add to what it says of unchanged targets")
    parser.add_argument("--jobs", type=int, default=1, help="how many targets at once (default 1)")
    parser.add_argument("--corpus", type=Path, default=ROOT / "out" / "fuzz", help="where inputs are kept (out/fuzz)")
    parser.add_argument("--plain", action="store_true", help="the plain mutator, also where there is libFuzzer")
    arguments = parser.parse_args()
    targets = arguments.targets or list(TARGETS)
    for target in targets:
        if target not in TARGETS:
            parser.error(f"{target} is no target; there are {', '.join(TARGETS)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    clang = None if arguments.plain else libfuzzer()
    before = {target: earlier(arguments.onto, target) for target in targets}

    def one(target: str) -> dict[str, Any]:
        wanted = arguments.cpu_seconds
        if wanted is not None:
            wanted -= before[target].get("cpu_s", 0)
        run = play(target, arguments.seconds, arguments.corpus.resolve(), clang, wanted)
        return run | {name: round(run[name] + before[target].get(name, 0), 1) for name in COUNTED}

    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = list(pool.map(one, targets))
    figures = {"seconds": arguments.seconds, "targets": dict(zip(targets, runs, strict=True))}
    wanted = arguments.cpu_seconds or 0
    return report(
        "does any input break a decoder?",
        figures,
        {
            target: run["exit_status"] == 0 and run["inputs"] > 0 and run["cpu_s"] >= wanted
            for target, run in zip(targets, runs, strict=True)
        },
    )


if __name__ == "__main__":
    raise SystemExit(main())
