"""Row 15: the extender by itself, 5,000 nodes x 8 cards, called as kube-scheduler calls it.

Each call has another pod and a shuffled list of nodes. Timed from the first byte sent to the last byte received, and
inside the server from body to body. On the connection that is timed there are calls of kube-scheduler alone, as on its
own: one that has asked for anything else is aiohttp's from then on. The floor is the same 500 names on the same
connection, answered with nothing by who does not look at them. Then pods go through filter and prioritize with the same
500 nodes until there is little room left, and are bound; nobody of them may hold what another holds.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import orjson

from bench.extender.served import held, node_name, pod
from bench.goals import Claim, claim
from bench.jitter import Probe
from bench.report import ROOT
from gemini.kube import names

Sample = tuple[int, int]  # start_ns, ns


class Caller:
    """Two kept connections, one for the calls, as bare as can be: the caller's own time is no part of the question."""

    def __init__(self, port: int) -> None:
        self._calls, self._besides = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
        for connection in (self._calls, self._besides):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        return self._exchange(self._calls, head.encode() + b"\r\n\r\n" + body)

    def get(self, path: str) -> bytes:
        return self._exchange(self._besides, f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())

    @staticmethod
    def _exchange(connection: socket.socket, request: bytes) -> bytes:
        connection.sendall(request)
        got = b""
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += _some(connection)
        head, parts, left = got[:end].lower(), [got[end + 4 :]], 0
        left = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) - len(parts[0])
        while left > 0:
            parts.append(_some(connection))
            left -= len(parts[-1])
        body = b"".join(parts)
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{head[:40]!r}: {body[:200]!r}")
        return body


def _some(connection: socket.socket) -> bytes:
    got = connection.recv(1 << 18)
    if not got:
        raise RuntimeError("the server closed the connection")
    return got


