"""Three busy tenants with different shares on one GPU: a live table, then what each was promised and what it got, a
plot, and beside it the same tenants without Gemini.

Runs on this machine's GPU, or on a simulated one where there is none (and says which). The simulated GPU's figures come
from the device's own timeline, read by an observer that knows nothing of the daemon. A real card keeps no such record:
there the shares over time are the daemon's account of the time held, and NVML's samples where the card gives them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gemini.cli import nvml
from gemini.cli.node import LOAD, Node, ask, ensure_daemon, need_driver, simulation, start_daemon, tenant_environment
from gemini.cli.options import add_node
from gemini.cli.problem import Problem
from gemini.units import entitled, parse_share, resolve_shares

DEFAULT = "a:0.5:0.6,b:0.3:1.0,c:0.2:0.2"
SAMPLE_SECONDS = 0.01
SHOWN_SECONDS = 0.5  # between two pictures of the live table
SETTLE_SECONDS = 1.0  # from the last tenant's first kernel to the measured part: one window
START_SECONDS = 30.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", metavar="S", type=float, default=20.0, help="length of the measured part (20)")
    parser.add_argument("--tenants", metavar="SPEC", default=DEFAULT, help=f"name:request:limit,... ({DEFAULT})")
    parser.add_argument("--kernel-us", metavar="U", type=float, default=100.0, help="length of a kernel (100)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file, - for stdout")
    parser.add_argument("--plot", metavar="FILE", default="gemini-demo.png", help="the picture (gemini-demo.png)")
    parser.add_argument("--no-baseline", action="store_true", help="leave out the run without Gemini")
    add_node(parser)


@dataclass(frozen=True)
class Tenant:
    name: str
    request: float
    limit: float


def parse_tenants(text: str) -> list[Tenant]:
    tenants = []
    for part in text.split(","):
        name, *numbers = part.strip().split(":")
        if not name or len(numbers) not in (1, 2):
            raise Problem(f"--tenants {part!r} is no name:request:limit; write it such as a:0.5:0.6,b:0.3:1.0", 2)
        parse_share(numbers[0], f"request of {name}")
        tenants.append(Tenant(name, *resolve_shares(numbers[0], numbers[1] if len(numbers) > 1 else None)))
    names = [tenant.name for tenant in tenants]
    if len(set(names)) != len(names):
        raise Problem(f"--tenants {text!r} names one tenant twice; give each a name of its own", 2)
    if (total := sum(tenant.request for tenant in tenants)) > 1 + 1e-9:
        raise Problem(f"--tenants: the requests sum to {total:g}, above the 1 there is; lower one of them", 2)
    return tenants


class Source(Protocol):
    """Cumulative GPU time of the named tenants at a moment: (now_ns, [busy_ns])."""

    def __call__(self) -> tuple[int, list[int]]: ...


@dataclass
class Record:
    at_ns: Any
    busy_ns: Any
    gaps_us: list[float]  # idle time of the card between two tenants' work

    @property
    def seconds(self) -> float:
        return float(self.at_ns[-1] - self.at_ns[0]) / 1e9


class Stage:
    """A node, a machine, and the loads upon it."""

    def __init__(self, node: Node, tenants: Sequence[Tenant], kernel_us: float) -> None:
        self.node, self.tenants, self.kernel_us = node, tenants, kernel_us
        self.loads: dict[str, subprocess.Popen[bytes]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="gemini-demo-"))
        self.timeline: Any = None
        if node.sim is not None:
            from libhook.observer import Timeline

            self.timeline = Timeline(node.sim)

    @contextmanager
    def playing(self, governed: bool) -> Iterator[None]:
        """All loads run inside; with `governed` as tenants, else as plain processes."""
        try:
            for tenant in self.tenants:
                environment = {**os.environ, **self.node.environment()}
                for name in ("LD_PRELOAD", "GEMINI_SOCKET"):
                    environment.pop(name, None)
                if governed:
                    made = ask(self.node, "POST", "/tenants", spec_of(tenant))
                    environment |= tenant_environment(self.node, made["socket"], (tenant.request, tenant.limit))
                report = self.folder / f"{tenant.name}-{governed}.json"
                self.loads[tenant.name] = subprocess.Popen(
                    [LOAD, f"--kernel-us={self.kernel_us:g}", "--seconds=0", f"--json={report}"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is ours to pass on
                )
            yield
        finally:
            self.stop(governed)

    def stop(self, governed: bool) -> None:
        for load in self.loads.values():
            if load.poll() is None:
                load.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        for name, load in self.loads.items():
            try:
                load.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                load.kill()
                load.wait()
            if governed:
                with suppress(Problem):
                    ask(self.node, "DELETE", f"/tenants/{name}")
        self.loads.clear()

    def report(self, name: str, governed: bool) -> dict[str, Any]:
        """What the load itself counted; empty where it could not."""
        try:
            answer: dict[str, Any] = json.loads((self.folder / f"{name}-{governed}.json").read_text())
        except (OSError, ValueError):
            return {}
        return answer

    def by_timeline(self) -> tuple[int, list[int]]:
        now_ns, busy = self.timeline.busy(0)
        return now_ns, [busy.get(load.pid, 0) for load in self.loads.values()]

    def by_daemon(self) -> tuple[int, list[int]]:
        state = ask(self.node, "GET", "/state")
        held = {tenant["name"]: int(tenant.get("held_ns", 0)) for tenant in state["tenants"]}
        return time.monotonic_ns(), [held.get(name, 0) for name in self.loads]

    def ended(self) -> None:
        for name, load in self.loads.items():
            if load.poll() is not None:
                raise Problem(f"the load of tenant {name} ended early with status {load.returncode}; see gemini check")

    def until_all_run(self, source: Source) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not all(source()[1]):
            self.ended()
            if time.monotonic() > deadline:
                idle = [name for name, busy in zip(self.loads, source()[1], strict=True) if not busy]
                raise Problem(f"no kernel of {', '.join(idle)} ran within {START_SECONDS:g} s; see gemini check")
            time.sleep(SAMPLE_SECONDS)

    def watch(self, source: Source, seconds: float, show: Callable[[list[int], list[list[int]]], None]) -> Record:
        """Sample for so long; `show` gets the samples so far twice a second."""
        import numpy as np

        at: list[int] = []
        busy: list[list[int]] = []
        gaps: list[float] = []
        sequence = self.timeline.segments(0, 0)[0] if self.timeline else 0
        last: tuple[int, int] | None = None  # process and end of the last segment seen
        begin_ns = time.monotonic_ns()
        next_shown = begin_ns + int(SHOWN_SECONDS * 1e9)
        while True:
            now_ns, row = source()
            at.append(now_ns)
            busy.append(row)
            if now_ns - begin_ns >= seconds * 1e9:
                return Record(np.array(at, dtype=np.int64), np.array(busy, dtype=np.int64), gaps)
            if time.monotonic_ns() >= next_shown:
                if self.timeline:
                    sequence, segments = self.timeline.segments(0, sequence)
                    for pid, start_ns, end_ns, *_ in segments:
                        if last is not None and last[0] != pid:
                            gaps.append((start_ns - last[1]) / 1e3)
                        last = (pid, end_ns)
                self.ended()
                show(at, busy)
                next_shown += int(SHOWN_SECONDS * 1e9)
            time.sleep(SAMPLE_SECONDS)


def spec_of(tenant: Tenant) -> dict[str, Any]:
    return {"name": tenant.name, "request": tenant.request, "limit": tenant.limit, "memory_bytes": 0}


class Screen:
    """The live table on a terminal; a line every two seconds elsewhere."""

    def __init__(self, title: str, tenants: Sequence[Tenant], owed: Sequence[float] | None) -> None:
        self.title, self.tenants, self.owed = title, tenants, owed
        self.live: Any = None
        self.lines_shown = 0.0

    def __enter__(self) -> Screen:
        if sys.stdout.isatty():
            from rich.live import Live

            self.live = Live(auto_refresh=False, transient=True)
            self.live.start()
        else:
            print(self.title, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, at: list[int], busy: list[list[int]]) -> None:
        now_ns = at[-1]
        since = max((i for i, t in enumerate(at) if t <= now_ns - 10**9), default=0)
        span = max(1, now_ns - at[since])
        recent = [(new - old) / span for new, old in zip(busy[-1], busy[since], strict=True)]
        whole = [(new - old) / max(1, now_ns - at[0]) for new, old in zip(busy[-1], busy[0], strict=True)]
        seconds = (now_ns - at[0]) / 1e9
        if self.live is not None:
            self.live.update(self.table(seconds, recent, whole), refresh=True)
        elif seconds - self.lines_shown >= 2:
            self.lines_shown = seconds
            cells = "  ".join(f"{t.name} {100 * share:5.1f} %" for t, share in zip(self.tenants, recent, strict=True))
            print(f"  {seconds:5.1f} s  {cells}", flush=True)

    def table(self, seconds: float, recent: Sequence[float], whole: Sequence[float]) -> Any:
        from rich.table import Table

        table = Table(title=f"{self.title}, {seconds:.1f} s", title_justify="left", box=None, header_style="bold")
        for column in ("tenant", "request", "limit", "owed", "last second", "so far", ""):
            table.add_column(column, justify="left" if column in ("tenant", "") else "right")
        for index, tenant in enumerate(self.tenants):
            owed = "-" if self.owed is None else f"{100 * self.owed[index]:.1f} %"
            table.add_row(
                tenant.name,
                f"{tenant.request:g}",
                f"{tenant.limit:g}",
                owed,
                f"{100 * recent[index]:.1f} %",
                f"{100 * whole[index]:.1f} %",
                "█" * round(40 * recent[index]),
            )
        return table


def main(args: argparse.Namespace) -> int:
    tenants = parse_tenants(args.tenants)
    if not 1 <= args.seconds <= 86400:
        raise Problem(f"--seconds {args.seconds:g}: give a number of seconds from 1 to 86400", 2)
    if not LOAD.exists():
        raise Problem(f"{LOAD} is not there; run make build, or reinstall the package")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as undo:
        node = set_stage(args, undo)
        stage = Stage(node, tenants, args.kernel_us)
        undo.callback(shutil.rmtree, stage.folder, ignore_errors=True)
        return perform(args, stage)


def set_stage(args: argparse.Namespace, undo: ExitStack) -> Node:
    """The node to play on: the one that was named, else a temporary one with a daemon of its own."""
    sim = simulation(args.sim)
    if sim is None and args.state_dir is None:
        try:
            need_driver(Node(Path("/")))
            if not nvml.devices():
                raise Problem("NVML shows no GPU")
        except Problem as problem:
            sim = "gpus=1"
            print(f"No NVIDIA GPU to use here ({str(problem).split(';')[0]}): a simulated one takes its place.")
    if sim is not None and "id=" not in sim:
        sim += f",id=demo-{os.getpid()}"  # a card of its own: what else runs on a simulated card would share it
        undo.callback(forget_machine, f"demo-{os.getpid()}")
    if args.state_dir is not None:
        node = Node(args.state_dir.absolute(), sim)
        ensure_daemon(node)
        return node
    folder = Path(tempfile.mkdtemp(prefix="gemini-demo-"))
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    node = Node(folder, sim)
    need_driver(node)
    daemon = start_daemon(node)

    def stop() -> None:
        daemon.terminate()
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    undo.callback(stop)
    return node


def forget_machine(machine_id: str) -> None:
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{machine_id}*"):
        path.unlink(missing_ok=True)


def perform(args: argparse.Namespace, stage: Stage) -> int:
    tenants = stage.tenants
    device = ask(stage.node, "GET", "/state").get("device") or {}
    name = device.get("name", "GPU") + (" (simulated)" if stage.node.sim is not None else "")
    owed = entitled([(tenant.request, tenant.limit) for tenant in tenants])
    source = stage.by_timeline if stage.timeline else stage.by_daemon
    with Screen(f"{name}, with Gemini", tenants, owed) as screen, stage.playing(governed=True):
        stage.until_all_run(source)
        time.sleep(SETTLE_SECONDS)
        before = ask(stage.node, "GET", "/state")
        sampler = NvmlSampler(stage)
        record = stage.watch(source, args.seconds, screen.show)
        after = ask(stage.node, "GET", "/state")
    baseline = None
    if not args.no_baseline and stage.timeline:
        with Screen(f"{name}, without Gemini", tenants, None) as screen, stage.playing(governed=False):
            stage.until_all_run(source)
            time.sleep(SETTLE_SECONDS / 2)
            baseline = stage.watch(source, max(2.0, min(6.0, args.seconds / 3)), screen.show)
    figures = account(stage, device, owed, record, before, after, sampler.shares(), baseline)
    if baseline is None and not args.no_baseline:
        figures["baseline"] = bare_run(stage, max(3.0, min(8.0, args.seconds / 2)))
    return present(args, figures, stage, name, owed, record, baseline)


class NvmlSampler:
    """The share of each load by NVML's process samples of a real card: from its making to the call of shares()."""

    def __init__(self, stage: Stage) -> None:
        self.pids = {name: load.pid for name, load in stage.loads.items()}
        self.real = stage.timeline is None
        self.since_us = int(time.time() * 1e6)

    def shares(self) -> dict[str, float] | None:
        found = nvml.process_busy(0, self.since_us) if self.real else None
        return None if not found else {name: found[1].get(pid, 0.0) for name, pid in self.pids.items()}


