"""Options that several commands share, and what they mean."""

from __future__ import annotations

import argparse

from gemini.cli.node import Node, simulation
from gemini.cli.where import meant
from scheduler_backend.config import folder


def add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state-dir", metavar="DIR", type=folder, help="where the daemon's sockets and state lie")
    parser.add_argument(
        "--sim", metavar="SPEC", nargs="?", const="",
        help="use a simulated GPU; SPEC such as gpus=2,memory=80GiB,name=NVIDIA H200",
    )  # fmt: skip


def card(text: str) -> int | str:
    """A card as a person names it: its index, else its UUID."""
    return int(text) if text.isdecimal() else text


def add_shares(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--request", metavar="R", help="part of the GPU's time that is guaranteed, 0.3 or 30%%")
    parser.add_argument("--limit", metavar="L", help="the most it may take")
    parser.add_argument("--class", dest="service", choices=("latency", "batch"), help="latency preempts batch")


def node_of(args: argparse.Namespace) -> Node:
    sim = simulation(args.sim)
    return meant(sim) if args.state_dir is None else Node(args.state_dir.absolute(), sim)
