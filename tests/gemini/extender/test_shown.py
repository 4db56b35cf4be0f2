"""What is shown: cards, holders, who waits and why."""

from __future__ import annotations

import asyncio
import json

from gemini.extender.kinds import NODE, POD
from gemini.extender.promises import Verdict
from gemini.extender.shown import by_reason, figures, state_json, state_parts, summary
from tests.gemini.extender.world import Replica, World, node_object, pod_object


def test_state_tells_cards_holders_waiting_pods_and_why() -> None:
    made = World()
    made.nodes("n1", count=1)
    replica = Replica(made)
    placed = made.put(POD, pod_object("p", gpu_request="0.8"))
    waits = made.put(POD, pod_object("q", gpu_request="0.5"))
    replica.watch()
    asyncio.run(replica.bind(placed, "n1"))
    replica.watch()
    asyncio.run(replica.filter(waits))
    state = state_json(replica.cluster, replica.service.waiting)
    (card,) = state["nodes"][0]["devices"]
    assert (card["used_core"], [p["pod"] for p in card["pods"]]) == (80, ["ns/p"])
    assert (state["waiting"][0]["pod"], "InsufficientCore" in state["waiting"][0]["why"]) == ("ns/q", True)
    numbers = figures(replica.cluster)
    assert {key: numbers[f"core_{key}"] for key in ("all", "promised", "free", "fragmented")} == {
        "all": 100, "promised": 80, "free": 20, "fragmented": 20,
    }  # fmt: skip
    made.put(POD, pod_object("r", gpu_request="0.1"))
    replica.watch()
    assert by_reason(replica.cluster, replica.service.waiting) == {"InsufficientCore": 1, "NotAsked": 1}
    waiting = dict.fromkeys(replica.service.waiting, "the API server does not answer")
    assert by_reason(replica.cluster, waiting) == {"Other": 1, "NotAsked": 1}


def test_summary_counts_nodes_by_reason_with_an_example_of_each() -> None:
    failed = {"n1": ("A", "x"), "n2": ("A", "y"), "n3": ("GroupIncomplete", "1 of 2")}
    assert summary(Verdict([], failed)) == "A on 2 nodes (n1: x); GroupIncomplete on 1 node (1 of 2)"
    assert summary(Verdict([], {}, error="no answer")) == "no answer"
    assert summary(Verdict([], {})) == "no node was asked about"


def test_the_state_in_pieces_is_the_state_and_outlives_nodes_that_go_between_two_of_them() -> None:
    made = World()
    made.nodes("n1", "n2", "n3", count=2)
    replica = Replica(made)
    replica.watch()
    whole = {**state_json(replica.cluster, {}), "ready": True}
    assert json.loads(b"".join(state_parts(replica.cluster, {}, True))) == whole
    pieces = state_parts(replica.cluster, {}, True)
    first = next(pieces)
    replica.cluster.apply(NODE, "DELETED", node_object("n2"))
    given = json.loads(first + b"".join(pieces))
    assert [node["name"] for node in given["nodes"]] == ["n1", "n3"]
    assert json.loads(b"".join(state_parts(Replica(World()).cluster, {}, False)))["nodes"] == []
