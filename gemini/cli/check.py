"""Look at this machine as Gemini would use it. Every line says what is there, and what to do where something is wrong.

Exit status 1 when something keeps Gemini from working; warnings alone leave it 0.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gemini.cli import assumptions, nvml
from gemini.cli.control import answers, ask
from gemini.cli.node import HOOK, SIM, Node, outside, sim_front
from gemini.cli.options import add_node, node_of
from gemini.cli.preload import problem_of
from gemini.cli.problem import Problem, cause_of
from gemini.cli.starting import simulated_cards
from gemini.cli.status import name_of
from gemini.units import format_size
from libhook import info
from libhook.observer import Timeline
from scheduler_backend import cardlock
from scheduler_backend.devices import Gpu

PACKAGES = ("cffi", "numpy", "uvloop", "aiohttp")
RUNTIMES = {"podman": (4, 1), "docker": (25, 0)}  # and the first version that reads CDI specs
OK, WARN, FAIL = "ok  ", "warn", "FAIL"
Line = tuple[str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    add_node(parser)


def main(args: argparse.Namespace) -> int:
    node = node_of(args)
    worst = 0
    for part in (build, packages, system, library, driver, assumed, sharing, interposers, daemon, holders, containers):
        for verdict, text in part(node):
            print(f"{verdict}  {text}")
            worst = max(worst, verdict == FAIL)
    return int(worst)


def build(_node: Node) -> Iterator[Line]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield (
        OK,
        "gemini: {version}, commit {commit}, library {library:.12}".format_map(info.build()) + f"; Python {python}",
    )


def packages(_node: Node) -> Iterator[Line]:
    """Parts of others that are compiled, and may want a library that a bare system lacks."""
    broken = False
    for name in PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            broken = True
            yield FAIL, f"package: {name} does not load: {cause_of(error)}; install what is missing"
    if not broken:
        yield OK, f"packages: {', '.join(PACKAGES)} load"


def system(_node: Node) -> Iterator[Line]:
    libc, version = platform.libc_ver()
    if libc != "glibc":
        yield FAIL, f"C library: {libc or 'not glibc (musl?)'}; Gemini needs glibc 2.28 or later"
    elif tuple(map(int, version.split(".")[:2])) < (2, 28):
        yield (
            FAIL,
            f"C library: glibc {version}; Gemini needs 2.28 (programs under it 2.17): use a newer base image",
        )
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
    problem = problem_of(HOOK, sys.executable)
    yield (OK, f"library: {HOOK} loads") if problem is None else (FAIL, f"library: {problem}")


def driver(node: Node) -> Iterator[Line]:
    if node.sim is not None:
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            try:
                ctypes.CDLL(str(SIM / name))
            except OSError as error:
                yield FAIL, f"simulated {name}: {error}; run make build"
                return
        try:
            simulated_cards(node.sim)
        except Problem as problem:
            yield FAIL, f"driver: {problem}"
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


def assumed(node: Node) -> Iterator[Line]:
    """What Gemini assumes of the driver, as far as probes tell that take some tenths of a second of the first card."""
    environment = {**outside(), **(node.environment() if node.sim is not None else {})}
    try:
        answers = assumptions.harmless(environment)["answers"]
    except subprocess.TimeoutExpired as late:
        yield WARN, f"assumed: the probes of the driver did not end within {late.timeout:g} s; see nvidia-smi and dmesg"
        return
    except (OSError, ValueError) as error:
        yield WARN, f"assumed: the probes of the driver cannot run: {cause_of(error)}; run make build, or reinstall"
        return
    if "card_name" not in answers:  # `driver` says why
        return
    judged = assumptions.judged(answers)
    holding = sum(holds is True for _one, holds in judged)
    untold = [one.name for one, holds in judged if holds is None]
    yield (
        OK,
        f"assumed: {holding} of {len(judged)} assumptions hold"
        + (f"; not told: {', '.join(untold)}" if untold else ""),
    )
    for one, holds in judged:
        if holds is False:
            yield (
                WARN,
                f"assumed: it does not hold that {one.name}: {one.otherwise}; see what make gpu-check measures",
            )


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
    given = [p for p in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if p not in sim_front()]
    others = [p for p in given if Path(p).name != HOOK.name]
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


def containers(_node: Node) -> Iterator[Line]:
    """Only for gemini share; a machine without them lacks nothing."""
    for program, least in RUNTIMES.items():
        if shutil.which(program) is None:
            continue
        try:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
        found = re.search(r"version (\d+)\.(\d+)", done.stdout)
        if found is None:
            continue
        version = f"{program} {found[1]}.{found[2]}"
        if (int(found[1]), int(found[2])) < least:
            wanted = ".".join(map(str, least))
            yield WARN, f"containers: {version} reads no CDI devices, which gemini share makes; take {wanted} or later"
        else:
            yield OK, f"containers: {version}; gemini share add NAME, then --device gemini.io/share=NAME"


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
    except OSError as error:
        yield FAIL, f"state directory: {error.filename}: {error.strerror}; choose another with --state-dir"


def holders(node: Node) -> Iterator[Line]:
    """Each card has one daemon; programs under two of them would not know of one another."""
    with contextlib.ExitStack() as stack:
        try:
            if node.sim is not None:
                shown = stack.enter_context(Timeline(node.sim)).devices()
                gpus = [Gpu(one.index, one.uuid, one.name, one.memory_bytes, True) for one in shown]
            else:
                found = nvml.devices()
                gpus = [Gpu(index, card["uuid"], card["name"], 0) for index, card in enumerate(found)]
        except OSError:  # `driver` says it
            return
        others = [
            cardlock.refusal(gpu, one)
            for gpu, one in zip(gpus, cardlock.holders(gpus, node.sim), strict=True)
            if one is not None and one.state_dir != str(node.state_dir)
        ]
    for line in others:
        yield FAIL, line
    if gpus and not others:
        yield OK, f"cards: no other daemon than that on {node.state_dir} hands them out"