def bare_run(stage: Stage, seconds: float) -> dict[str, Any]:
    """The tenants without the library on a card without a timeline: what the loads counted themselves."""
    with stage.playing(governed=False):
        time.sleep(seconds)
    shares = {}
    for tenant in stage.tenants:
        counted = stage.report(tenant.name, governed=False)
        shares[tenant.name] = counted["gpu_seconds"] / counted["seconds"] if counted.get("seconds") else None
    return {"seconds": seconds, "shares": shares, "source": "load"}


def account(
    stage: Stage,
    device: dict[str, Any],
    owed: Sequence[float],
    record: Record,
    before: dict[str, Any],
    after: dict[str, Any],
    sampled: dict[str, float] | None,
    baseline: Record | None,
) -> dict[str, Any]:
    """All figures of the run, in the shape that docs/operations.md describes."""
    import numpy as np

    from gemini import shares

    of_timeline = stage.timeline is not None
    whole = shares.achieved(record.at_ns, record.busy_ns)
    windows = 100 * shares.window_errors(record.at_ns, record.busy_ns, np.array(owed))
    error = 100 * shares.errors(whole, np.array(owed))
    held_before = {tenant["name"]: tenant for tenant in before["tenants"]}
    held_after = {tenant["name"]: tenant for tenant in after["tenants"]}
    seconds = record.seconds
    rows = []
    for index, tenant in enumerate(stage.tenants):
        old, new = held_before.get(tenant.name, {}), held_after.get(tenant.name, {})
        held = (new["held_ns"] - old["held_ns"]) / 1e9 / seconds if "held_ns" in new and "held_ns" in old else None
        busy = float(whole[index]) if of_timeline else (sampled or {}).get(tenant.name)
        rows.append(
            {
                "name": tenant.name,
                "request": tenant.request,
                "limit": tenant.limit,
                "entitled": owed[index],
                "achieved": held if held is not None else new.get("achieved"),
                "busy": busy,
                "error_pp": float(error[index]) if of_timeline else None,
                "error_pp_p99_1s": float(np.percentile(windows[:, index], 99))
                if of_timeline and len(windows)
                else None,
                "launches": stage.report(tenant.name, governed=True).get("launches"),
                "overuse_ms_p99": new.get("overuse_ms_p99"),
                "wait_ms_p99": new.get("wait_ms_p99"),
                "memory_bytes": new.get("memory_bytes", 0),
                "memory_limit_bytes": new.get("memory_limit_bytes", 0),
            }
        )
    gaps = record.gaps_us
    return {
        "device": {**device, "simulated": stage.node.sim is not None},
        "seconds": seconds,
        "window_s": 1.0,
        "utilization": float(whole.sum()) if of_timeline else None if sampled is None else sum(sampled.values()),
        "handover_us": {"p50": float(np.percentile(gaps, 50)), "p99": float(np.percentile(gaps, 99))}
        if gaps
        else after.get("handover_us"),
        "tenants": rows,
        "baseline": None
        if baseline is None
        else {
            "seconds": baseline.seconds,
            "shares": dict(
                zip(
                    (tenant.name for tenant in stage.tenants),
                    map(float, shares.achieved(baseline.at_ns, baseline.busy_ns)),
                    strict=True,
                )
            ),
            "source": "timeline",
        },
    }


