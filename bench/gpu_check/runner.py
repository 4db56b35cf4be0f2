"""Run the checks one by one, each in a process of its own with a time limit, and say PASS or FAIL with the figure.

    python3 -m bench.gpu_check [--sim[=SPEC]] [--out DIR] [--only NAME]... [--minutes 8] [--scale 1.0]

A check that hangs or dies takes nothing with it. Results: DIR/results.json, DIR/<check>.json and plots.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.gpu_check.context import DOING
from bench.report import commit, machine

END_SECONDS = 30.0  # how long to wait for what was killed


def one(name: str, sim: str | None, out: Path, scale: float) -> int:
    """A single check, in this process; its findings go to DIR/doing/<name>.json."""
    from bench.gpu_check.context import Context
    from bench.gpu_check.order import CHECKS

    context = Context(sim, out, scale)
    begin = time.monotonic()
    try:
        CHECKS[name][0](context)
    except Exception as error:  # whatever happens on a strange machine is a finding
        kind = "" if type(error).__name__ == "Problem" else f"{type(error).__name__}: "
        context.finding(False, f"{kind}{error}".replace("\n", " ")[:300])
        if kind:
            import traceback

            context.figures["traceback"] = traceback.format_exc()
    seconds = round(time.monotonic() - begin, 2)
    answer = {"check": name, "findings": context.findings, "figures": context.figures, "seconds": seconds}
    (out / DOING / f"{name}.json").write_text(json.dumps(answer, indent=1, default=float))
    return 0


def mark_of(out: Path) -> str:
    """What the processes of checks carry in their environment: the same for each run that leaves its results there."""
    return hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:16]


def end_all(mark: str) -> None:
    """End a check and every process that it started, in whatever session: they carry its mark in the environment.

    Again until none is left, for a while: one may start another just before it is ended, and ending takes its time.
    """
    variable, me = f"GEMINI_CHECK={mark}".encode(), str(os.getpid())
    deadline = time.monotonic() + END_SECONDS
    left = True
    while left and time.monotonic() < deadline:
        left = False
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if entry.name != me and variable in (entry / "environ").read_bytes().split(
                    b"\0"
                ):  # that of a zombie is empty
                    os.kill(int(entry.name), signal.SIGKILL)
                    left = True
            except OSError:  # it has ended, or is not ours
                continue
        time.sleep(0.02)


def run(name: str, limit_s: float, args: argparse.Namespace) -> dict[str, Any]:
    """A check in a process of its own; what it found, or that it did not end."""
    (args.out / DOING).mkdir(exist_ok=True)
    target: Path = args.out / DOING / f"{name}.json"
    target.unlink(missing_ok=True)
    words = [sys.executable, "-m", "bench.gpu_check.runner", "--one", name, "--out", args.out, "--scale", args.scale]
    if args.sim is not None:
        words.append(f"--sim={args.sim}")
    mark = mark_of(args.out)
    with (args.out / "log.txt").open("ab") as log:
        log.write(f"== {name}\n".encode())
        log.flush()
        process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "GEMINI_CHECK": mark},
        )
        try:
            process.wait(limit_s)
            trouble = None if process.returncode == 0 else f"the check ended with status {process.returncode}"
        except subprocess.TimeoutExpired:
            trouble = f"the check did not end within {limit_s:.0f} s"
            end_all(mark)
            process.wait()
        except BaseException:  # we are told to end: so is all that the check has started
            end_all(mark)
            process.wait()
            raise
    try:
        answer: dict[str, Any] = json.loads(target.read_text())
    except (OSError, ValueError):
        answer = {"check": name, "findings": [], "figures": {}}
        trouble = trouble or "the check left no result"
    if trouble:
        answer["findings"].append({"verdict": "FAIL", "text": f"{trouble}; see {args.out}/log.txt", "figure": None})
    return answer


def save(out: Path, results: dict[str, Any]) -> None:
    """Whole or not at all, whenever we are killed."""
    beside = out / DOING / "results.json"
    beside.parent.mkdir(exist_ok=True)
    with beside.open("w") as file:
        json.dump(results, file, indent=1, default=float)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(out / "results.json")


def begun(args: argparse.Namespace, head: dict[str, Any]) -> dict[str, Any]:
    """The results so far: those of a run that did not come to its end, where it was of the same kind; else none."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        found: dict[str, Any] = json.loads((args.out / "results.json").read_text())
        same = all(found[key] == head[key] for key in ("commit", "sim", "scale"))
        if same and not found["whole"] and not args.fresh:
            return found
    (args.out / "log.txt").unlink(missing_ok=True)
    shutil.rmtree(args.out / DOING, ignore_errors=True)
    return {**head, "whole": False, "checks": []}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sim", nargs="?", const="gpus=1", help="run what can be run on a simulated card")
    parser.add_argument("--out", type=Path, default=Path("out/gpu-check"))
    parser.add_argument("--only", action="append", default=[], help="only this check; may be repeated")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all of it")
    parser.add_argument("--scale", type=float, default=1.0, help="of all durations")
    parser.add_argument("--fresh", action="store_true", help="leave nothing of a run that was broken off")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.one:
        return one(args.one, args.sim, args.out, args.scale)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))

    from bench.gpu_check.order import CHECKS

    unknown = [name for name in args.only if name not in CHECKS]
    if unknown:
        print(f"gpu-check: --only {unknown[0]}: no such check; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    with (args.out / ".lock").open("w") as lock:  # held as long as we live
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"gpu-check: another run leaves its results in {args.out}; name another by --out", file=sys.stderr)
            return 2
        end_all(mark_of(args.out))  # of a run that was killed
        return all_of(CHECKS, args)


def all_of(checks: Mapping[str, tuple[Callable[..., None], float]], args: argparse.Namespace) -> int:
    """The checks that are asked for, those left out that are done already; the status to end with."""
    begin = time.monotonic()
    command = " ".join(["python -m bench.gpu_check", *sys.argv[1:]])
    head = {"command": command, "commit": commit(), "machine": machine(), "sim": args.sim}
    results = begun(args, {**head, "scale": args.scale})
    done = {answer["check"] for answer in results["checks"]}
    if done:
        print(f"== going on behind {len(done)} checks of a run that was broken off (--fresh does all anew)")
    for name, (check, limit_s) in checks.items():
        if name in done or (args.only and name not in args.only):
            continue
        left = args.minutes * 60 - 5 - (time.monotonic() - begin)
        print(f"== {name}: {(check.__doc__ or '').splitlines()[0]}", flush=True)
        if left < 15:
            skipped = {"verdict": "SKIP", "text": "no time is left", "figure": None}
            answer: dict[str, Any] = {"check": name, "findings": [skipped], "figures": {}}
        else:
            answer = run(name, min(limit_s, left), args)
        results["checks"].append(answer)
        save(args.out, results)
        for finding in answer["findings"]:
            print(f"{finding['verdict']}  {finding['text']}", flush=True)
    results["whole"] = True
    save(args.out, results)
    shutil.rmtree(args.out / DOING, ignore_errors=True)
    words = [finding["verdict"] for answer in results["checks"] for finding in answer["findings"]]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("PASS", "FAIL", "SKIP", "INFO"))
    print(f"== {counts} in {time.monotonic() - begin:.0f} s; results in {args.out}")
    return int("FAIL" in words)


if __name__ == "__main__":
    sys.exit(main())
