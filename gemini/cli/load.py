"""The load generator: kernels of a stated length, launched as fast as possible or in bursts.

It is a plain CUDA program and no tenant by itself; as one: gemini run --request 0.3 -- gemini load --kernel-us 100
"""

from __future__ import annotations

import argparse
import os

from gemini.cli.node import LOAD, sim_environment, simulation
from gemini.cli.problem import Problem
from gemini.cli.starting import simulated_cards
from gemini.units import parse_size

NUMBERS = {  # option -> its meaning; checked by the program itself
    "kernel-us": "length of a kernel in microseconds (100)",
    "burst": "launches in a burst, then a synchronise",
    "gap-us": "host time after each burst in microseconds",
    "sync-every": "synchronise after so many launches; default: never",
    "streams": "streams per thread (1), or legacy, or per-thread",
    "threads": "launching threads (1)",
    "graph": "launch graphs of so many kernels",
    "device": "CUDA ordinal (0)",
    "seconds": "length of the run (10); 0: until SIGTERM",
    "json": "write the figures to this file, - for stdout",
}


def configure(parser: argparse.ArgumentParser) -> None:
    for name, text in NUMBERS.items():
        parser.add_argument(f"--{name}", metavar="FILE" if name == "json" else name[0].upper(), help=text)
    parser.add_argument("--alloc", metavar="SIZE", help="allocate so much GPU memory first")
    parser.add_argument("--sim", metavar="SPEC", nargs="?", const="", help="use a simulated GPU")


def main(args: argparse.Namespace) -> int:
    if not LOAD.exists():
        raise Problem(f"{LOAD} is not there; run make build, or reinstall the package")
    options = [f"--{name}={value}" for name in NUMBERS if (value := getattr(args, name.replace("-", "_"))) is not None]
    if args.alloc is not None:
        options.append(f"--alloc={parse_size(args.alloc, '--alloc')}")
    sim = simulation(args.sim)
    if sim is not None:
        simulated_cards(sim)
    environment = {**os.environ, **({} if sim is None else sim_environment(sim))}
    os.execve(LOAD, [str(LOAD), *options], environment)