@contextmanager
def server(nodes: int, cards: int, pods: int, *more: str) -> Iterator[int]:
    """The extender in a process of its own; its port."""
    words = [sys.executable, "-m", "bench.extender.served", f"--nodes={nodes}", f"--cards={cards}", f"--pods={pods}"]
    process = subprocess.Popen(
        [*words, "--policies=binpack", *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with status {process.wait()}")
        yield int(line)
    finally:
        process.communicate(timeout=20)


def request(i: int, asked: list[str]) -> bytes:
    return orjson.dumps({"Pod": pod(i), "Nodes": None, "NodeNames": asked})


def timed(work: Any, *arguments: Any) -> tuple[Sample, Any]:
    start = time.monotonic_ns()
    answer = work(*arguments)
    return (start, time.monotonic_ns() - start), answer


def figures(samples: list[Sample], probe: Probe) -> dict[str, Any]:
    """Milliseconds; calls during which the machine stalled stand apart."""
    starts, taken = np.array([s for s, _ in samples]), np.array([t for _, t in samples])
    stalled = probe.stalled(starts, taken)
    quiet, apart = taken[~stalled] / 1e6, taken[stalled] / 1e6
    if not len(quiet):
        quiet = taken / 1e6
    return {
        "p50": round(float(np.percentile(quiet, 50)), 3),
        "p99": round(float(np.percentile(quiet, 99)), 3),
        "calls": len(samples),
        "stalled_ms": [round(float(ms), 2) for ms in apart],
    }


def one_run(caller: Caller, nodes: int, first: int, calls: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    everything = [node_name(n) for n in range(nodes)]
    samples: dict[str, list[Sample]] = {f"{verb}_{n}": [] for verb in ("filter", "prioritize") for n in ("all", "500")}
    samples["floor"] = []
    with Probe() as probe:
        caller.get("/bench/handled")
        for i in range(first, first + calls):
            for label, asked in (
                ("all", chance.sample(everything, nodes)),
                ("500", chance.sample(everything, min(500, nodes))),
            ):
                sample, answer = timed(caller.post, "/filter", request(i, asked))
                samples[f"filter_{label}"].append(sample)
                passed = orjson.loads(answer)["NodeNames"]
                sample, _ = timed(caller.post, "/prioritize", request(i, passed))
                samples[f"prioritize_{label}"].append(sample)
            samples["floor"].append(timed(caller.post, "/bench/nothing", request(i, asked))[0])
        handled = orjson.loads(caller.get("/bench/handled"))
    samples["handler_all"], samples["handler_500"] = handled[::2], handled[1::2]
    return {key: figures(value, probe) for key, value in samples.items()}


def rate(caller: Caller, nodes: int, cards: int, first: int, pods: int) -> dict[str, Any]:
    """Pods one after another through filter, prioritize and bind, all with the same 500 nodes."""
    some = random.Random(2).sample(range(nodes), min(500, nodes))
    asked = [node_name(n) for n in some]
    spent: list[Sample] = []
    binds: list[Sample] = []
    refused = failed = 0
    with Probe() as probe:
        for i in range(first, first + pods):
            body = request(i, asked)
            start = time.monotonic_ns()
            passed = orjson.loads(caller.post("/filter", body))["NodeNames"]
            if not passed:
                refused += 1
                spent.append((start, time.monotonic_ns() - start))
                continue
            body = orjson.dumps({"Pod": pod(i), "Nodes": None, "NodeNames": passed})
            scores = orjson.loads(caller.post("/prioritize", body))
            spent.append((start, time.monotonic_ns() - start))
            best = max(scores, key=lambda entry: entry["Score"])["Host"] if scores else passed[0]
            meta = pod(i)["metadata"]
            bind = {"PodName": meta["name"], "PodNamespace": "bench", "PodUID": meta["uid"], "Node": best}
            sample, answer = timed(caller.post, "/bind", orjson.dumps(bind))
            binds.append(sample)
            failed += bool(orjson.loads(answer)["Error"])
    total = sum(ns for _, ns in spent) / 1e9
    over = overcommitted(json.loads(caller.get("/bench/bound")), nodes, cards)
    return {
        "pods": pods, "bound": pods - refused - failed, "found_no_room": refused, "binds_refused": failed,
        "pods_per_second": round(pods / total, 1), "with_bind_too": round(
            pods / (total + sum(ns for _, ns in binds) / 1e9), 1),
        "filter_and_prioritize": figures(spent, probe), "bind": figures(binds, probe), "over_committed_cards": over,
    }  # fmt: skip


def overcommitted(bound: list[tuple[str, str]], nodes: int, cards: int) -> int:
    """Cards whose records promise more than there is, counted from the records alone."""
    core: Counter[tuple[str, int]] = Counter()
    memory: Counter[tuple[str, int]] = Counter()
    chance = random.Random(1)  # as the server filled its cards
    for n in range(nodes):
        for minor in range(cards):
            before = chance.choice((0, 0, 30, 50, 80, 100))
            core[node_name(n), minor] += before
            if before:
                annotations = held(n, minor, before)["metadata"]["annotations"]
                entry = json.loads(annotations[names.ALLOCATION])["gpu"][0]
                memory[node_name(n), minor] += entry["resources"][names.RESOURCE_MEMORY]
    for node, record in bound:
        for entry in json.loads(record)["gpu"]:
            core[node, entry["minor"]] += entry["resources"][names.RESOURCE_CORE]
            memory[node, entry["minor"]] += entry["resources"][names.RESOURCE_MEMORY]
    most = {node_name(n): (80, 141)[n % 2] * 2**30 for n in range(nodes)}
    return sum(core[at] > 100 or memory[at] > most[at[0]] for at in core)


def measure(nodes: int, cards: int, runs: int, calls: int, pods: int) -> tuple[dict[str, Any], list[Claim]]:
    with server(nodes, cards, 1 + runs * (calls + pods)) as port:
        caller = Caller(port)
        one_run(caller, nodes, 0, 1, seed=0)  # warm: shapes and sets are worked out once
        timings, rates = [], []
        for run in range(runs):
            first = 1 + run * (calls + pods)
            timings.append(one_run(caller, nodes, first, calls, seed=run))
            rates.append(rate(caller, nodes, cards, first + calls, pods))

    def median(key: str, what: str = "p99") -> float:
        return float(np.median([run[key][what] for run in timings]))

    summary = {key: {"p50_ms": median(key, "p50"), "p99_ms": median(key)} for key in timings[0]}
    per_second = float(np.median([r["pods_per_second"] for r in rates]))
    claims = [
        claim("extender.filter", median("handler_all")),
        claim("extender.http.5000", median("filter_all")),
        claim("extender.http.500", median("filter_500")),
        claim("extender.rate", per_second),
        claim("extender.overcommit", max(r["over_committed_cards"] for r in rates)),
    ]
    found = {
        "nodes": nodes, "cards_per_node": cards, "median_of_runs": summary, "pods_per_second": per_second,
        "baseline": {"nothing_over_http_ms": summary["floor"]}, "timing_runs": timings, "rate_runs": rates,
    }  # fmt: skip
    return found, claims
