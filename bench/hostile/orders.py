"""Attacks on the control socket by a user whom the daemon's group lets in: orders for tenants of his own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Callable

from bench.hostile.machine import NOBODY
from bench.hostile.table import LOCAL, Attack, Place, Steps, attack
from bench.hostile.web import ask, over_unix

THREADS = 16


def become(place: Place) -> None:
    """From here on that user, with a tenant's bounds and a way to the socket."""
    os.chmod(place.state_dir, 0o711)
    os.chown(place.control, -1, NOBODY)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _all_at_once(place: Place, do: Callable[[int], object], count: int = THREADS) -> Steps:
    """So many threads do this again and again."""
    become(place)

    def go(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                do(number)

    for number in range(count):
        threading.Thread(target=go, args=(number,), daemon=True).start()
    while True:
        threading.Event().wait(0.05)
        yield None


@attack(LOCAL, root=True)
def tenants_come_and_go(place: Place) -> Steps:
    """Makes tenants of request 0 and removes them, from sixteen threads, as quickly as it is answered"""

    def do(number: int) -> None:
        ask(place, "POST", "/tenants", {"name": f"storm{number}", "request": 0.0, "pid": 1})
        ask(place, "DELETE", f"/tenants/storm{number}")

    yield from _all_at_once(place, do)


@attack(LOCAL, root=True)
def shares_change(place: Place) -> Steps:
    """Changes a tenant of his to and fro, from sixteen threads, as quickly as it is answered"""
    count = itertools.count()

    def do(_number: int) -> None:
        if ask(place, "PATCH", "/tenants/fickle", {"limit": 0.5 + 0.1 * (next(count) % 2)}) == 404:
            ask(place, "POST", "/tenants", {"name": "fickle", "request": 0.0, "pid": 1})

    yield from _all_at_once(place, do)


@attack(LOCAL, root=True)
def looks_without_end(place: Place) -> Steps:
    """Asks for the daemon's state, from sixteen threads, as quickly as it is answered"""
    yield from _all_at_once(place, lambda _number: ask(place, "GET", "/state"))


@attack(LOCAL, root=True)
def comes_and_leaves(place: Place) -> Steps:
    """Connects to the control socket and leaves, from sixteen threads"""
    yield from _all_at_once(place, lambda _number: over_unix(place).close())


@attack(LOCAL, root=True)
def sizes_of_blanks(place: Place) -> Steps:
    """Sizes and shares that are 60,000 blanks, digits or points, which take long to read"""
    texts = [f"1{' ' * 60_000}x", "1" * 60_000, f"{' ' * 60_000}", f"0.{'0' * 60_000}1x", "0" * 60_000]
    bodies = [{"name": "n", "pid": 1, key: text} for key in ("memory_bytes", "request", "limit") for text in texts]
    bodies += [{"name": "n", "pid": 1, "gpus": [text]} for text in texts]
    become(place)
    while True:
        for body in bodies:
            status = ask(place, "POST", "/tenants", json.dumps(body).encode())
            if status >= 500:
                yield f"{str(body)[:60]} was answered with {status}"
            yield None


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
