"""Attacks by number: a user with many tenants, a machine with many addresses, a process with much to say of itself.

What is bounded for each of something is tried with as many of it as one may have.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time

from bench import flood
from bench.flood import send
from bench.hostile.orders import THREADS, become
from bench.hostile.table import LOCAL, NETWORK, TENANT, Attack, Place, Steps, attack
from bench.hostile.web import ask

TENANTS = 24
WORDS = (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01")


def _make(place: Place, name: str) -> int:
    return ask(place, "POST", "/tenants", {"name": name, "request": 0.0, "pid": os.getpid()})


@attack(LOCAL, root=True)
def tenants_that_stay(place: Place) -> Steps:
    """Makes tenants of request 0 from sixteen threads, as many as there may be, and keeps them"""
    become(place)
    count = itertools.count()

    def go() -> None:
        while True:
            with contextlib.suppress(OSError):
                _make(place, f"stays{next(count)}")

    for _ in range(THREADS):
        threading.Thread(target=go, daemon=True).start()
    while True:
        threading.Event().wait(0.05)
        yield None


def _from_many(place: Place, way: str) -> Steps:
    become(place)
    names = [f"many{number}" for number in range(TENANTS)]
    for name in names:
        while _make(place, name) != 200:
            time.sleep(0.05)
    sockets = [f"{place.state_dir}/tenants/{name}/tenant.sock" for name in names]
    ways = [flood.WAYS[way](path, place.card) for path in sockets]
    while True:
        for one in ways:
            next(one)
        yield None


@attack(LOCAL, root=True)
def messages_of_many_tenants(place: Place) -> Steps:
    """Has twenty-four tenants, each of which asks for the token without end"""
    return _from_many(place, "messages")


@attack(LOCAL, root=True)
def hellos_of_many_tenants(place: Place) -> Steps:
    """Has twenty-four tenants, each with ever new processes, as it says"""
    return _from_many(place, "hellos")


@attack(NETWORK)
def many_addresses(place: Place) -> Steps:
    """Says nonsense to the metrics port from thousands of addresses, as who has a whole network"""

    def go(first: int) -> None:
        for number in itertools.count(first, THREADS):
            with contextlib.suppress(OSError), socket.socket() as one:
                one.settimeout(0.5)
                one.bind((f"127.{1 + (number >> 14) % 250}.{number >> 7 & 127}.{1 + (number & 127)}", 0))
                one.connect(("127.0.0.1", place.metrics_port))
                send(one, random.choice(WORDS))
                one.settimeout(0.05)
                one.recv(4096)

    for first in range(THREADS):
        threading.Thread(target=go, args=(first,), daemon=True).start()
    while True:
        threading.Event().wait(0.05)
        yield None


_ZEROS = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
ctypes.memset(int(fields[47]), 0, int(fields[48]) - int(fields[47]))  # its environment
print("there", flush=True)
time.sleep(3600)
"""


@attack(TENANT)
def zeros_for_an_environment(place: Place) -> Steps:
    """Is on the card without the library, and shows whoever looks whose it is an environment of five MiB of zeros"""
    env = {name: value for name, value in place.env.items() if name not in ("LD_PRELOAD", "GEMINI_SOCKET")}
    env |= {f"X{number}": "x" * 131_000 for number in range(40)}

    def stack() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, resource.RLIM_INFINITY))

    children = [
        subprocess.Popen([sys.executable, "-c", _ZEROS], env=env, stdout=subprocess.PIPE, preexec_fn=stack)
        for _ in range(4)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    while True:
        ask(place, "GET", "/healthz")
        ask(place, "GET", "/metrics")  # as who collects them does
        yield None
        time.sleep(0.2)


_MOUNTED = """
import ctypes, os, sys, time
libc, uid, gid = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()
NEWNS, NEWUSER, PRIVATE = 0x20000, 0x10000000, 0x44000
def do(failed):
    if failed:
        raise OSError(ctypes.get_errno(), "no mounts here")
do(libc.unshare(NEWNS | (NEWUSER if uid else 0)))
if uid:
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        open(f"/proc/self/{name}", "w").write(line)
do(libc.mount(b"none", b"/", None, PRIVATE, None))
for _ in range(MANY_MOUNTS):
    do(libc.mount(b"x", b"/mnt", b"tmpfs", 0, None))
for _ in range(MANY_PROCESSES):
    if os.fork() == 0:
        cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        cuda.cuInit(0)
        cuda.cuDeviceGet(ctypes.byref(device), 0)
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        os.write(1, b".")
        time.sleep(3600)
time.sleep(3600)
"""
MOUNTED_PROCESSES, MOUNTS = 60, 8000


@attack(TENANT)
def mounts_on_one_another(place: Place) -> Steps:
    """Is on the card sixty times without the library, and shows whoever looks whose that is eight thousand mounts on
    one another"""
    env = {name: value for name, value in place.env.items() if name not in ("LD_PRELOAD", "GEMINI_SOCKET")}
    code = _MOUNTED.replace("MANY_MOUNTS", str(MOUNTS)).replace("MANY_PROCESSES", str(MOUNTED_PROCESSES))
    child = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert len(child.stdout.read(MOUNTED_PROCESSES)) == MOUNTED_PROCESSES, "no mounts here"
    while True:
        ask(place, "GET", "/healthz")
        ask(place, "GET", "/metrics")
        yield None
        time.sleep(0.2)


ATTACKS: tuple[Attack, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Attack))
