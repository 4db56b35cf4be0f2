"""Checks of what a real driver may do otherwise than the simulated one: each a function (context) -> None."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from bench.gpu_check.checks import GIB, beside_a_busy_one, reports
from bench.gpu_check.context import Context, torch_there
from bench.gpu_check.stage import GEMINI, NATIVE, Stage
from gemini.cli import assumptions
from gemini.cli.node import SIM

PERSISTENT_MS, REST_MS = 5, 2
STARTS = 200


def probed(context: Context) -> None:
    """What the driver does where Gemini relies on it (probe.json; GEMINI_SIM=profile=probe.json is this card)."""
    with Stage(NATIVE, context.sim) as stage:
        environment = stage.environment("") | ({} if context.sim is None else {"LD_LIBRARY_PATH": str(SIM)})
        found = assumptions.probe(context.out / "probe.json", environment=environment)
    context.figures |= found
    for name, how in found["probes"].items():
        if how != "ok":
            context.finding(False, f"probe {name}: {how}")
    for one, holds in assumptions.judged(found["answers"]):
        if holds is None:
            context.skip(f"cannot be told: {one.name}")
        else:
            context.finding(None, f"{'holds' if holds else 'does not hold'}: {one.name}", holds)


def launches(stage: Stage, name: str) -> int:
    """How many launches of a tenant the library counted."""
    return next(int(one["launches"]) for one in stage.state()["tenants"] if one["name"] == name)


def settled(stage: Stage, name: str, least: int) -> int:
    """The same, once what was in flight has been told."""
    deadline = time.monotonic() + 5
    while launches(stage, name) < least and time.monotonic() < deadline:
        time.sleep(0.05)
    return launches(stage, name)


def coverage(context: Context) -> None:
    """Every kernel that the card saw had passed the gate: no way leads around the library."""
    with Stage(GEMINI, context.sim) as stage:
        stage.tenant("c", 0.5)
        play = stage.driver("c", "counted")
        stage.finish(60)
        ran = reports([play])[0]["launches"]
        counted = settled(stage, "c", ran)
        context.finding(counted >= ran, f"driver API: {ran} kernels, {counted} launches counted", [ran, counted])
    if not torch_there(context):
        return
    works = ("coverage-train", "coverage-graph")
    with Stage(GEMINI, None) as stage:  # at once: what they launch is counted, not how fast
        for work in works:
            stage.tenant(work, 0.5)
        plays = [stage.torch(work, work) for work in works]
        stage.finish(80)
        found = reports(plays)
        counts = [settled(stage, work, report["on_card"]) for work, report in zip(works, found, strict=True)]
    for work, report, counted in zip(works, found, counts, strict=True):
        context.figures[work] = {**report, "counted": counted}
        context.finding(
            counted >= report["launched"],
            f"PyTorch {work}: the profiler saw {report['launched']} launches of kernels, memsets and copies, "
            f"{counted} were counted", [report["launched"], counted],
        )  # fmt: skip


def persistent(context: Context) -> None:
    """A persistent kernel of changing length beside a latency tenant: how long that one waits."""
    with Stage(GEMINI, context.sim) as stage:
        stage.tenant("lengths", 0.5)
        stage.tenant("quick", 0.3, latency=True)
        stage.driver("lengths", "persistent", "--seconds", 8 * context.scale)
        quick = stage.load("quick", "--kernel-us=200", "--burst=1", "--gap-us=10000", f"--seconds={6 * context.scale}")
        stage.finish(60)
        report = reports([quick])[0]
        quota_ms = float(stage.state().get("quota_ms") or 10)
    p99 = report["burst_ms"]["p99"]
    most = quota_ms + PERSISTENT_MS + REST_MS
    context.figures |= {"burst_ms": report["burst_ms"], "quota_ms": quota_ms}
    context.finding(p99 <= most, f"a request of 0.2 ms takes {p99:.1f} ms (p99; {most:g} allowed)", p99)


def beside(context: Context, work: str, request: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """A program of driver_work alone without the library, and beside a busy tenant under it."""
    seconds = 4 * context.scale
    with Stage(NATIVE, context.sim) as stage:
        play = stage.driver("one", work, "--seconds", seconds)
        stage.finish(60)
        alone = reports([play])[0]
    with Stage(GEMINI, context.sim) as stage:
        stage.tenant("one", request)
        stage.tenant("busy", round(1 - request, 6))
        busy = stage.load("busy", "--seconds=0")
        play = stage.driver("one", work, "--seconds", seconds)
        play.process.wait(60)
        report = reports([play])[0]
        busy.process.terminate()
        stage.finish(30)
    context.figures |= {"alone": alone, "beside": report}
    return alone, report


def stalled(context: Context) -> None:
    """Training whose host takes 5 ms after each 10 ms of kernels, promised 0.8 beside a busy tenant."""
    _, report = beside(context, "stalled", 0.8)
    part = report["gpu_seconds"] / report["seconds"]
    context.finding(part >= 0.75, f"promised 0.8, had {part:.3f} of the card (0.75 at least)", part)


def streams(context: Context) -> None:
    """Eight streams of short kernels that overlap, promised 0.5 beside a busy tenant."""
    alone, report = beside(context, "streams", 0.5)
    part = report["kernels_per_second"] / alone["kernels_per_second"]
    context.finding(part >= 0.45, f"promised 0.5, had {part:.3f} of its rate alone (0.45 at least)", part)


def starts(context: Context) -> None:
    """200 programs that start, work and end with work outstanding: none fails, and none is left in the books."""
    count = max(8, round(STARTS * min(1.0, context.scale)))
    with Stage(GEMINI, context.sim) as stage:
        stage.tenant("s", 0.5)
        begin = time.monotonic()
        bad: list[int] = []
        at_once = min(16, max(8, os.cpu_count() or 1))
        for first in range(0, count, at_once):
            plays = [stage.driver("s", "once") for _ in range(min(at_once, count - first))]
            bad += [status for play in plays if (status := play.process.wait(60)) != 0]
        seconds = time.monotonic() - begin
        deadline = time.monotonic() + 5
        while stage.state()["tenants"][0]["clients"] and time.monotonic() < deadline:
            time.sleep(0.05)
        left = stage.state()["tenants"][0]
    context.finding(not bad, f"{count} starts in {seconds:.0f} s, {len(bad)} ended badly {bad[:4]}", seconds / count)
    context.finding(
        not left["clients"] and not left["memory_bytes"],
        f"afterwards {len(left['clients'])} clients and {left['memory_bytes']} bytes are in the books",
    )


def captures(context: Context) -> None:
    """Graph captures of a program that asked NVML before it started CUDA."""
    report = beside_a_busy_one(context.sim, "g", lambda stage: stage.driver("g", "captures"), 50)
    context.figures |= report
    context.finding(report["failed"] == 0, f"{report['failed']} of {len(report['ended'])} captures failed")


def contexts(context: Context) -> None:
    """What the library counts for a context, against what the card says of the process."""
    with Stage(GEMINI, context.sim) as stage:
        stage.tenant("c", 0.5, 1.0, 4 * GIB)
        play = stage.driver("c", "contexts")
        stage.finish(50)
        report = reports([play])[0]
    known: dict[str, Any] = {}
    probe = context.out / "probe.json"
    if probe.exists():
        known = json.loads(probe.read_text())["answers"]
    context.figures |= report
    grown = known.get("context_bytes", 0) + known.get("context_grown_bytes", 0)
    counted = report["counted"][-1]
    context.finding(
        counted >= grown - (8 << 20) if grown else None,
        f"counted {counted / 2**20:.0f} MiB, the card says {grown / 2**20:.0f} MiB", [counted, grown],
    )  # fmt: skip


def segments(context: Context) -> None:
    """PyTorch's expandable segments at a memory limit of 4 GiB: it frees its cache and goes on."""
    if not torch_there(context):
        return
    with Stage(GEMINI, None) as stage:
        stage.tenant("m", 0.5, 1.0, 4 * GIB)
        play = stage.torch("m", "segments", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        stage.finish(80)
        report = reports([play])[0]
    context.figures |= report
    context.finding(report["raised"] == "OutOfMemoryError", f"at the limit it raises {report['raised']}")
    context.finding(report["after"], "what was freed can be had again in other sizes")


def workers(context: Context) -> None:
    """A DataLoader with four workers and pinned memory under the gate, beside a busy tenant."""
    if not torch_there(context):
        return
    report = beside_a_busy_one(None, "w", lambda stage: stage.torch("w", "workers"), 100)
    context.figures |= report
    context.finding(report["batches"] > 0 and report["same"], f"{report['batches']} batches, their bytes are right")
