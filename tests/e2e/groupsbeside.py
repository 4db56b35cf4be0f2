"""The random groups of manygroups.py, placed by Gemini and then by Volcano on one control plane: how long each takes.

    GEMINI_E2E_VOLCANO=~/src/volcano python -m tests.e2e.groupsbeside --groups 60 [--seed 1]

Volcano is its real scheduler and controllers of a checkout (checkouts.py), with its plugin for topologies and otherwise
as its installation has it. A group is a PodGroup there, whose pods ask for whole cards (nvidia.com/gpu). Nodes and
zones are HyperNodes. Nothing is killed. Each group runs equally long with both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.api import ApiError, Object
from tests.e2e.build import Builder
from tests.e2e.checkouts import Checkout, checkout
from tests.e2e.manygroups import CARDS, NODES, Game, Group, Outcome, System, arrange, cluster, play
from tests.e2e.plane import Plane
from tests.e2e.volcano import NAME, volcano

TOPOLOGIES = {"name": "network-topology-aware", "arguments": {"weight": 10}}
TIERS = {"node": 1, "zone": 2}
GPU = "nvidia.com/gpu"
HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"


def volcanos(plane: Plane, namespace: str) -> System:
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"

    def begin(group: Group) -> None:
        spec: Object = {"minMember": group.size, "queue": "default"}
        if group.level in TIERS:
            spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": TIERS[group.level]}
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        plane.api.post(groups, {**kind, "metadata": {"name": group.name}, "spec": spec})

    def end(group: Group) -> None:
        with contextlib.suppress(ApiError):
            plane.api.delete(f"{groups}/{group.name}")

    return System(_pod, begin, end)


def _pod(group: Group, number: int, cards: int) -> Object:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(cards)}}}
    meta = {"name": f"{group.name}-{number}", "annotations": {"scheduling.k8s.io/group-name": group.name}}
    spec = {"schedulerName": NAME, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": meta, "spec": spec}


@contextlib.contextmanager
def hypernodes(plane: Plane, nodes: list[str]) -> Iterator[None]:
    """One of each node, and of each zone."""
    made: list[tuple[str, int, str, list[str]]] = [(f"only-{node}", 1, "Node", [node]) for node in nodes]
    zones = [made[i : i + 2] for i in range(0, len(made), 2)]
    made += [(f"zone-{i}", 2, "HyperNode", [one[0] for one in zone]) for i, zone in enumerate(zones)]
    for name, tier, kind, members in made:
        spec = {"tier": tier, "members": [{"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members]}
        body = {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": spec,
        }
        plane.api.post(HYPERNODES, body)
    yield
    for name, *_ in made:
        plane.api.delete(f"{HYPERNODES}/{name}")


def play_volcano(plane: Plane, source: Checkout, many: int, seed: int) -> Outcome:
    with (
        plane.namespace("groups") as namespace,
        plane.nodes(NODES, prefix="gang", capacity={GPU: str(CARDS)}) as nodes,
        volcano(plane, source, TOPOLOGIES),
        hypernodes(plane, nodes),
    ):
        arrange(plane, nodes)
        game = Game(plane, namespace, nodes, seed, volcanos(plane, namespace))
        with contextlib.suppress(KeyboardInterrupt):
            game.play(many)
    return game.outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, default=Path("out/e2e/groups"))
    args = parser.parse_args()
    source = checkout("volcano")
    with (
        Plane(Builder().controlplane(), args.logs, flags=["--enable-aggregator-routing=true"]) as plane,
        cluster(plane),
    ):
        for name in ("Gemini", "Volcano"):
            if name == "Gemini":
                outcome = play(plane, args.groups, args.seed, kills=False)
            else:
                outcome = play_volcano(plane, source, args.groups, args.seed)
            print(name, json.dumps(outcome.told(), indent=1), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
