"""A recorded run (trace.jsonl in the state directory): for Perfetto, as a picture, or through the token machine anew.

    gemini trace export FILE --out FILE.json
    gemini trace plot FILE --out FILE.png [--from S] [--seconds S]
    gemini trace replay FILE [--set quota_ms=8]

A plot shows who held the card when, half a second of it: the last, or that which begins S seconds after the daemon.

A replay exits 0 when every action is the same, and 1 when one differs, which it names; so does one with a constant of
the policy changed. Each part of a long trace (trace.jsonl.1 is the one before) replays by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemini.cli.problem import Problem


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "gemini trace export FILE --out FILE.json | gemini trace plot FILE --out FILE.png [--from S] [--seconds S] | "
        "gemini trace replay FILE [--set NAME=VALUE]..."
    )
    parser.add_argument("action", choices=("export", "plot", "replay"))
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="(export, plot) where the Chrome trace or the picture goes"
    )
    parser.add_argument(
        "--from",
        metavar="S",
        type=float,
        dest="begin",
        help="(plot) seconds after the daemon's start (default: the end)",
    )
    parser.add_argument("--seconds", metavar="S", type=float, default=0.5, help="(plot) how much of it (0.5)")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="(replay) a policy constant")


def main(args: argparse.Namespace) -> int:
    actions = {"export": export, "plot": plot, "replay": replay}
    return actions[args.action](args)


def trace_events(path: Path) -> Iterator[dict[str, Any]]:
    """The recorded run as Chrome trace events."""
    from gemini.chrome import Exporter
    from scheduler_backend import trace
    from scheduler_backend.core import events

    head, entries = trace.read(path)
    fields = {
        name: kind._fields
        for name, kind in vars(events).items()
        if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    }
    exporter = Exporter(head.get("gpus", []), head["started_ns"], fields)
    if "state" in head:
        node = trace.node_of(path, head)
        holders = [(machine.holder, machine) for machine in node.machines]
        exporter.begins_with(
            {client: tenant for client, (tenant, _) in node.clients.items()},
            {(seat.name, machine.gpu): machine.grant.granted_ns for seat, machine in holders if seat is not None},
        )
    return exporter.events(entries)


def export(args: argparse.Namespace) -> int:
    if args.out is None:
        raise Problem("no file to export to; give --out FILE.json", 2)
    count = 0
    found = trace_events(args.file)
    try:
        with args.out.open("w") as out:
            out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            for event in found:
                out.write((",\n" if count else "") + json.dumps(event, separators=(",", ":")))
                count += 1
            out.write("\n]}\n")
    except OSError as error:
        raise Problem(f"--out {args.out}: {error.strerror}; name a file that can be written") from None
    print(f"{args.out}: {count} trace events; open it at ui.perfetto.dev or chrome://tracing")
    return 0


def plot(args: argparse.Namespace) -> int:
    if args.out is None:
        raise Problem("no file to plot to; give --out FILE.png", 2)
    if not 0.001 <= args.seconds <= 3600:
        raise Problem(f"--seconds {args.seconds:g}: give a number of seconds from 0.001 to 3600", 2)
    from gemini.cli import timeline

    rows = timeline.rows_of(trace_events(args.file))
    last = timeline.last_moment(rows)
    begin = max(0.0, last - args.seconds) if args.begin is None else args.begin
    if not rows or last <= 0:
        raise Problem(f"{args.file} tells of no grants; record a run in which somebody used the card")
    if not 0 <= begin < last:
        raise Problem(f"--from {begin:g}: {args.file} tells of {last:.3f} s of grants; begin within them", 2)
    end = begin + args.seconds
    try:
        timeline.draw(str(args.out), "Who held the card", rows, begin, end)
    except OSError as error:
        raise Problem(f"--out {args.out}: {error.strerror}; name a file that can be written") from None
    except ValueError as error:
        raise Problem(f"--out {args.out}: {error}; name it .png or .svg", 2) from None
    print(f"{args.out}: {min(end, last) - begin:.3f} s of {len(rows)} tenant{'s' * (len(rows) != 1)}")
    return 0


def replay(args: argparse.Namespace) -> int:
    from scheduler_backend import trace

    count, difference = trace.replay(args.file, dict(constant(text) for text in args.set))
    if difference is None:
        print(f"{args.file}: {count} events, every action the same")
        return 0
    print(f"{args.file}: {count} events the same, then at line {difference.line}, {difference.now_ns} ns:")
    print(f"  event     {difference.event}")
    print(f"  recorded  {difference.recorded}")
    print(f"  replayed  {difference.replayed}")
    return 1


def constant(text: str) -> tuple[str, Any]:
    """`quota_ms=8`, `quota_ns=8000000` or `ordering=fifo` as a constant of the policy, read as the daemon reads its
    --config; Problem where that would refuse."""
    from scheduler_backend.config import POLICY
    from scheduler_backend.problem import Problem as DaemonProblem

    name, equals, said = text.partition("=")
    if not equals or not name:
        raise Problem(f"--set {text!r} is no NAME=VALUE; write it such as quota_ms=8", 2)
    value = _value(said)
    if name.endswith("_ns") and isinstance(value, (int, float)) and not isinstance(value, bool):
        name, value = name.removesuffix("_ns") + "_ms", value / 1e6
    if name not in POLICY:
        raise Problem(f"--set {name}: there is no such constant of the policy; there are {', '.join(POLICY)}", 2)
    field, read = POLICY[name]
    try:
        return field, read(value, f"--set {name}")
    except DaemonProblem as problem:
        raise Problem(str(problem), 2) from None


def _value(said: str) -> bool | float | str:
    if said in ("true", "false"):
        return said == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(said)
    return said
