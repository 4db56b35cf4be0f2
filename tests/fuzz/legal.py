"""Do programs that CUDA allows come to their end under the library, and to what they must come to?

Random programs (legal.c) of streams, events, copies, host functions, waits for values, graphs, threads and contexts,
each of which knows what it must come to. Each seed is played bare, and then as a tenant of a real daemon beside others
that have work, so that its gate closes again and again. One that takes no step for PATIENCE_S hangs: what its threads
stand in is told, where gdb is there. For how long each stood still at most is told, too.

    python -m tests.fuzz.legal --seconds 600 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.bed import LIB, ROOT, Bed

LEGAL = Path(__file__).with_name("legal.c")
TENANT = "played"
MEMORY = 4 << 30
PATIENCE_S = 60.0  # the longest pause of a program is 50 ms, that of an overrun one second
LOOK_S = 0.1
GAMES = 6  # seeds beside the same others
BESIDE: dict[str, tuple[tuple[object, ...], ...]] = {  # the loads of the others
    "busy": (("--kernel-us", 100),),
    "hosts": (("--kernel-us", 200, "--burst", 1, "--gap-us", 300),),
    "comes": (("--kernel-us", 500, "--burst", 20, "--gap-us", 40000),),
    "two": (("--kernel-us", 1000), ("--kernel-us", 100, "--burst", 3, "--gap-us", 500)),
}
CARDS = ("memory=8GiB", "memory=8GiB,overlap=on", "profile=h200")
SHARES = ((0.5, 1.0), (0.2, 0.3), (0.05, 0.1))


class Played(NamedTuple):
    """How a program ended: its status, what it said, where it hung, and the seconds of its longest step."""

    status: int
    said: str
    hung: str
    stood_s: float


def build(folder: Path) -> Path:
    """The player, linked against libcuda like any program."""
    binary = folder / "legal"
    command = ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]
    subprocess.run(
        [*command, "-o", str(binary), str(LEGAL), str(LIB / "sim" / "libcuda.so.1"), "-lpthread"], check=True
    )
    return binary


def _stands_in(pid: int) -> str:
    if not shutil.which("gdb"):
        return "it hangs"
    command = ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return "it hangs, and so does gdb"


def play(bed: Bed, binary: Path, words: list[object], hooked: bool, patience_s: float = PATIENCE_S) -> Played:
    """Play once."""
    env = bed.environment(TENANT if hooked else None, hooked=hooked)
    if not hooked:
        env["GEMINI_SIM"] = env["GEMINI_SIM"].replace(bed.id, f"{bed.id}-bare")
    env["GEMINI_LOG_FILE"] = str(bed.state_dir / "play.log")
    progress, said = bed.state_dir / "progress", bed.state_dir / "said"
    progress.write_bytes(b"")
    seen, hung = b"", ""
    with said.open("w") as out:
        child = subprocess.Popen([str(binary), *map(str, words), str(progress)], env=env, stdout=out, stderr=out)
        looks = most = 0  # in a row that saw no step: a machine that stands still counts none
        while child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_S)
            now = progress.read_bytes()
            looks = 0 if now != seen else looks + 1
            seen, most = now, max(most, looks)
            if looks * LOOK_S > patience_s:
                hung = _stands_in(child.pid)
                child.kill()
                child.wait()
    return Played(child.returncode, said.read_text(), hung, round(most * LOOK_S, 1))


def both(
    bed: Bed, binary: Path, seed: int, steps: int, threads: int, patience_s: float = PATIENCE_S
) -> tuple[Played, Played]:
    """Play one seed both ways, bare and under the library."""
    words: list[object] = [seed, steps, threads]
    return play(bed, binary, words, False, patience_s), play(bed, binary, words, True, patience_s)


def alike(bare: Played, ours: Played) -> bool:
    """Did both end well, and with the same?"""
    return bare[:3] == ours[:3] and bare.status == 0


def difference(
    bed: Bed, binary: Path, seed: int, steps: int, threads: int, patience_s: float = PATIENCE_S
) -> tuple[Played, Played] | None:
    """Play one seed both ways: how it ended, where that is not alike, or not well."""
    pair = both(bed, binary, seed, steps, threads, patience_s)
    return None if alike(*pair) else pair


@contextlib.contextmanager
def others(beside: str, card: str, share: tuple[float, float]) -> Iterator[Bed]:
    """A machine with these loads on it, and room for the player."""
    loads = BESIDE[beside]
    with Bed(sim=card) as bed:
        bed.tenant(TENANT, *share, memory=MEMORY)
        for number, options in enumerate(loads):
            bed.tenant(f"other{number}", 0.5 / len(loads), 1.0)
            bed.load(f"other{number}", *options, "--seconds", 100000)
        bed.until_busy("other0")
        yield bed
        for path in Path("/dev/shm").glob(f"gemini-sim-*{bed.id}-bare*"):
            path.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.legal", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for how long new games begin (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--steps", type=int, default=1500, help="of each thread (default 1500)")
    parser.add_argument("--threads", type=int, default=3, help="of every other seed (default 3)")
    arguments = parser.parse_args()
    games = itertools.cycle((beside, card, share) for share in SHARES for card in CARDS for beside in BESIDE)
    until_s, seeds, found = time.monotonic() + arguments.seconds, itertools.count(arguments.seed), 0
    with tempfile.TemporaryDirectory(prefix="gemini-legal-") as folder:
        binary = build(Path(folder))
        while time.monotonic() < until_s:
            game = next(games)
            with others(*game) as bed:
                for seed in itertools.islice(seeds, GAMES):
                    bare, ours = both(bed, binary, seed, arguments.steps, 1 if seed % 2 else arguments.threads)
                    found += not alike(bare, ours)
                    stood = f"alike; longest step {bare.stood_s} s bare, {ours.stood_s} s"
                    print(game, seed, stood if alike(bare, ours) else (bare, ours), flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