def present(
    args: argparse.Namespace,
    figures: dict[str, Any],
    stage: Stage,
    name: str,
    owed: Sequence[float],
    record: Record,
    baseline: Record | None,
) -> int:
    """The closing table, the JSON and the plot."""
    out = sys.stderr if args.json == "-" else sys.stdout
    print(summary(name, figures), file=out)
    if args.json == "-":
        print(json.dumps(figures, indent=1))
    elif args.json:
        try:
            Path(args.json).parent.mkdir(parents=True, exist_ok=True)
            Path(args.json).write_text(json.dumps(figures, indent=1) + "\n")
        except OSError as error:
            raise Problem(f"--json {args.json}: {error.strerror}; name a file that can be written") from None
    if args.plot:
        from gemini.cli.plot import Panel, draw

        names = [tenant.name for tenant in stage.tenants]
        runs = [Panel("with Gemini", names, record.at_ns, record.busy_ns)]
        if baseline is not None:
            runs.append(Panel("without: native time slicing", names, baseline.at_ns, baseline.busy_ns))
        try:
            Path(args.plot).parent.mkdir(parents=True, exist_ok=True)
            draw(args.plot, f"Promised (dashed) and achieved (solid) share of one GPU: {name}", owed, runs)
        except (OSError, ValueError) as error:
            raise Problem(f"--plot {args.plot}: {error}; name a .png file that can be written") from None
        print(f"plot: {args.plot}", file=out)
    return 0


