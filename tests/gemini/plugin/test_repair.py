"""Two pods exchange their cards: in an order that makes no card look freer than it is, and can be taken up again."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from gemini.kube import names
from gemini.plugin.claims import PodClaims, claims_of
from gemini.plugin.repair import begun, plan, resume
from gemini.plugin.slots import CORE, Kind, gpushare
from tests.gemini.plugin.pods import bound, cards, record

KNOWN = cards(3)


def claims(pod: dict[str, Any], kind: Kind = CORE) -> PodClaims:
    found = claims_of(pod, kind, KNOWN)
    assert found is not None
    return found


def carried_out(pods: dict[str, dict[str, Any]], steps: Any, upto: int = 99) -> None:
    """The writes, one after the other; at each moment somebody is written down for each of the two cards."""
    for step in steps[:upto]:
        annotations = pods[step.pod.name]["metadata"]["annotations"]
        annotations.update({key: value for key, value in step.annotations.items() if value is not None})
        for key in [key for key, value in step.annotations.items() if value is None]:
            annotations.pop(key, None)
        now = Counter(uuid for pod in pods.values() for uuid in record(pod))
        assert now["GPU-0"] >= 1 <= now["GPU-1"], now


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_equal_pods_exchange_their_cards_also_when_whoever_does_it_is_interrupted(writes: int) -> None:
    pods = {"a": bound("a", KNOWN, [0], gpu_request="0.5"), "b": bound("b", KNOWN, [1], gpu_request="0.5")}
    pods["c"] = bound("c", KNOWN, [1], gpu_request="0.4")
    first = plan(claims(pods["a"]), ["GPU-1"], [claims(pods["b"])])
    assert len(first.steps) == 3
    carried_out(pods, first.steps, writes)
    a = claims(pods["a"])
    if partner := begun(a):
        assert (writes, partner) in ((1, "uid-b"), (2, "uid-b"))
        b = claims(pods["b"])
        carried_out(pods, resume(a, ["GPU-1"], b, [b]).steps)
    elif record(pods["a"]) != ["GPU-1"]:
        carried_out(pods, plan(a, ["GPU-1"], [claims(pods["b"])]).steps)
    assert [record(pods[name]) for name in "abc"] == [["GPU-1"], ["GPU-0"], ["GPU-1"]]
    assert not begun(claims(pods["a"]))


def test_an_exchange_whose_partner_is_gone_keeps_what_was_given() -> None:
    pods = {"a": bound("a", KNOWN, [0], gpu_request="0.5")}
    other = claims(bound("b", KNOWN, [1], gpu_request="0.5"))
    (step,) = plan(claims(pods["a"]), ["GPU-1"], [other]).steps[:1]
    pods["a"]["metadata"]["annotations"].update(step.annotations)
    assert record(pods["a"]) == ["GPU-0", "GPU-1"]
    (last,) = resume(claims(pods["a"]), ["GPU-1"], None, []).steps
    pods["a"]["metadata"]["annotations"].update(last.annotations)
    assert record(pods["a"]) == ["GPU-1"]


def test_a_pod_that_does_not_agree_is_not_written_whoever_names_it() -> None:
    """A mark that somebody wrote on a pod of his own: the victim has just the cards that its record names."""
    victim = claims(bound("v", KNOWN, [1], gpu_request="0.5"))
    begun_by_hand = {names.EXCHANGE: "uid-v"}
    same_card = bound("a", KNOWN, [1], gpu_request="0.5")
    same_card["metadata"]["annotations"] |= begun_by_hand
    found = resume(claims(same_card), ["GPU-1"], victim, [])
    assert (found.steps, "by its mark" in found.reason) == ((), True)
    both = {"gpu": [entry for m in (0, 1) for entry in claims(bound("a", KNOWN, [m], gpu_request="0.5")).record["gpu"]]}
    forged = bound("a", KNOWN, [0], gpu_request="0.5")
    forged["metadata"]["annotations"] |= {**begun_by_hand, names.ALLOCATION: json.dumps(both)}
    (step,) = resume(claims(forged), ["GPU-1"], victim, []).steps
    forged["metadata"]["annotations"].update(step.annotations)
    assert (step.pod.name, record(forged), step.annotations[names.EXCHANGE]) == ("a", ["GPU-0"], None)
    smaller = claims(bound("v", KNOWN, [1], gpu_request="0.4"))
    forged["metadata"]["annotations"] |= {**begun_by_hand, names.ALLOCATION: json.dumps(both)}
    assert [s.pod.name for s in resume(claims(forged), ["GPU-1"], smaller, [smaller]).steps] == ["a"]
    assert resume(claims(forged), ["GPU-2"], victim, [victim]).reason.endswith("does not name")


def test_amounts_go_with_the_cards() -> None:
    a, b = bound("a", KNOWN, [0], gpu_request="0.5"), bound("b", KNOWN, [1], gpu_request="0.5")
    steps = plan(claims(a), ["GPU-1"], [claims(b)]).steps
    written = steps[-1].annotations[names.ALLOCATION]
    assert written is not None
    assert json.loads(written) == json.loads(b["metadata"]["annotations"][names.ALLOCATION])


def test_gpushares_own_word_for_the_card_is_changed_too() -> None:
    mib = gpushare("MiB")
    a, b = (bound(n, KNOWN, [m], limits={names.ALIYUN_GPU_MEM: "1024"}) for m, n in enumerate("ab"))
    steps = plan(claims(a, mib), ["GPU-1"], [claims(b, mib)]).steps
    assert [step.annotations[names.ALIYUN_INDEX] for step in steps] == ["0,1", "0", "1"]


@pytest.mark.parametrize(
    "other",
    [
        bound("b", KNOWN, [1], gpu_request="0.4"),
        bound("b", KNOWN, [2], gpu_request="0.5"),
        bound("b", KNOWN, [1], gpu_request="0.5", gpu_uuid="GPU-1"),
        bound("b", KNOWN, [1], gpu_request="0.5", gpu_limit="0.6"),
        bound("b", KNOWN, [1], gpu_request="0.5", gpu_memory="1Gi"),
    ],
    ids=["other-share", "other-card", "wants-its-card", "other-limit", "other-memory"],
)
def test_pods_that_are_not_interchangeable_keep_their_cards(other: dict[str, Any]) -> None:
    found = plan(claims(bound("a", KNOWN, [0], gpu_request="0.5")), ["GPU-1"], [claims(other)])
    assert not found.steps
    assert found.reason.startswith("was given GPU-1, the record says GPU-0; no other pod")


def test_a_pod_of_several_tenants_is_not_exchanged() -> None:
    many = bound("a", KNOWN, None, ("x", "y"), gpu_request__x="0.5", gpu_request__y="0.5")
    assert "several tenants" in plan(claims(many), ["GPU-2"], []).reason
