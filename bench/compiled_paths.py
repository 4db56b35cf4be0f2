"""What are the compiled code and the extender's fast paths worth? Each with it and without, in turns.

    python -m bench.compiled_paths [--seconds 3] [--runs 5] [--case NAME]

Of the daemon: what eight busy tenants cost of a core, and the gap at a hand-over, with its core compiled by mypyc and
read as it stands. Of the extender: what it takes to answer filter about 5,000 nodes of 8 cards, and prioritize about
those that passed, from body to body, in this process. Each pod is bound before the next comes, and 500 of the nodes are
asked about as kube-scheduler does. The pods are of six shares. bench/mechanisms.py has the scheduler's mechanisms.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import orjson

from bench import handover, tenants
from bench.arms import GEMINI, WITHOUT, Runs
from bench.bed import ROOT, Bed
from bench.cases import run_cases
from bench.extender.served import Store, held, node_name, node_objects, pod
from bench.goals import Claim
from gemini.extender import codec
from gemini.extender.app import App
from gemini.extender.kinds import DEVICE, KINDS, NODE, POD
from gemini.extender.service import Service
from gemini.extender.state import Cluster
from gemini.placement import allocate, standing
from gemini.placement.shape import Bools, Ints
from gemini.placement.standing import Standing, Standings
from gemini.placement.written import Written

NODES, CARDS, SOME = 5_000, 8, 500
NUMBERS = itertools.count()  # of pods: none comes twice
PACKAGES = ("gemini", "scheduler_backend", "libhook")
FIGURES = {  # of what less is better
    "core": "8 busy tenants, % of a core",
    "gap": "gap at a hand-over, us",
    "filter": "filter of 5,000 names, p50, ms",
    "filter_worst": "filter of 5,000 names, p99, ms",
    "some": "filter of 500 names and prioritize, p50, ms",
}


class Case(NamedTuple):
    measure: Callable[[float], dict[str, float]]
    without: Callable[[], contextlib.AbstractContextManager[Any]]


# ---- the daemon


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    """Daemons run from a copy of the tree in which nothing of Python is compiled."""
    with tempfile.TemporaryDirectory(prefix="gemini-interpreted-") as folder:
        tree = Path(folder)
        for package in PACKAGES:
            ignored = shutil.ignore_patterns("*.cpython-*.so", "__pycache__", "lib")
            shutil.copytree(ROOT / package, tree / package, ignore=ignored, symlinks=True)
        (tree / "libhook" / "lib").symlink_to(ROOT / "libhook" / "lib")
        with patch.object(Bed, "around", ("env", "-C", folder, f"PYTHONPATH={folder}")):
            yield


def daemon(seconds: float) -> dict[str, float]:
    return {
        "core": float(tenants.busy(GEMINI, 8, seconds)["of_a_core_percent"]),
        "gap": float(handover.measure(GEMINI, seconds)["gap_us"]["p50"]),
    }


# ---- the extender


@cache
def filled() -> tuple[App, Store]:
    """A cluster of which half of all core is held, as bench.extender has it."""
    cluster = Cluster(("binpack",))
    pairs = [node_objects(n, CARDS) for n in range(NODES)]
    cluster.replace(NODE, [node for node, _ in pairs])
    cluster.replace(DEVICE, [device for _, device in pairs])
    chance = random.Random(1)
    for n in range(NODES):
        for minor in range(CARDS):
            if core := chance.choice((0, 0, 30, 50, 80, 100)):
                cluster.apply(POD, "ADDED", held(n, minor, core))
    store = Store(cluster)
    synced = {kind: asyncio.Event() for kind in KINDS}
    return App(Service(cluster, store, time.monotonic_ns, time.time_ns, None), None, synced), store


async def asked(seconds: float) -> dict[str, float]:
    app, store = filled()
    chance, everything = random.Random(1), [node_name(n) for n in range(NODES)]
    whole: list[float] = []
    some: list[float] = []
    began = time.monotonic()

    def timed(verb: Callable[[bytes], Any], given: Any, names: Sequence[str]) -> tuple[float, Any]:
        body = orjson.dumps({"Pod": given, "Nodes": None, "NodeNames": names})
        start = time.perf_counter_ns()
        answer = verb(body)
        return (time.perf_counter_ns() - start) / 1e6, orjson.loads(answer)

    while time.monotonic() < began + seconds:
        given = orjson.loads(orjson.dumps(pod(next(NUMBERS))))
        store.create(given)
        ms, _ = timed(app.filter, given, chance.sample(everything, NODES))
        whole.append(ms)
        first, answer = timed(app.filter, given, chance.sample(everything, SOME))
        second, _ = timed(app.prioritize, given, answer["NodeNames"])
        some.append(first + second)
        meta = given["metadata"]
        names = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        await app.bind(orjson.dumps({**names, "Node": answer["NodeNames"][0]}))
        await asyncio.sleep(0)  # the watch has seen it
    for bound in store.bound:
        store.pods.pop(bound["metadata"]["name"])
        app.service.cluster.apply(POD, "DELETED", bound)
    store.bound.clear()
    worst = float(np.percentile(whole, 99))
    return {"filter": float(np.median(whole)), "filter_worst": worst, "some": float(np.median(some))}


def extender(seconds: float) -> dict[str, float]:
    return asyncio.run(asked(seconds))


def best_by_arrays(self: Standing, possible: Bools, ordinals: Ints) -> int:
    """What libhook/placement/standing.c does, in operations on arrays."""
    fit = ordinals[possible.take(ordinals)]
    if len(fit):
        self._best[0] = fit[np.lexsort((fit, *self._numbers[::-1, fit]))[0]]
    return len(fit)


@contextlib.contextmanager
def all_of(*patches: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        cluster = filled()[0].service.cluster
        cluster.standings = Standings(cluster.allocator)
        yield


def names_as_strings() -> contextlib.AbstractContextManager[Any]:
    return all_of(patch.object(codec, "MANY", sys.maxsize), patch.object(Written, "of", lambda names: None))


def nothing_kept() -> contextlib.AbstractContextManager[Any]:
    def of(self: Standings, ask: Any) -> Standing:
        fresh = Standing(self._allocator, ask)
        fresh.refresh()
        return fresh

    return all_of(patch.object(Standings, "of", of))


def all_nodes_anew() -> contextlib.AbstractContextManager[Any]:
    return all_of(patch.object(standing, "FEW", -1))


def by_the_scan() -> contextlib.AbstractContextManager[Any]:
    return all_of(*(patch.object(module, "single_of", lambda ask, policies: None) for module in (standing, allocate)))


def best_found_by_arrays() -> contextlib.AbstractContextManager[Any]:
    return all_of(patch.object(Standing, "_best_of", best_by_arrays))


CASES: dict[str, Case] = {
    "mypyc": Case(daemon, interpreted),
    "names read as they are written (names.c)": Case(extender, names_as_strings),
    "the best of many nodes (standing_best)": Case(extender, best_found_by_arrays),
    "simple asks card by card (standing_look)": Case(extender, by_the_scan),
    "how nodes stand to a kind of ask is kept": Case(extender, nothing_kept),
    "few changed nodes are looked at one by one": Case(extender, all_nodes_anew),
}


def measure(case: Case, arm: str, seconds: float) -> dict[str, Any]:
    with case.without() if arm == WITHOUT else contextlib.nullcontext():
        return dict(case.measure(seconds))


def judge(name: str, case: Case, runs: Runs) -> Iterable[Claim]:
    """No goal says how much is enough: the table is for whoever decides what stays."""
    for figure in runs[GEMINI][0]:
        own, off = ([run[figure] for run in runs[arm]] for arm in (GEMINI, WITHOUT))
        apart = max(max(found) - min(found) for found in (own, off))
        better = float(np.median(off)) - float(np.median(own))
        figures = f"{np.median(own):8.3f} {np.median(off):8.3f}  better by {better:8.3f}, runs lie {apart:.3f} apart"
        print(f"{name:44} {FIGURES[figure]:46} {figures}", file=sys.stderr, flush=True)
    return ()


def main() -> int:
    question = "what are the compiled code and the extender's fast paths worth?"
    return run_cases(__doc__, question, CASES, (GEMINI, WITHOUT), measure, judge, seconds=3.0)


if __name__ == "__main__":
    sys.exit(main())
