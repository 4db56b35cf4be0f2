"""Another tenant's pods beside a namespace with hundreds or thousands of pods in groups that find no room.

The crowd's pods are asked about one after another without end, as by a kube-scheduler whose queue is full of them, and
once a second one of them is made anew. Each 20 ms a pod of the other tenant's is filtered, given scores and bound, on a
connection of its own. What it waits for is the extender's one loop; its calls alone, without a crowd, stand beside it.
A namespace may have a tenth of the loop's time, in looks as long as its groups are large: nine of ten calls are judged.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import orjson

from bench.extender.calls import Caller, request, server
from bench.extender.served import CROWDS, crowded, node_name, pod

EACH_SECONDS = 0.02
WAITED_MS = 5.0  # what a call may wait for beyond those of a run without a crowd, in nine of ten


def one_run(crowd: str, pods: int, nodes: int, seconds: float) -> dict[str, Any]:
    """`pods`: of the crowd; 0: there is none."""
    many = int(seconds / EACH_SECONDS)
    with server(nodes, 8, many, f"--crowd={crowd}", f"--crowd-pods={pods}") as port:
        asked = [node_name(n) for n in range(nodes)]
        ends, calls, longest = time.monotonic() + seconds, [0], [0.0]

        def crowding() -> None:
            caller, remade = Caller(port), time.monotonic()
            bodies = [
                orjson.dumps({"Pod": crowded(i, crowd, pods), "Nodes": None, "NodeNames": asked}) for i in range(pods)
            ]
            while time.monotonic() < ends:
                began = time.monotonic()
                caller.post("/filter", bodies[calls[0] % pods])
                longest[0] = max(longest[0], time.monotonic() - began)
                calls[0] += 1
                if began - remade >= 1:
                    caller.get("/bench/another")
                    remade = began

        thread = threading.Thread(target=crowding) if pods else None
        if thread is not None:
            thread.start()
        taken = _tenant(Caller(port), asked, many, ends)
        if thread is not None:
            thread.join()
    return {
        **{f"{verb}_ms": _figures(found) for verb, found in taken.items()},
        "crowds_calls": calls[0], "crowds_longest_ms": round(longest[0] * 1e3, 1),
    }  # fmt: skip


def _tenant(caller: Caller, asked: list[str], many: int, ends: float) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {"filter": [], "prioritize": [], "bind": []}

    def call(verb: str, body: bytes) -> Any:
        began = time.monotonic()
        answer = orjson.loads(caller.post(f"/{verb}", body))
        taken[verb].append((time.monotonic() - began) * 1e3)
        return answer

    for i in range(many):
        due = time.monotonic() + EACH_SECONDS
        if due > ends:
            break
        passed = call("filter", request(i, asked))["NodeNames"]
        call("prioritize", orjson.dumps({"Pod": pod(i), "Nodes": None, "NodeNames": passed}))
        meta = pod(i)["metadata"]
        bind = {"PodName": meta["name"], "PodNamespace": "bench", "PodUID": meta["uid"], "Node": passed[0]}
        call("bind", orjson.dumps(bind))
        time.sleep(max(0.0, due - time.monotonic()))
    return taken


def _figures(taken: list[float]) -> dict[str, Any]:
    return {
        **{f"p{part}": round(float(np.percentile(taken, part)), 2) for part in (50, 90, 99)},
        "longest": round(max(taken), 1), "calls": len(taken),
    }  # fmt: skip


def measure(pods: int, nodes: int, seconds: float) -> tuple[dict[str, Any], dict[str, bool]]:
    """`held`: by name of a crowd whether the other tenant's calls wait for it no longer than is said above."""
    alone = one_run("one group", 0, nodes, seconds)
    found = {crowd: one_run(crowd, pods, nodes, seconds) for crowd in CROWDS}
    most = {verb: alone[verb]["p90"] + WAITED_MS for verb in ("filter_ms", "prioritize_ms", "bind_ms")}
    held = {
        f"beside {crowd}": all(one[verb]["p90"] <= limit for verb, limit in most.items())
        for crowd, one in found.items()
    }
    return {"nodes": nodes, "crowds_pods": pods, "without": alone, "beside": found}, held
