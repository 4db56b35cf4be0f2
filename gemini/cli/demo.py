"""Three busy tenants with different shares on one GPU: a live table, then what each was promised and what it got, a
plot, and beside it the same tenants without Gemini.

Runs on this machine's GPU, or on a simulated one where there is none (and says which). Shares are read from the
device's own record, never from the daemon.
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
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemini.cli.control import ask
from gemini.cli.node import LOAD, Node, simulation
from gemini.cli.options import add_node
from gemini.cli.problem import Problem
from gemini.cli.starting import ensure_daemon, need_driver, start_daemon
from gemini.cli.status import name_of
from gemini.units import entitled, parse_share, resolve_shares

if TYPE_CHECKING:  # they bring numpy: only once the options are right
    from gemini.cli.stage import Record, Stage, Tenant

DEFAULT = "a:0.5:0.6,b:0.3:1.0,c:0.2:0.2"
DEFAULT_PLOT = "gemini-demo.png"
BASELINE_SECONDS = 6.0
LEFT_SECONDS = 60  # that a daemon stays whose demo was killed
PICTURES = (".png", ".svg", ".pdf", ".jpg")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", metavar="S", type=float, default=20.0, help="length of the measured part (20)")
    parser.add_argument("--tenants", metavar="SPEC", default=DEFAULT, help=f"name:request:limit,... ({DEFAULT})")
    parser.add_argument("--kernel-us", metavar="U", type=float, default=100.0, help="length of a kernel (100)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file, - for stdout")
    parser.add_argument(
        "--plot", metavar="FILE", help=f"the picture ({DEFAULT_PLOT}, where matplotlib is installed); empty: none"
    )
    parser.add_argument("--no-baseline", action="store_true", help="leave out the run without Gemini")
    add_node(parser)


def parse_tenants(text: str) -> list[Tenant]:
    from gemini.cli.stage import Tenant

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


def main(args: argparse.Namespace) -> int:
    tenants = parse_tenants(args.tenants)
    if not 1 <= args.seconds <= 86400:
        raise Problem(f"--seconds {args.seconds:g}: give a number of seconds from 1 to 86400", 2)
    if not 0 <= args.kernel_us <= 1e9:
        raise Problem(f"--kernel-us {args.kernel_us:g}: give microseconds from 0 to 1000000000", 2)
    check_plot(args)
    check_files(args)
    if not LOAD.exists():
        raise Problem(f"{LOAD} is not there; run make build, or reinstall the package")
    from gemini.cli.stage import Stage

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as undo:
        node = set_up(args, undo)
        return perform(args, undo.enter_context(Stage(node, tenants, args.kernel_us)))


def check_plot(args: argparse.Namespace) -> None:
    """A picture wants matplotlib: one that was asked for is refused without it, the default one left out."""
    if args.plot == "" or find_spec("matplotlib") is not None:
        args.plot = DEFAULT_PLOT if args.plot is None else args.plot
        return
    from gemini.cli.installed import with_extra

    lacking = f"matplotlib is not installed; {with_extra('plots')}"
    if args.plot is not None:
        raise Problem(f"--plot {args.plot}: {lacking}")
    args.plot = ""
    print(f"No picture of the run: {lacking}", file=out_of(args))


def check_files(args: argparse.Namespace) -> None:
    """What is to be written at the end can be, as far as that is known before the run."""
    for option, target in (("--json", None if args.json == "-" else args.json), ("--plot", args.plot)):
        if not target:
            continue
        path = Path(target)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            can = not path.is_dir() and os.access(path if path.exists() else path.parent, os.W_OK)
        except OSError as error:
            raise Problem(f"{option} {target}: {error.strerror}; name a file that can be written") from None
        if not can:
            raise Problem(f"{option} {target} cannot be written; name a file that can")
    if args.plot and Path(args.plot).suffix.lower() not in PICTURES:
        raise Problem(f"--plot {args.plot} is no picture's name; let it end in one of {' '.join(PICTURES)}", 2)


def set_up(args: argparse.Namespace, undo: ExitStack) -> Node:
    """The node to play on: the one that was named, else a temporary one with a daemon of its own."""
    sim = simulation(args.sim)
    if sim is None and args.state_dir is None and (missing := no_card()) is not None:
        sim = "gpus=1"
        print(f"No NVIDIA GPU to use here ({missing}): a simulated one takes its place.", file=out_of(args))
    if args.state_dir is not None:
        node = Node(args.state_dir.absolute(), sim)
        ensure_daemon(node)
        return node
    if sim is not None and "id=" not in sim:
        # A card of its own: what else runs on a simulated card would share it. Containers count their processes anew.
        machine = f"demo-{uuid.uuid4().hex[:8]}"
        sim += f",id={machine}"
        undo.callback(forget_machine, machine)
    folder = Path(tempfile.mkdtemp(prefix="gemini-demo-"))
    undo.callback(shutil.rmtree, folder, ignore_errors=True)
    node = Node(folder, sim)
    need_driver(node)
    undo.callback(end, start_daemon(node, f"--idle-exit={LEFT_SECONDS}"))
    return node


def no_card() -> str | None:
    """Why there is no real GPU to use; None: there is one."""
    from gemini.cli import nvml

    try:
        need_driver(Node(Path("/")))
    except Problem as problem:
        return str(problem).split(";")[0]
    return None if nvml.devices() else "NVML shows none"


def end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(5)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def forget_machine(machine: str) -> None:
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{machine}*"):
        path.unlink(missing_ok=True)


def out_of(args: argparse.Namespace) -> Any:
    """Where text goes: stdout, unless the JSON goes there."""
    return sys.stderr if args.json == "-" else sys.stdout


def perform(args: argparse.Namespace, stage: Stage) -> int:
    from gemini.cli.figures import account, summary

    title = name_of(ask(stage.node, "GET", "/state").get("device") or {})
    owed = entitled([(tenant.request, tenant.limit) for tenant in stage.tenants])
    ends: list[Any] = []  # the daemon's answer at the measured part's begin, and the latest

    with Screen(f"{title}, with Gemini", stage.tenants, owed, out_of(args)) as screen:

        def show(at: list[int], busy: list[list[int]]) -> None:
            if not ends or at[-1] - at[0] >= args.seconds * 1e9:  # a question costs the daemon time: only two
                ends.append(ask(stage.node, "GET", "/state"))
            screen.show(at, busy)

        record = stage.play(True, args.seconds, show)
    baseline = None
    if not args.no_baseline:
        with Screen(f"{title}, without Gemini", stage.tenants, None, out_of(args)) as screen:
            baseline = stage.play(False, min(BASELINE_SECONDS, max(2.0, args.seconds / 3)), screen.show)
    launches = {tenant.name: stage.report(tenant.name).get("launches") for tenant in stage.tenants}
    figures = account(stage.tenants, record, ends[0], ends[-1], launches, baseline)
    figures["device"]["simulated"] = stage.node.sim is not None
    print(summary(title, figures), file=out_of(args))
    write_json(args.json, figures)
    draw_plot(args, title, owed, stage.tenants, record, baseline)
    return 0


def write_json(target: str | None, figures: dict[str, Any]) -> None:
    if target == "-":
        print(json.dumps(figures, indent=1))
    elif target:
        try:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).write_text(json.dumps(figures, indent=1) + "\n")
        except OSError as error:
            raise Problem(f"--json {target}: {error.strerror}; name a file that can be written") from None


def draw_plot(
    args: argparse.Namespace,
    title: str,
    owed: Sequence[float],
    tenants: Sequence[Tenant],
    record: Record,
    baseline: Record | None,
) -> None:
    if not args.plot:
        return
    from gemini.cli.plot import Panel, draw

    names = [tenant.name for tenant in tenants]
    runs = [Panel("with Gemini", names, record.at_ns, record.busy_ns)]
    if baseline is not None:
        runs.append(Panel("without: native time slicing", names, baseline.at_ns, baseline.busy_ns))
    try:
        Path(args.plot).parent.mkdir(parents=True, exist_ok=True)
        draw(args.plot, f"Promised (dashed) and achieved (solid) share of one GPU: {title}", owed, runs)
    except (OSError, ValueError) as error:
        raise Problem(f"--plot {args.plot}: {error}; name a .png file that can be written") from None
    print(f"plot: {args.plot}", file=out_of(args))


class Screen:
    """The live table on a terminal; a line every two seconds elsewhere."""

    def __init__(self, title: str, tenants: Sequence[Tenant], owed: Sequence[float] | None, out: Any) -> None:
        self.title, self.tenants, self.owed, self.out = title, tenants, owed, out
        self.live: Any = None
        self.next_line = 2.0

    def __enter__(self) -> Screen:
        if self.out.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(file=self.out), auto_refresh=False, transient=True)
            self.live.start()
        else:
            print(self.title, file=self.out, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, at: list[int], busy: list[list[int]]) -> None:
        now_ns = at[-1]
        since = max((i for i, moment in enumerate(at) if moment <= now_ns - 10**9), default=0)
        recent = [(new - old) / max(1, now_ns - at[since]) for new, old in zip(busy[-1], busy[since], strict=True)]
        whole = [(new - old) / max(1, now_ns - at[0]) for new, old in zip(busy[-1], busy[0], strict=True)]
        seconds = (now_ns - at[0]) / 1e9
        if self.live is not None:
            self.live.update(self.table(seconds, recent, whole), refresh=True)
        elif seconds >= self.next_line:
            self.next_line += 2
            cells = "  ".join(f"{t.name} {100 * share:5.1f} %" for t, share in zip(self.tenants, recent, strict=True))
            print(f"  {seconds:5.1f} s  {cells}", file=self.out, flush=True)

    def table(self, seconds: float, recent: Sequence[float], whole: Sequence[float]) -> Any:
        from rich.table import Table

        table = Table(title=f"{self.title}, {seconds:.1f} s", title_justify="left", box=None, header_style="bold")
        for column in ("tenant", "request", "limit", "owed", "last second", "so far", ""):
            table.add_column(column, justify="left" if column in ("tenant", "") else "right")
        for index, tenant in enumerate(self.tenants):
            table.add_row(
                tenant.name,
                f"{tenant.request:g}",
                f"{tenant.limit:g}",
                "-" if self.owed is None else f"{100 * self.owed[index]:.1f} %",
                f"{100 * recent[index]:.1f} %",
                f"{100 * whole[index]:.1f} %",
                "█" * round(40 * recent[index]),
            )
        return table
