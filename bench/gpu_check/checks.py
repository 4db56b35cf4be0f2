"""Checks of shares, of PyTorch and of what a launch costs: each a function (context) -> None that adds findings."""

from __future__ import annotations

import ctypes
import functools
import json
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu_check.context import Context, torch_there
from bench.gpu_check.stage import GEMINI, MPS, NATIVE, Play, Stage
from gemini import shares, stamps
from gemini.cli.problem import Problem
from gemini.units import entitled
from libhook import compiled as compiling

ROOT = Path(__file__).resolve().parents[2]
ARMS = (GEMINI, NATIVE, MPS)
GIB = 1 << 30
KERNEL_US = 100
COMPILE = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # one small function: starting others takes longer than it


def identify(context: Context) -> None:
    """What machine this is."""
    from gemini.cli import nvml

    context.figures["host"] = {"platform": platform.platform(), "python": sys.version.split()[0]}
    made = [path for package in compiling.GROUPS for path in compiling.outputs(package)]
    context.finding(None, f"the daemon is {'compiled' if all(path.exists() for path in made) else 'not compiled'}")
    if context.sim is not None:
        context.finding(None, f"simulated card: {context.sim}")
        return
    cards = nvml.devices()
    context.figures["cards"] = cards
    context.figures["driver"] = nvml.driver_version()
    context.finding(bool(cards), f"{len(cards)} card(s), driver {context.figures['driver']}", len(cards))
    for card in cards:
        context.finding(
            not (card["exclusive"] or card["prohibited"]), f"{card['name']}: compute mode lets programs share"
        )
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    context.figures["torch"] = done.stdout.strip() or "none"
    context.finding(None, f"PyTorch: {context.figures['torch']}")


def addresses(context: Context) -> None:
    """Does cuGetProcAddress answer with the exported symbols' addresses?"""
    from gemini.cli.node import SIM

    cuda = ctypes.CDLL(str(SIM / "libcuda.so.1") if context.sim is not None else "libcuda.so.1")
    if cuda.cuInit(0) != 0:
        raise Problem("cuInit failed")
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    rows = re.findall(
        r"^(?:HOOK|PASS)\((\w+),\s*\"(\w*)\",\s*(\d+),\s*(\w+)",
        (ROOT / "libhook" / "driver" / "cuda_hooks.h").read_text(),
        re.M,
    )
    ask = cuda.cuGetProcAddress_v2 if hasattr(cuda, "cuGetProcAddress_v2") else cuda.cuGetProcAddress
    same, differ, absent = [], [], []
    for symbol, name, since, flavour in rows:
        try:
            exported = ctypes.cast(getattr(cuda, symbol), ctypes.c_void_p).value
        except AttributeError:
            absent.append(symbol)
            continue
        if int(since) > version.value:  # exported, but this driver answers to no such version
            absent.append(symbol)
            continue
        pointer, status = ctypes.c_void_p(), ctypes.c_int()
        flags = 2 if flavour == "PER_THREAD" else 1
        code = ask(name.encode(), ctypes.byref(pointer), int(since), ctypes.c_uint64(flags), ctypes.byref(status))
        if code == 0 and pointer.value == exported:
            same.append(symbol)
        else:
            differ.append({"symbol": symbol, "code": code, "status": status.value, "found": bool(pointer.value)})
    context.figures |= {"driver_version": version.value, "same": same, "differ": differ, "absent": absent}
    context.finding(
        None,
        f"cuGetProcAddress gives the exported address for {len(same)} of {len(same) + len(differ)} names",
        len(same),
    )
    context.finding(None, f"known to the table, not exported by this driver: {len(absent)}", len(absent))


