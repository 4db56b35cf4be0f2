"""A recorded run (trace.jsonl in the state directory): for Perfetto, or through the token machine anew.

    gemini trace export FILE --out FILE.json
    gemini trace replay FILE [--set quota_ms=8]

A replay exits 0 when every action is the same, and 1 when one differs, which it names; so does one with a constant of
the policy changed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gemini.cli.problem import Problem


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gemini trace export FILE --out FILE.json | gemini trace replay FILE [--set NAME=VALUE]..."
    parser.add_argument("action", choices=("export", "replay"))
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--out", metavar="FILE.json", type=Path, help="(export) where the Chrome trace goes")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="(replay) a policy constant")


def main(args: argparse.Namespace) -> int:
    return export(args) if args.action == "export" else replay(args)


def export(args: argparse.Namespace) -> int:
    if args.out is None:
        raise Problem("export where to? give --out FILE.json", 2)
    from gemini.chrome import Exporter
    from scheduler_backend import trace
    from scheduler_backend.core import events

    head, entries = trace.read(args.file)
    fields = {
        name: kind._fields
        for name, kind in vars(events).items()
        if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    }
    exporter = Exporter(head.get("gpus", []), head["started_ns"], fields)
    count = 0
    try:
        with args.out.open("w") as out:
            out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            for event in exporter.events(entries):
                out.write((",\n" if count else "") + json.dumps(event, separators=(",", ":")))
                count += 1
            out.write("\n]}\n")
    except OSError as error:
        raise Problem(f"--out {args.out}: {error.strerror}; name a file that can be written") from None
    print(f"{args.out}: {count} trace events; open it at ui.perfetto.dev or chrome://tracing")
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
    """`quota_ms=8` or `quota_ns=8000000` or `ordering=fifo` as a constant of the policy."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Problem(f"--set {text!r} is no NAME=VALUE; write it such as quota_ms=8", 2)
    if value in ("true", "false"):
        return name, value == "true"
    try:
        number = float(value)
    except ValueError:
        return name, value
    if name.endswith("_ms"):
        return name.removesuffix("_ms") + "_ns", round(number * 1e6)
    return name, round(number)
