"""Look at this machine as Gemini would use it. Every line says what is there, and what to do where something is wrong.

Exit status 1 when something keeps Gemini from working; warnings alone leave it 0.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from gemini.cli import nvml
from gemini.cli.node import HOOK, SIM, Node, answers, ask
from gemini.cli.options import add_node, node_of
from gemini.cli.preload import problem_of
from gemini.cli.problem import Problem
from gemini.cli.status import name_of
from gemini.units import format_size

OK, WARN, FAIL = "ok  ", "warn", "FAIL"
Line = tuple[str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    add_node(parser)


def main(args: argparse.Namespace) -> int:
    node = node_of(args)
    worst = 0
    for part in (system, library, driver, sharing, interposers, daemon):
        for verdict, text in part(node):
            print(f"{verdict}  {text}")
            worst = max(worst, verdict == FAIL)
    return int(worst)


def system(_node: Node) -> Iterator[Line]:
    libc, version = platform.libc_ver()
    if libc != "glibc":
        yield FAIL, f"C library: {libc or 'not glibc (musl?)'}; the library needs glibc 2.28 or later"
    elif tuple(map(int, version.split(".")[:2])) < (2, 28):
        yield FAIL, f"C library: glibc {version}; the library needs 2.28 or later: use a newer base image"
    else:
        yield OK, f"C library: glibc {version}"
    if platform.machine() != "x86_64":
        yield FAIL, f"processor: {platform.machine()}; only x86_64 is supported"
    release = platform.release().split("-")[0]
    yield OK, f"kernel: {release}" + ("" if hasattr(os, "pidfd_open") else "; Python has no pidfd_open")


def library(_node: Node) -> Iterator[Line]:
    if not HOOK.exists():
        yield FAIL, f"library: {HOOK} is not there; run make build, or reinstall the package"
        return
    program = shutil.which("true") or "/bin/true"
    problem = problem_of(HOOK, program)
    yield (OK, f"library: {HOOK} loads") if problem is None else (FAIL, f"library: {problem}")


def driver(node: Node) -> Iterator[Line]:
    if node.sim is not None:
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            try:
                ctypes.CDLL(str(SIM / name))
            except OSError as error:
                yield FAIL, f"simulated {name}: {error}; run make build"
                return
        yield OK, f"driver: simulated ({node.sim})"
        return
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        try:
            ctypes.CDLL(name)
        except OSError:
            yield FAIL, f"driver: {name} is not found; install NVIDIA's driver, or use --sim for a simulated GPU"
            return
    if not Path("/dev/nvidiactl").exists():
        yield (
            FAIL,
            "driver: /dev/nvidiactl is not there; modprobe nvidia, or give the container a GPU",
        )
        return
    cards = nvml.devices()
    if not cards:
        yield FAIL, "driver: NVML shows no GPU; see nvidia-smi"
        return
    yield OK, f"driver: {nvml.driver_version() or 'unknown version'}"
    for index, card in enumerate(cards):
        memory = "unknown memory" if card["memory_bytes"] is None else format_size(card["memory_bytes"])
        yield OK, f"GPU {index}: {card['name']}, {memory}, {card['uuid']}"


def sharing(node: Node) -> Iterator[Line]:
    if node.sim is not None:
        return
    for index, card in enumerate(nvml.devices()):
        if card["exclusive"]:
            yield (
                FAIL,
                f"GPU {index}: compute mode is exclusive, one process at a time; nvidia-smi -i {index} -c DEFAULT",
            )
        if card["prohibited"]:
            yield FAIL, f"GPU {index}: compute mode is prohibited; nvidia-smi -i {index} -c DEFAULT"
        if card["mig"]:
            yield (
                WARN,
                f"GPU {index}: MIG is on; shares are of a MIG instance; nvidia-smi -i {index} -mig 0 turns it off",
            )
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if (pipe / "control").exists():
        yield (
            WARN,
            f"MPS answers at {pipe}: its clients run at once, past the token; echo quit | nvidia-cuda-mps-control",
        )


def interposers(_node: Node) -> Iterator[Line]:
    others = [p for p in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if Path(p).name != HOOK.name]
    with contextlib.suppress(OSError):
        others += [p for p in Path("/etc/ld.so.preload").read_text().split() if Path(p).name != HOOK.name]
    for path in others:
        known = any(word in path.lower() for word in ("vgpu", "cuda", "nvshare", "hami", "gem"))
        if known:
            yield WARN, f"preload: {path} intercepts CUDA too; take it out of LD_PRELOAD and /etc/ld.so.preload"
        else:
            yield OK, f"preload: {path} beside the library"
    if not others:
        yield OK, "preload: nothing else"


def daemon(node: Node) -> Iterator[Line]:
    try:
        node.check_path("x" * 16)
        there = next(path for path in (node.state_dir, *node.state_dir.parents) if path.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            yield FAIL, f"state directory: {there} cannot be written; choose another with --state-dir"
        if not node.control.exists():
            yield OK, f"daemon: none at {node.state_dir}; gemini run starts one"
        elif answers(node):
            state = ask(node, "GET", "/state")
            device = state.get("device") or {}
            name = name_of(device)
            yield (
                OK,
                f"daemon: answers at {node.control}: {name}, tenants: {len(state['tenants'])}",
            )
        else:
            yield WARN, f"daemon: {node.control} is left from one that is gone; gemini run or gemini serve replaces it"
    except Problem as problem:
        yield FAIL, f"daemon: {problem}"
