"""What of the signals a command gets, and what of its user's wishes about them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gemini.cli.control import answers
from gemini.cli.node import LOAD
from gemini.cli.starting import holder
from tests.gemini.cli.conftest import Place, until


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_was_ignored_stays_ignored(place: Place, number: signal.Signals) -> None:
    script = "echo ready; read x; echo still here"
    process = subprocess.Popen(
        ["sh", "-c", f'trap "" {number.name[3:]}; exec "$@"', "sh", *place.words("run", "--", "sh", "-c", script)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=place.environment(),
        start_new_session=True,
    )  # fmt: skip
    place.started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate("\n", timeout=60)
    assert (process.returncode, out) == (0, "still here\n"), err


WAITS = """
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
context, device, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
for status in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
               cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), cuda.cuMemAlloc_v2(ctypes.byref(pointer), 4096)):
    assert status == 0, status
print("ready", flush=True)
while True:
    assert cuda.cuMemsetD8Async(pointer, 0, 4096, None) == 0
"""


def test_the_second_interrupt_ends_a_program_that_waits_for_a_daemon_that_is_gone(place: Place) -> None:
    serve = place.start("serve")
    until(lambda: answers(place.node))
    program = place.dir / "waits.py"
    program.write_text(WAITS)
    process = place.start("run", "--name", "a", "--", sys.executable, str(program))
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    serve.kill()
    serve.wait()
    line = process.stderr.readline()
    assert "the program waits; start it again with gemini serve" in line
    process.send_signal(signal.SIGINT)
    assert "interrupt once more to end it" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGTERM


def test_a_daemon_that_was_killed_is_started_again_by_who_waits_for_it(place: Place) -> None:
    process = place.start("run", "--name", "a", "--request", "0.3", "--", str(LOAD), "--seconds", "0", "--json", "-")
    until(lambda: answers(place.node) and any(t["held_ns"] for t in place.state()["tenants"]))
    for _ in range(3):
        before = holder(place.node)
        os.kill(before, signal.SIGKILL)
        until(lambda before=before: answers(place.node) and holder(place.node) != before)  # type: ignore[misc]
        until(lambda: any(t["held_ns"] for t in place.state()["tenants"]))
    process.send_signal(signal.SIGTERM)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(err.splitlines()) == 1, err  # said once
    assert err.startswith("gemini: the daemon was killed; it was started again"), err


def test_what_a_launcher_leaves_in_the_background_keeps_its_tenant(place: Place) -> None:
    """Also before it has used CUDA, and when a process of it starts another and ends."""
    started = place.dir / "pid"
    go = place.dir / "go"
    work = f"while [ ! -e {go} ]; do sleep 0.05; done; {LOAD} --seconds 0 & echo $! > {started}.new"
    work += f"; mv {started}.new {started}"
    done = place.gemini("run", "--name", "a", "--request", "0.3", "--", "sh", "-c", f"({work}) > /dev/null 2>&1 &")
    assert done.returncode == 0, done.stderr
    assert [tenant["name"] for tenant in place.state()["tenants"]] == ["a"]
    go.touch()
    until(started.exists)
    until(lambda: any(t["held_ns"] for t in place.state()["tenants"]))
    held = place.state()["tenants"][0]["held_ns"]
    until(lambda: place.state()["tenants"][0]["held_ns"] > held + 50_000_000)
    os.kill(int(started.read_text()), signal.SIGTERM)
    until(lambda: place.state()["tenants"] == [])


def test_a_background_process_keeps_its_tenant_when_gemini_run_is_killed(place: Place) -> None:
    script = f"{LOAD} --seconds 0 > /dev/null 2>&1 & echo $!; wait"
    process = place.start("run", "--name", "a", "--request", "0.3", "--", "sh", "-c", script)
    assert process.stdout is not None
    load = int(process.stdout.readline())
    until(lambda: any(t["held_ns"] for t in place.state()["tenants"]))
    process.kill()
    process.wait()
    held = place.state()["tenants"][0]["held_ns"]
    until(lambda: place.state()["tenants"][0]["held_ns"] > held + 300_000_000)
    os.kill(load, signal.SIGTERM)
    until(lambda: place.state()["tenants"] == [])


def test_a_signal_that_another_thread_gets_wakes_the_one_that_waits(place: Place) -> None:
    """A signal to a process may interrupt any of its threads; only the main one runs Python's handlers."""
    program = """
import os, signal, subprocess, sys, threading
from gemini.cli.supervise import supervise
def other():
    sys.stdin.readline()
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
script = "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
sys.exit(supervise(["sh", "-c", script], "/bin/sh", dict(os.environ)))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    place.started.append(process)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "got\n"
    assert process.wait(60) == 5
