"""Attacks over HTTP: on the port of the metrics, and on the control socket."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import random
import socket
import time

from bench.flood import send, stands
from bench.hostile.table import NETWORK, OWNER, Attack, Place, Steps, attack

_GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


def over_tcp(place: Place) -> socket.socket:
    """A connection to the metrics port; the next call on one that never came to be says so."""
    one = socket.socket()
    one.settimeout(0.5)
    with contextlib.suppress(OSError):
        one.connect(("127.0.0.1", place.metrics_port))
    return one


def over_unix(place: Place) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(0.5)
    with contextlib.suppress(OSError):
        one.connect(place.control)
    return one


def ask(place: Place, method: str, path: str, body: object = None) -> int:
    """One request on the control socket: its status, 0 where no answer came."""
    connection = http.client.HTTPConnection("x", timeout=2)
    connection.sock = over_unix(place)
    try:
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body)
        connection.request(method, path, payload)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def idle(place: Place, count: int, octets: bytes = b"") -> Steps:
    """So many connections to the port that say no more than this; those that were closed are made anew."""
    standing: list[socket.socket] = []
    while True:
        while len(standing) < count:
            standing.append(over_tcp(place))
            send(standing[-1], octets)
            standing[-1].setblocking(False)
            if len(standing) % 32 == 0:
                yield None
        left = []
        for one in standing:
            if stands(one):
                left.append(one)
            else:
                one.close()
        standing = left
        time.sleep(0.05)
        yield None


@attack(NETWORK, descriptors=2048, finding=3)
def idle_connections(place: Place) -> Steps:
    """2,100 connections that say nothing, to a daemon that may have 2,048 descriptors"""
    return idle(place, 2100)


@attack(NETWORK, finding=3)
def state_over_the_network(place: Place) -> Steps:
    """Asks the network's port for all tenants' names and processes, and to change them"""
    while True:
        for method, path in (("GET", "/state"), ("POST", "/tenants"), ("POST", "/shutdown"), ("DELETE", "/tenants/a")):
            with over_tcp(place) as one:
                send(one, f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                heard = b""
                with contextlib.suppress(OSError):
                    while more := one.recv(1 << 16):
                        heard += more
                if heard.split(b" ", 2)[1:2] == [b"200"]:
                    yield f"{method} {path} was answered over the network"
        yield None
        time.sleep(0.05)


@attack(NETWORK)
def slow_heads(place: Place) -> Steps:
    """Three hundred requests whose heads come a byte at a time"""
    standing: list[socket.socket] = []
    while True:
        while len(standing) < 300:
            standing.append(over_tcp(place))
            send(standing[-1], _GET)
        for one in standing:
            send(one, b"x")
        standing = [one for one in standing if one.fileno() >= 0]
        yield None
        time.sleep(0.2)


@attack(NETWORK)
def huge_heads(place: Place) -> Steps:
    """Heads of a MiB: one line, a thousand lines, a name without end"""
    while True:
        for head in (b"X: " + b"a" * (1 << 20), b"".join(b"X%d: y\r\n" % n for n in range(50_000)), b"n" * (1 << 20)):
            with over_tcp(place) as one:
                send(one, _GET + head)
            yield None


@attack(NETWORK)
def huge_bodies(place: Place) -> Steps:
    """Bodies of a GiB, in one piece or chunks, to what takes none"""
    while True:
        for head in (b"Content-Length: 1073741824\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n"):
            with over_tcp(place) as one:
                send(one, b"POST /metrics HTTP/1.1\r\nHost: x\r\n" + head + bytes(1 << 20))
            yield None


@attack(NETWORK)
def inflated_bodies(place: Place) -> Steps:
    """Bodies of 7 KiB that are as many MiB once they are inflated, to what takes none, from 48 connections"""
    body = gzip.compress(bytes(7 << 20))
    head = b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    while True:
        standing = [over_tcp(place) for _ in range(48)]
        for one in standing:
            send(one, head + body)
        yield None
        for one in standing:
            with contextlib.suppress(OSError):
                one.recv(1 << 16)
            one.close()


@attack(NETWORK)
def pipelined(place: Place) -> Steps:
    """A thousand requests at once on one connection, whose answers nobody reads"""
    return idle(place, 8, (_GET + b"\r\n") * 1000)


@attack(NETWORK, finding=9)
def readers(place: Place) -> Steps:
    """A hundred and fifty readers of the metrics, again and again at once"""
    while True:
        standing = []
        for _ in range(150):
            standing.append(over_tcp(place))
            send(standing[-1], _GET + b"Connection: close\r\n\r\n")
        yield None
        for one in standing:
            with contextlib.suppress(OSError):
                while one.recv(1 << 16):
                    pass
            one.close()


@attack(NETWORK)
def no_http(place: Place) -> Steps:
    """Random bytes, requests of other versions, paths that leave the tree, methods that do not exist"""
    words = (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
             b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"X" * 9000 + b" / HTTP/1.1\r\n\r\n",
             b"GET /\x1b[2J HTTP/1.1\r\n\r\n")  # fmt: skip
    while True:
        with over_tcp(place) as one:
            send(one, random.choice((*words, random.randbytes(300))))
            with contextlib.suppress(OSError):
                one.settimeout(0.02)
                one.recv(4096)
        yield None


@attack(OWNER)
def idle_on_the_control_socket(place: Place) -> Steps:
    """A thousand connections to the control socket that say nothing"""
    standing: list[socket.socket] = []
    while True:
        while len(standing) < 1000:
            standing.append(over_unix(place))
            if len(standing) % 32 == 0:
                yield None
        for one in standing:
            one.setblocking(False)
        standing = [one for one in standing if stands(one)]
        time.sleep(0.05)
        yield None


@attack(OWNER)
def wrong_orders(place: Place) -> Steps:
    """Tenants with names that leave the tree, draw or are endless, numbers that are none, bodies nested deeply"""
    names = ("../../x", "\x1b[2J", "a" * 5000, "", ".", "a/b", "\ud800", "ä" * 60, "victim\n")
    bodies: list[object] = [{"name": name, "request": 0.0} for name in names]
    wrong: tuple[object, ...] = (-1, 2, "1e999", "NaN", [], {}, None, True)
    bodies += [{"name": "n", "request": value} for value in wrong]
    bodies += [{"name": "n", "memory_bytes": -1}, {"name": "n", "gpus": [99]}, {"name": "n", "pid": "x"}, [], 7]
    bodies += [b"[" * 60_000, b"{" * 60_000, b"\xff\xfe", b'{"name": "n", "request": ' + b"9" * 50_000 + b"}"]
    while True:
        for body in bodies:
            status = ask(place, "POST", "/tenants", body)
            if status >= 500:
                yield f"{str(body)[:60]} was answered with {status}"
            ask(place, "DELETE", "/tenants/n")
            yield None


@attack(OWNER)
def tenants_without_end(place: Place) -> Steps:
    """Registers best-effort tenants and removes them, as quickly as it is answered"""
    while True:
        for number in range(8):
            ask(place, "POST", "/tenants", {"name": f"storm{number}", "request": 0.0, "pid": os.getpid()})
            yield None
        for number in range(8):
            ask(place, "DELETE", f"/tenants/storm{number}")
            yield None


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
