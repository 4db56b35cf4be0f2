"""Does a program get other answers under the library than without it? Random driver calls, the same with and without.

Each seed is played twice on the simulated driver (tests/fuzz/play.c): bare, and as a tenant of a real daemon. All
results must be the same, and what the ledger says must be what the card holds, to the byte, whenever all is quiet. A
seed that differs is played once more with a trace; the first call that differs is in the report. Half of the seeds are
played by one thread, which may then also free twice, capture globally and change contexts, half by several.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.bed import LIB, ROOT, Bed
from bench.report import report

PLAY = ROOT / "tests" / "fuzz" / "play.c"
TENANT = "played"
MEMORY = 64 << 30


def build(folder: Path, *flags: str) -> Path:
    """The player, linked against libcuda like any program."""
    binary = folder / "play"
    libraries = [str(LIB / "sim" / "libcuda.so.1"), str(LIB / "libgemini_observer.so")]
    command = ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", *flags]
    subprocess.run([*command, "-o", str(binary), str(PLAY), *libraries, "-lpthread"], check=True)
    return binary


def played(bed: Bed, binary: Path, words: list[object], hooked: bool, patience_s: float) -> tuple[int, list[str]]:
    """Play once; the exit status and what was printed, in an order that does not depend on the threads."""
    env = bed.environment(TENANT if hooked else None, hooked=hooked)
    if not hooked:
        env["GEMINI_SIM"] = env["GEMINI_SIM"].replace(bed.id, f"{bed.id}-bare")
    env["LD_LIBRARY_PATH"] += f":{LIB}"
    env["GEMINI_LOG_FILE"] = str(bed.state_dir / "play.log")  # that the daemon was slow once is no answer of a call
    command = [str(binary), *map(str, words)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience_s)
    except subprocess.TimeoutExpired:
        return -1, [f"did not end within {patience_s} s"]
    return done.returncode, sorted(done.stdout.splitlines()) + done.stderr.splitlines()[:20]


def first_difference(bed: Bed, binary: Path, words: list[object], patience_s: float) -> str:
    """Play again with a trace of each call: where the two part."""
    with tempfile.TemporaryDirectory(prefix="gemini-trace-") as folder:
        for hooked in (False, True):
            played(bed, binary, [*words, f"{folder}/{hooked}"], hooked, patience_s)
        for bare in sorted(Path(folder).glob("False.*")):
            thread = bare.suffix[1:]
            ours = Path(folder) / f"True.{thread}"
            lines = [file.read_text().splitlines() if file.exists() else [] for file in (bare, ours)]
            for number, pair in enumerate(zip(*lines, strict=False)):
                if pair[0] != pair[1]:
                    before = "; ".join(lines[0][max(0, number - 5) : number])
                    return f"thread {thread}: bare {pair[0]!r}, under the library {pair[1]!r}; before it: {before}"
    return "not seen again"


def differences(bed: Bed, binary: Path, seed: int, calls: int, threads: int) -> tuple[int, dict[str, Any] | None]:
    """Play one seed both ways: how many calls, and what differed."""
    words: list[object] = [seed, calls, threads]
    patience_s = 600 + calls / 500  # a machine may stand still for minutes; what hangs does so for good
    bare, ours = (played(bed, binary, words, hooked, patience_s) for hooked in (False, True))
    count = next((int(line.split()[1]) for line in bare[1] if line.startswith("calls ")), 0)
    if bare == ours and bare[0] == 0:
        return count, None
    lines = [line for line in ours[1] if line not in bare[1]][:5]
    where = first_difference(bed, binary, words, patience_s)
    return count, {"seed": seed, "threads": threads, "status": [bare[0], ours[0]], "lines": lines, "first": where}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.differential", description=__doc__)
    parser.add_argument("--calls", type=int, default=200_000, help="driver calls in all (default 200000)")
    parser.add_argument("--each", type=int, default=50_000, help="calls of each seed (default 50000)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--threads", type=int, default=4, help="threads of every other seed (default 4)")
    arguments = parser.parse_args()
    total, seed, started = 0, arguments.seed, time.monotonic()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gemini-play-") as folder, Bed() as bed:
        binary = build(Path(folder))
        bed.tenant(TENANT, 1.0, 1.0, memory=MEMORY)
        while total < arguments.calls and len(found) < 5:
            threads = 1 if seed % 2 else arguments.threads
            count, difference = differences(bed, binary, seed, arguments.each, threads)
            total += count
            if difference is not None:
                found.append(difference)
                if not count:
                    break
            seed += 1
        for path in Path("/dev/shm").glob(f"gemini-sim-*{bed.id}-bare*"):
            path.unlink(missing_ok=True)
    figures = {
        "calls": total,
        "seeds": [arguments.seed, seed - 1],
        "calls_each": arguments.each,
        "wall_s": round(time.monotonic() - started, 1),
        "differences": found,
    }
    question = "does a program get other answers under the library than without it?"
    return report(question, figures, {"no difference": not found and total >= arguments.calls})


if __name__ == "__main__":
    raise SystemExit(main())