def summary(name: str, figures: dict[str, Any]) -> str:
    """The closing table as text."""

    def cell(value: float | None, unit: str = "%", factor: float = 100.0, digits: int = 1) -> str:
        return "-" if value is None else f"{factor * value:.{digits}f} {unit}"

    base = (figures.get("baseline") or {}).get("shares", {})
    head = ("tenant", "request", "limit", "owed", "busy", "held", "error", "p99 of 1 s", "wait p99", "without Gemini")
    lines = [head]
    for tenant in figures["tenants"]:
        lines.append(
            (
                tenant["name"],
                f"{tenant['request']:g}",
                f"{tenant['limit']:g}",
                cell(tenant["entitled"]),
                cell(tenant["busy"]),
                cell(tenant["achieved"]),
                cell(tenant["error_pp"], "pp", 1, 2),
                cell(tenant["error_pp_p99_1s"], "pp", 1, 2),
                cell(tenant["wait_ms_p99"], "ms", 1),
                cell(base.get(tenant["name"])),
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [f"{name}, {figures['seconds']:.1f} s", ""]
    for line in lines:
        text.append(
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
        )
    text.append("")
    if figures["utilization"] is not None:
        text.append(f"GPU busy {100 * figures['utilization']:.1f} %")
    if figures["handover_us"]:
        gap = figures["handover_us"]
        text[-1] += f", idle at a hand-over {gap['p50']:.0f} us (median), {gap['p99']:.0f} us (p99)"
    return "\n".join(text)
