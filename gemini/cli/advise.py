"""What a tenant should ask for, read from what it did.

    gemini advise NAME [--trace FILE] [--state-dir DIR]

Reads the daemon's trace (trace.jsonl in its state directory, and the part before it in trace.jsonl.1) and recommends
request, limit and memory, each with its reason. It changes nothing: gemini set does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gemini.cli.options import add_node, node_of
from gemini.cli.problem import Problem


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--trace", metavar="FILE", type=Path, help="another trace.jsonl")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_node(parser)


def main(args: argparse.Namespace) -> int:
    from gemini import advise
    from scheduler_backend import trace
    from scheduler_backend.problem import Problem as DaemonProblem

    path = args.trace or Path(node_of(args).state_dir) / "trace.jsonl"
    head, entries = trace.read_joined(path)
    node = trace.node_of(path, head)
    try:
        use = advise.observe(node, entries, args.name)
    except DaemonProblem:
        raise
    except trace.OUT_OF_STEP:
        raise Problem(
            f"{path} is damaged, or of another version: an event does not follow from those before it;"
            " record a new one, or name another with --trace"
        ) from None
    if use is None:
        raise Problem(f"{path} knows no tenant {args.name}; gemini ps names those that there are")
    found = advise.advise(use)
    if not found:
        raise Problem(
            f"{args.name} wanted the GPU in less than {advise.LEAST_SECONDS} s of {path}; let it work for a while first"
        )
    if args.json:
        print(json.dumps([one._asdict() for one in found], indent=2))
        return 0
    for one in found:
        print(f"{one.option} {one.value:<8}  {one.why}")
    return 0
