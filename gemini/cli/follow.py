"""What a tenant that runs in the background writes, and waiting for its end: gemini logs, gemini wait."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gemini.cli import detached
from gemini.cli.control import NoDaemon, ask
from gemini.cli.node import Node
from gemini.cli.options import add_node, node_of
from gemini.cli.problem import Problem
from scheduler_backend.config import SYSTEM_STATE_DIR

CHUNK_BYTES = 1 << 16
LOOK_SECONDS = 0.1  # between two looks at a file that grows
LOOK_AGAIN_SECONDS = 1.0  # at a tenant whose processes live, or cannot be seen from here
LONGEST_WAIT_S = 1_000_000_000
LOST = "it was killed with its gemini run, and nobody knows how it ended; gemini logs has what it wrote"
TIMED_OUT = 124  # as timeout(1) has it


def configure(parser: argparse.ArgumentParser) -> None:
    command = parser.prog.rsplit(" ", 1)[-1]
    parser.set_defaults(command=command)
    add_node(parser)
    if command == "logs":
        parser.description = (
            "What a program of gemini run --detach has written; without NAME, the log of the daemon that gemini run "
            "started."
        )
        parser.add_argument("name", metavar="NAME", nargs="?")
        parser.add_argument("--follow", action="store_true", help="go on as more is written, until it ends")
        parser.add_argument("--tail", metavar="N", type=int, help="the last N lines only")
    else:
        parser.description = (
            "Wait until a tenant is gone. The exit status is its command's where gemini run --detach started it, else "
            f"0; {TIMED_OUT} where --timeout came first."
        )
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("--timeout", metavar="S", type=float, help="seconds to wait at most")


def main(args: argparse.Namespace) -> int:
    return {"logs": logs, "wait": wait}[args.command](args)


def logs(args: argparse.Namespace) -> int:
    if args.tail is not None and args.tail < 0:
        raise Problem(f"--tail {args.tail}: give a number of lines, 0 or more", 2)
    run = None
    if args.name is None:
        path = log_of_daemon(node_of(args))
    else:
        run = known(args.name)
        path = run.output
    for chunk in written(path, run, args.tail, args.follow):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return 0


def known(name: str) -> detached.Run:
    run = detached.find(name)
    if run is None:
        there = ", ".join(detached.names()[:8])
        raise Problem(
            f"no gemini run --detach of the name {name!r}; " + (f"there are {there}" if there else "none yet")
        )
    return run


def log_of_daemon(node: Node) -> Path:
    """Of one that gemini run started; Problem with the place of any other's."""
    path = node.state_dir / "daemon.log"
    if not path.exists():
        where = "journalctl -u gemini" if node.state_dir == SYSTEM_STATE_DIR else "its terminal or its service's log"
        raise Problem(f"{path} is not there: gemini run started no daemon here; of gemini serve look at {where}")
    return path


def written(path: Path, run: detached.Run | None, tail: int | None, follow: bool) -> Iterator[bytes]:
    """What stands in the file; with `follow`, what comes later too, until the run's end."""
    try:
        with path.open("rb") as source:
            if tail is not None:
                source.seek(begin_of_last(source.fileno(), tail))
            while True:
                ended = run is not None and not run.lives()  # looked at before the file: nothing comes after it
                while chunk := source.read(CHUNK_BYTES):
                    yield chunk
                if not follow or ended:
                    return
                time.sleep(LOOK_SECONDS)
                run = detached.find(run.name) if run is not None else None
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}; ask its owner") from None


def begin_of_last(file: int, lines: int) -> int:
    """Where the last so many lines begin."""
    size = at = os.fstat(file).st_size
    if not lines:
        return size
    wanted = lines + (at > 0 and os.pread(file, 1, at - 1) == b"\n")
    while at > 0:
        length = min(CHUNK_BYTES, at)
        at -= length
        chunk = os.pread(file, length, at)
        count = chunk.count(b"\n")
        if count < wanted:
            wanted -= count
            continue
        end = len(chunk)
        for _ in range(wanted):
            end = chunk.rindex(b"\n", 0, end)
        return at + end + 1
    return 0


def wait(args: argparse.Namespace) -> int:
    if args.timeout is not None and not 0 <= args.timeout <= LONGEST_WAIT_S:
        raise Problem(f"--timeout {args.timeout:g}: give seconds from 0 to {LONGEST_WAIT_S}", 2)
    deadline = time.monotonic() + (LONGEST_WAIT_S if args.timeout is None else args.timeout)
    node = node_of(args)
    run = detached.find(args.name)
    pids = processes(node, args.name)
    if run is not None and not run.lives() and pids:
        run = None  # the tenant is another's by now, or what that run left behind
    if run is None and not pids:
        raise Problem(f"there is no tenant {args.name!r}; gemini ps names those that there are")
    while (run is not None and run.lives()) or pids:
        if not one_ended([run.pid] if run is not None and run.lives() else pids, deadline):
            print(
                f"gemini: {args.name} still runs after {args.timeout:g} s; wait on, or see gemini ps", file=sys.stderr
            )
            return TIMED_OUT
        pids = processes(node, args.name, pids)
    if run is None:
        return 0
    status = (detached.find(args.name) or run).status
    if status is None:
        raise Problem(f"{args.name}: {LOST}")
    return status


def processes(node: Node, name: str, before: Sequence[int] = ()) -> list[int]:
    """Those that the tenant stays for (0: one that is not known); empty: there is no such tenant. `before`: what they
    were, which counts while no daemon answers, for another one will have the tenant again."""
    try:
        tenants = ask(node, "GET", "/state")["tenants"]
    except NoDaemon:
        return [pid for pid in before if pid and detached.begin_of(pid)]
    for tenant in tenants:
        if tenant["name"] == name:
            return [*tenant.get("registered_by", []), *tenant.get("clients", [])] or [0]
    return []


def one_ended(pids: Sequence[int], deadline: float) -> bool:
    """Until one of these processes has ended, or it is time to look again. False: the deadline came."""
    poll = select.poll()
    fds: list[int] = []
    try:
        for pid in pids:
            with suppress(OSError):
                if pid:
                    fds.append(os.pidfd_open(pid))
                    poll.register(fds[-1], select.POLLIN)
        left = deadline - time.monotonic()
        poll.poll(1000 * max(0.0, min(left, LOOK_AGAIN_SECONDS)))
        return left > 0
    finally:
        for fd in fds:
            os.close(fd)
