"""What kubectl gemini shows: cards and holders, what is fragmented, who waits and why, whose share nobody holds."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.cli.kubectl_view import picture, tables
from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.extender.state import Cluster
from gemini.kube.device import write_device
from tests.gemini.extender.test_state import bound
from tests.gemini.extender.world import cards, node_object, pod_object

Object = dict[str, Any]


def cluster(*pods: Object) -> Cluster:
    """n1 and n2 with two cards each; one of n2's is unhealthy."""
    made = Cluster()
    for name in ("n1", "n2"):
        made.apply(NODE, "ADDED", node_object(name))
        device = write_device(cards(name, model="H200"))
        device["spec"]["devices"][1]["health"] = name == "n1"
        made.apply(DEVICE, "ADDED", device)
    for pod in pods:
        made.apply(POD, "ADDED", pod)
    return made


def confirmed(pod: Object) -> Object:
    pod["metadata"]["annotations"]["gemini.io/assigned"] = "true"
    return pod


def test_nodes_are_summed_up_by_the_state_of_their_cards() -> None:
    given = picture(cluster(confirmed(bound("p", "n1", core=60)), confirmed(bound("q", "n2", core=100))))
    one, two = given["nodes"]
    keys = ("cards", "idle", "shared", "full", "out_of_service", "free_core", "largest_free_core", "fragmented")
    assert [one[key] for key in keys] == [2, 1, 1, 0, 0, 140, 100, 0.286]
    assert [two[key] for key in keys] == [2, 0, 0, 1, 1, 0, 0, 0.0]
    assert (given["total"]["used_core"], given["total"]["free_core"], given["not_enforced"]) == (160, 140, [])
    first = one["devices"][0]
    assert (first["state"], [(pod["pod"], pod["core"]) for pod in first["pods"]]) == ("shared", [("ns/p", 60)])


def test_one_node_shows_its_cards_with_their_holders() -> None:
    given = picture(cluster(confirmed(bound("p", "n1", core=20)), confirmed(bound("q", "n1", core=30))), node="n1")
    assert [entry["name"] for entry in given["nodes"]] == ["n1"]
    lines = [line.split() for line in tables(given, cards=True).splitlines()]
    assert lines[1][:5] == ["n1", "gpu/0", "H200", "shared", "50/100%"]
    assert [word for line in lines for word in line if word.startswith("ns/")] == ["ns/p", "ns/q"]


def test_a_pod_that_waits_says_what_it_asks_and_why_no_card_will_do() -> None:
    big = pod_object("big", gpu_request="0.5", gpu_memory="64Gi")
    given = picture(cluster(big, pod_object("bad", gpu_request="1.5"), pod_object("plain")))
    waits = {entry["pod"]: entry for entry in given["waiting"]}
    assert set(waits) == {"ns/big", "ns/bad"}
    assert waits["ns/big"]["asks"] == "gpu 50% 64Gi"
    assert "InsufficientMemory on 2 nodes" in waits["ns/big"]["why"]
    assert "16Gi free of 16Gi, 64Gi asked" in waits["ns/big"]["why"]
    assert "gemini.io/gpu-request: 1.5 is above 1" in waits["ns/bad"]["why"]


def test_a_pod_with_room_says_what_the_scheduler_says() -> None:
    pod = pod_object("p", gpu_request="0.5")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes: no cpu"}]
    group = pod_object("g", gpu_request="0.5", pod_group="g", pod_group_size="2")
    waits = {entry["pod"]: entry["why"] for entry in picture(cluster(pod, group))["waiting"]}
    assert waits["ns/p"] == "there is room for it on 2 nodes; the scheduler says: 0/2 nodes: no cpu"
    assert "group g has 1 of its 2 pods" in waits["ns/g"]


def test_only_pods_of_the_namespace_are_listed_where_one_is_given() -> None:
    made = cluster(pod_object("big", gpu_request="0.5", gpu_memory="64Gi"))
    assert (len(picture(made, namespace="ns")["waiting"]), picture(made, namespace="other")["waiting"]) == (1, [])


def test_shares_that_nobody_holds_are_named_with_the_reason() -> None:
    unrecorded = bound("a", "n1")
    del unrecorded["metadata"]["annotations"]["gemini.io/allocation"]
    told = confirmed(bound("c", "n1", core=10))
    event = said_of("c", "it set LD_PRELOAD itself")
    made = cluster(unrecorded, bound("b", "n1", core=20), told, confirmed(bound("d", "n1", core=10)))
    why = {entry["pod"]: entry["why"] for entry in picture(made, [event])["not_enforced"]}
    assert set(why) == {"ns/a", "ns/b", "ns/c"}
    assert "did not ask the extender" in why["ns/a"]
    assert "has not confirmed" in why["ns/b"]
    assert why["ns/c"] == "it set LD_PRELOAD itself"


def about(kind: str = "Pod", namespace: str = "ns", name: str = "c") -> Object:
    return {"kind": kind, "namespace": namespace, "name": name, "uid": "uid-c"}


def said_of(pod: str, message: str, **changed: Any) -> Object:
    whole = {"metadata": {"namespace": "ns"}, "reason": "ShareNotEnforced", "involvedObject": about(name=pod)}
    return {**whole, "source": {"component": "gemini-device-plugin"}, "message": message, **changed}


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {"namespace": "mallory"}},
        {"metadata": {"namespace": "mallory"}, "involvedObject": about(namespace="mallory")},
        {"involvedObject": about(name="other")},
        {"involvedObject": about(kind="Job")},
        {"source": {"component": "mallory"}},
        {"source": "gemini-device-plugin"},
        {"reason": "Mallory"},
        {"involvedObject": None, "metadata": None},
    ],
)  # fmt: skip
def test_what_others_say_of_a_pods_share_is_not_believed(changed: Object) -> None:
    made = cluster(confirmed(bound("c", "n1", core=10)))
    assert picture(made, [said_of("c", "lie", **changed)])["not_enforced"] == []
    assert [entry["why"] for entry in picture(made, [said_of("c", "true")])["not_enforced"]] == ["true"]


def test_no_cell_moves_the_cursor_ends_its_line_or_turns_it_round() -> None:
    ill = "\x1b[2J\x1b]0;owned\x07\nns/fake   -   gpu 1%\r\u202egnp\u2028\x9b1m\udc80"
    waits = pod_object("big", gpu_request="0.5", gpu_memory="64Gi")
    waits["metadata"]["creationTimestamp"] = ill
    made = cluster(waits, confirmed(bound("c", "n1", core=10)))
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1", model=ill)))
    given = picture(made, [said_of("c", ill)])
    for text in (tables(given, cards=False), tables(given, cards=True)):
        assert "\\u001b[2J" in text
        assert "\\n" in text
        assert all(line.isprintable() for line in text.split("\n"))
        assert not any(line.startswith("ns/fake") for line in text.splitlines())
        assert text.encode()


def test_tables_name_every_part() -> None:
    made = cluster(pod_object("big", gpu_request="0.5", gpu_memory="64Gi"), bound("b", "n1"))
    text = tables(picture(made), cards=False)
    assert [line.split()[0] for line in text.splitlines() if line] == [
        "NODE", "n1", "n2", "all", "WAITING", "ns/big", "SHARE", "ns/b"
    ]  # fmt: skip
