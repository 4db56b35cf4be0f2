"""The daemon that a running command needs: noticed when it ends, and started again where nobody else would do that.

The library in the program neither starts anything nor prints; `gemini run`, which waits for the program anyway, does
both here, in a thread. A daemon that was started by the way (it ends with its last tenant) has nobody else to start it
anew. One of `gemini serve` or of a service has; for that we only wait, and say so once.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from gemini.cli.control import ask
from gemini.cli.node import Node
from gemini.cli.problem import Problem
from gemini.cli.starting import register

LOOK_SECONDS = 0.25  # between two looks whether a daemon that is somebody else's matter answers again
SHORT_LIFE_SECONDS = 2.0  # a daemon that lived less is not started anew at once
MOST_STARTS = 30  # in START_WINDOW_SECONDS; a machine that kills each new daemon is not kept busy by us
START_WINDOW_SECONDS = 600.0
MOST_FAILURES = 5  # starts in a row that failed; each pause between is twice the one before


class Comeback:
    """Watches the node's daemon from a thread of its own. `gone`: nobody answers now."""

    def __init__(self, node: Node, spec: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.gone = False
        self._node, self._spec, self._say = node, spec, say
        self._said = False
        self._starts: list[float] = []
        self._over = threading.Event()
        self._waking, self._woken = socket.socketpair()

    def start(self) -> None:
        """From now on, until `stop` or the end of this process."""
        if hasattr(os, "pidfd_open"):
            threading.Thread(target=self._run, name="daemon-watch", daemon=True).start()

    def stop(self) -> None:
        """The tenant needs no daemon any more."""
        self._over.set()
        self._waking.close()

    def _run(self) -> None:
        with self._woken:
            self._watch_on()

    def _watch_on(self) -> None:
        ours = False
        while not self._over.is_set():
            watched = watch(self._node)
            if watched is None and ours:  # killed again before it could be watched
                self.gone = True
                if not self._again():
                    return
            if watched is not None:
                ours, pidfd = watched
                self.gone = False
                begun = time.monotonic()
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                poll.register(self._woken, select.POLLIN)
                poll.poll()
                os.close(pidfd)
                if self._over.is_set():
                    return
                self.gone = True
                if time.monotonic() - begun < SHORT_LIFE_SECONDS:
                    self._over.wait(LOOK_SECONDS)
                if ours:
                    if not self._again():
                        return
                    continue
                self._tell(
                    f"the daemon at {self._node.control} has ended, and the program waits; start it again with "
                    f"gemini serve --state-dir {self._node.state_dir}"
                )
            self._over.wait(LOOK_SECONDS)

    def _again(self) -> bool:
        """Have a daemon again. Whether there is one."""
        log = f"see {self._node.state_dir / 'daemon.log'}"
        # One that ends by itself takes its socket along.
        ending = "was killed" if self._node.control.exists() else "has ended"
        pause, why = LOOK_SECONDS, ""
        for _ in range(MOST_FAILURES):
            if self._over.is_set():
                return False
            now = time.monotonic()
            self._starts = [at for at in self._starts if now - at < START_WINDOW_SECONDS]
            if len(self._starts) >= MOST_STARTS:
                why = f"it ended {MOST_STARTS} times within {START_WINDOW_SECONDS / 60:g} minutes"
                break
            self._starts.append(now)
            try:
                self._register()
            except Problem as problem:
                why = str(problem)
                self._over.wait(pause)
                pause *= 2
                continue
            self._tell(f"the daemon {ending}; it was started again, and the program goes on ({log})")
            return True
        if self._over.is_set():
            return False
        self._said = False
        self._tell(
            f"the daemon {ending} and cannot be started again: {why}; the program waits, start one with "
            f"gemini serve --state-dir {self._node.state_dir}"
        )
        return False

    def _register(self) -> None:
        """A daemon that answers and has the tenant: most times it remembers it."""
        try:
            register(self._node, self._spec)
        except Problem:  # its share was changed meanwhile, and the daemon knows it as it is now
            known = [tenant["name"] for tenant in ask(self._node, "GET", "/state")["tenants"]]
            if self._spec["name"] not in known:
                raise

    def _tell(self, text: str) -> None:
        if not self._said:
            self._said = True
            self._say(text)


def watch(node: Node) -> tuple[bool, int] | None:
    """Of the daemon that answers: whether it was started by the way, and its pidfd; None: there is none, or it cannot
    be seen from here (another container's)."""
    try:
        ours = ask(node, "GET", "/state", timeout=5.0).get("idle_exit_seconds") is not None
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5.0)
            connection.connect(str(node.control))
            pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return (ours, os.pidfd_open(pid)) if pid else None
    except (OSError, Problem):
        return None