def launch_cost(context: Context) -> None:
    """Launch cost with and without the library, in batches that alternate in one process."""
    program = ROOT / "libhook" / "lib" / "launch_overhead"
    source = ROOT / "bench" / "launch_overhead.c"
    if shutil.which("gcc"):
        subprocess.run(
            ["gcc", "-std=gnu11", "-O2", "-o", str(program), str(source), "-ldl", "-lpthread"], check=True, timeout=60
        )
    if not program.exists():
        raise Problem("launch_overhead was neither built here nor brought in the bundle")
    answers = []
    with Stage(GEMINI, context.sim) as stage:
        stage.tenant("alone", 0.5)
        for _ in range(3):
            done = subprocess.run(
                [str(program), "150", "1000", "200", "1"], env=stage.environment("alone"), capture_output=True,
                text=True, timeout=60, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise Problem(f"launch_overhead: {done.stderr.strip()}")
            answers.append(json.loads(done.stdout))
    bare = [float(np.median(answer["bare_ns"])) for answer in answers]
    added = [float(np.median(np.array(answer["hooked_ns"]) - np.array(answer["bare_ns"]))) for answer in answers]
    context.figures |= {"bare_ns": bare, "added_ns": added}
    if not all(answer["intercepted"] for answer in answers):
        context.finding(False, "the library is not in the way of launches: LD_PRELOAD did not take")
        return
    middle = float(np.median(added))
    context.finding(
        middle <= 15, f"an intercepted launch costs {middle:.1f} ns more (bare {np.median(bare):.0f} ns)", middle
    )


def timeline(stage: Stage, plays: Sequence[Play], seconds: float) -> tuple[shares.Times, shares.Times, Any]:
    """(at_ns, busy_ns, idle us at changes) of the loads, from the card's own record. Ends the loads."""
    if stage.sim is not None:
        return observed(stage, plays, seconds)
    time.sleep(seconds + 3)  # start-up, and the settling that record_of leaves out
    for play in plays:
        play.process.terminate()
    stage.finish(30)
    segments = stamps.read([play.stamps for play in plays if play.stamps], KERNEL_US * 1000)
    try:
        at_ns, busy_ns = stamps.record(segments, len(plays), 1_000_000_000)
    except ValueError as error:
        raise Problem(f"{error} under {stage.arm}") from None
    return at_ns, busy_ns, stamps.idle_us(segments)


def observed(stage: Stage, plays: Sequence[Play], seconds: float) -> tuple[shares.Times, shares.Times, Any]:
    """The same from the simulated card's observer."""
    from libhook.observer import Timeline

    watch = Timeline(stage.sim or "")
    pids = [play.process.pid for play in plays]
    deadline = time.monotonic() + 20
    while not all(watch.busy(0)[1].get(pid, 0) for pid in pids):
        if time.monotonic() > deadline:
            raise Problem(f"not all loads ran within 20 s under {stage.arm}")
        time.sleep(0.01)
    time.sleep(1)
    at, rows, idle = [], [], []
    sequence, last = watch.segments(0, 0)[0], None
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            now_ns, busy = watch.busy(0)
            at.append(now_ns)
            rows.append([busy.get(pid, 0) for pid in pids])
            time.sleep(0.005)
        sequence, segments = watch.segments(0, sequence)
        for pid, start_ns, end_ns, *_ in segments:
            if last is not None and last[0] != pid:
                idle.append((start_ns - last[1]) / 1e3)
            last = (pid, end_ns)
    for play in plays:
        play.process.terminate()
    stage.finish(30)
    return np.array(at, dtype=np.int64), np.array(rows, dtype=np.int64), np.array(idle)


def load_shares(context: Context, promised: dict[str, tuple[float, float]], seconds: float) -> None:
    """Busy gemini-load tenants: share error against what they are owed, and the same without Gemini."""
    owed = np.array(entitled(list(promised.values())))
    panels = []
    for arm in ARMS:
        try:
            with Stage(arm, context.sim) as stage:
                for name, (request, limit) in promised.items():
                    stage.tenant(name, request, limit)
                plays = [stage.load(name, f"--kernel-us={KERNEL_US}", "--seconds=0") for name in promised]
                at_ns, busy_ns, idle_us = timeline(stage, plays, seconds * context.scale)
        except Problem as problem:
            if arm != MPS:
                raise
            context.skip(f"under MPS: {problem}")
            continue
        got = shares.achieved(at_ns, busy_ns)
        error = 100 * shares.errors(got, owed)
        windows = 100 * shares.window_errors(at_ns, busy_ns, owed)
        p99 = float(np.percentile(windows, 99, axis=0).max()) if len(windows) else None
        text = " ".join(f"{name} {100 * share:.1f} %" for name, share in zip(promised, got, strict=True))
        context.figures[arm] = {
            "shares": [float(share) for share in got],
            "owed": [float(share) for share in owed],
            "error_pp": float(error.max()),
            "error_pp_p99_1s": p99,
            "sum": float(got.sum()),
            "idle_us": None if not len(idle_us) else [float(np.percentile(idle_us, q)) for q in (50, 99)],
            "at_ns": [int(t) for t in at_ns[::10]],
            "busy_ns": [[int(b) for b in row] for row in busy_ns[::10]],
        }
        panels.append((arm, list(promised), at_ns, busy_ns))
        if arm != GEMINI:
            context.finding(None, f"{arm}: {text}", [float(share) for share in got])
            continue
        context.finding(
            error.max() <= 0.5, f"gemini: {text}; error {error.max():.2f} pp (0.5 allowed)", float(error.max())
        )
        if p99 is not None:
            context.finding(p99 <= 1.0, f"99 % of 1 s windows are within {p99:.2f} pp (1.0 allowed)", p99)
        context.finding(got.sum() >= 0.96, f"the card is {100 * got.sum():.1f} % busy (96 at least)", float(got.sum()))
        if len(idle_us):
            p50, p99_idle = (float(np.percentile(idle_us, q)) for q in (50, 99))
            context.finding(
                p50 <= 250, f"idle at a hand-over: {p50:.0f} us (median), {p99_idle:.0f} us (p99)", [p50, p99_idle]
            )
    draw(context, "-".join(promised), [float(share) for share in owed], panels)


def draw(context: Context, name: str, owed: list[float], runs: list[Any]) -> None:
    try:
        from gemini.cli.plot import Panel, draw

        draw(
            str(context.out / f"shares-{name}.png"),
            "Promised (dashed) and achieved (solid) share of one GPU",
            owed,
            [Panel(*run) for run in runs],
        )
    except ImportError:
        context.finding(None, "no matplotlib here: the figures are in the JSON, the plot is not drawn")


def two_loads(context: Context) -> None:
    """Two busy gemini-load tenants at 0.7 and 0.3."""
    load_shares(context, {"x": (0.7, 1.0), "y": (0.3, 1.0)}, 6)


def three_loads(context: Context) -> None:
    """Three busy gemini-load tenants, one with a limit that binds."""
    load_shares(context, {"a": (0.5, 0.6), "b": (0.3, 1.0), "c": (0.2, 0.2)}, 6)


def rate(report: dict[str, Any], begin: float, end: float) -> float:
    """Steps a second between two moments, by the marks of a torch_work report."""
    marks = [mark for mark in report["marks"] if begin <= mark <= end]
    if len(marks) < 3:
        raise Problem(f"only {len(marks)} marks in {end - begin:.1f} s")
    return float(report["steps_per_mark"] * (len(marks) - 1) / (marks[-1] - marks[0]))


def reports(plays: Sequence[Play]) -> list[dict[str, Any]]:
    return [json.loads(play.files["report"].read_text()) for play in plays]


def beside_a_busy_one(
    sim: str | None, name: str, start: Callable[[Stage], Play], seconds: float, otherwise: str = ""
) -> dict[str, Any]:
    """The report of a program of 0.5 that runs to its end beside one that is always busy. Problem: it failed, which
    may mean `otherwise`."""
    with Stage(GEMINI, sim) as stage:
        stage.tenant(name, 0.5)
        stage.tenant("busy", 0.5)
        busy = stage.load("busy", "--seconds=0")
        play = start(stage)
        status = play.process.wait(seconds)
        busy.process.terminate()
        if status != 0:
            raise Problem(f"the program ended with status {status}{otherwise}")
        return reports([play])[0]


def by_itself(work: str, seconds: float) -> dict[str, Any]:
    """The report of a PyTorch program that has the card for itself, without the library."""
    with Stage(NATIVE, None) as stage:
        play = stage.torch("alone", work, "--seconds", seconds)
        stage.finish(60)
        return reports([play])[0]


def together(context: Context, programs: Sequence[tuple[str, float, str]], seconds: float) -> None:
    """PyTorch programs side by side under each arm: rate of each as part of its rate alone."""
    alone: dict[str, float] = {}
    alone_latency: dict[str, Any] = {}
    for work in {work: None for *_, work in programs}:
        report = context.once(work, functools.partial(by_itself, work, 4 * context.scale))
        alone[work] = rate(report, report["marks"][0], report["marks"][-1])
        alone_latency[work] = report.get("latency_ms")
    context.figures["alone"] = {"rate": alone, "latency_ms": alone_latency}
    for arm in ARMS:
        try:
            with Stage(arm, None) as stage:
                for name, request, _work in programs:
                    stage.tenant(name, request)
                plays = [stage.torch(name, work, "--seconds", seconds * context.scale) for name, _, work in programs]
                stage.finish(90)
                found = reports(plays)
        except Problem as problem:
            if arm != MPS:
                raise
            context.skip(f"under MPS: {problem}")
            continue
        begin = max(report["marks"][0] for report in found) + 1.0
        end = min(report["marks"][-1] for report in found)
        parts = [rate(r, begin, end) / alone[work] for r, (_, _, work) in zip(found, programs, strict=True)]
        latency = [report.get("latency_ms") for report in found]
        context.figures[arm] = {"parts": parts, "sum": sum(parts), "latency_ms": latency}
        text = ", ".join(f"{name} ({work}) {100 * p:.1f} %" for (name, _, work), p in zip(programs, parts, strict=True))
        for report in found:
            if report.get("latency_ms"):
                text += f", latency p99 {report['latency_ms']['p99']:.1f} ms"
        text += f"; together {100 * sum(parts):.1f} % of one alone"
        if arm != GEMINI:
            context.finding(None, f"{arm}: {text}", parts)
        elif all(work == "train" for *_, work in programs):
            owed = entitled([(request, 1.0) for _, request, _ in programs])
            error = 100 * max(abs(p - o * sum(parts)) for p, o in zip(parts, owed, strict=True))
            context.finding(error <= 2, f"gemini: {text}; error {error:.2f} pp (2 allowed)", error)
            context.finding(sum(parts) >= 0.95, f"total throughput {100 * sum(parts):.1f} % (95 at least)", sum(parts))
        else:
            context.finding(None, f"gemini: {text}", parts)


def training(context: Context) -> None:
    """Two PyTorch training loops at 0.7 and 0.3."""
    if torch_there(context):
        together(context, [("p", 0.7, "train"), ("q", 0.3, "train")], 7)


def training_inference(context: Context) -> None:
    """PyTorch training at 0.6 beside inference at 0.4."""
    if torch_there(context):
        together(context, [("t", 0.6, "train"), ("i", 0.4, "infer")], 6)


def alone(context: Context) -> None:
    """A tenant alone, with and without the library, in turns: what it costs."""
    kinds: list[tuple[str, Callable[[Stage], Play], Callable[[dict[str, Any]], float], float, int]] = [
        (
            "2 us kernels, launch-bound",
            lambda stage: stage.spawn(
                "alone",
                [ROOT / "libhook/lib/gemini-load", "--kernel-us=2", f"--seconds={1.5 * context.scale}",
                 f"--json={stage.folder / f'{len(stage.plays)}.json'}"],
                report=stage.folder / f"{len(stage.plays)}.json",
            ),
            lambda report: report["launches"] / report["seconds"],
            0.5,
            3,
        )
    ]  # fmt: skip
    if torch_there(context):
        kinds.append(
            (
                "PyTorch training",
                lambda stage: stage.torch("alone", "train", "--seconds", 4 * context.scale),
                lambda report: rate(report, report["marks"][0], report["marks"][-1]),
                0.5,
                1,
            )
        )
    for label, start, figure, allowed, turns in kinds:
        rates: dict[str, list[float]] = {GEMINI: [], NATIVE: []}
        for turn in range(turns):
            for arm in (GEMINI, NATIVE) if turn % 2 == 0 else (NATIVE, GEMINI):
                with Stage(arm, context.sim) as stage:
                    stage.tenant("alone", 0.3)
                    play = start(stage)
                    stage.finish(60)
                    rates[arm].append(figure(reports([play])[0]))
        slower = 100 * (1 - float(np.median(rates[GEMINI])) / float(np.median(rates[NATIVE])))
        context.figures[label] = {"rates": rates, "slower_percent": slower}
        context.finding(slower <= allowed, f"alone, {label}: {slower:.2f} % slower ({allowed:g} allowed)", slower)


def memory(context: Context) -> None:
    """A memory limit of 4 GiB as PyTorch, the driver, NVML and nvidia-smi show it."""
    if not torch_there(context):
        return
    limit = 4 * GIB
    with Stage(GEMINI, None) as stage:
        stage.tenant("m", 0.5, 1.0, limit)
        play = stage.torch("m", "memory")
        stage.finish(90)
        report = reports([play])[0]
    context.figures |= report
    context.finding(report["raised"] == "OutOfMemoryError", f"at the limit PyTorch raises {report['raised']}")
    held = report["reserved"]
    context.finding(held <= limit, f"PyTorch got {held / GIB:.2f} GiB of 4 GiB", held)
    context.finding(held >= limit - 1.5 * GIB, "and not much less: the context has the rest", held)
    context.finding(report["again"] > 0, "what was freed can be allocated again")
    context.finding(
        report["total"] == limit, f"cuMemGetInfo says {report['total'] / GIB:.2f} GiB in all", report["total"]
    )
    if report["nvml_total"] is None:
        context.skip(f"NVML inside: {report.get('nvml_error')}")
    else:
        context.finding(report["nvml_total"] == limit, f"NVML inside says {report['nvml_total'] / GIB:.2f} GiB in all")
    if report["nvidia_smi_mib"] is None:
        context.skip(f"nvidia-smi inside: {report.get('nvidia_smi_error')}")
    else:
        context.finding(
            report["nvidia_smi_mib"] == 4096, f"nvidia-smi inside says {report['nvidia_smi_mib']} MiB in all"
        )


def graph(context: Context) -> None:
    """A CUDA graph under the gate, beside a busy tenant."""
    with Stage(GEMINI, context.sim) as stage:
        stage.tenant("g", 0.5)
        stage.tenant("busy", 0.5)
        beside = stage.load("busy", "--seconds=0")
        play = stage.load("g", "--graph=20", f"--seconds={3 * context.scale}")
        play.process.wait(60)
        answers = [json.loads(play.files["report"].read_text())]
        context.finding(not answers[0]["errors"], f"gemini-load: {answers[0]['launches']} kernels in graphs of 20")
        if context.sim is None and torch_there(context):
            play = stage.torch("g", "graph", "--seconds", 3)
            play.process.wait(90)
            report = reports([play])[0]
            context.finding(
                report["same"], f"PyTorch: {report['replays']} replays of a captured graph, the same result"
            )
        beside.process.terminate()
        stage.finish(30)


def compiled(context: Context) -> None:
    """torch.compile (Triton) under the gate, beside a busy tenant."""
    if not torch_there(context):
        return
    otherwise = ": torch.compile did not work under the gate (is there a C compiler?)"
    report = beside_a_busy_one(None, "c", lambda stage: stage.torch("c", "compile", **COMPILE), 100, otherwise)
    context.finding(report["same"], f"torch.compile in {report['compile_seconds']:.0f} s, the same result")
