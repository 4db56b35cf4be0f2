"""Claims as the API server holds them, and the slices that they are allocated from."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemini.kube.claim import answered, card_name, grants_of, keeps_promises, read_claim, slice_object, slim_claim
from gemini.placement.model import Device, Grant, Node

GIB = 1 << 30
CARD = Device(0, uuid="GPU-98583A5C", model="NVIDIA H200", memory=80 * GIB, numa="0", pcie="1", slots=16)
NODE = Node("n1", (CARD, Device(1, uuid="GPU-b", memory=GIB), Device(0, "rdma", "mlx5_0")))
OWNER = {"metadata": {"name": "n1", "uid": "u-1"}}
WAITS = {"bindingConditions": ["gemini.io/promised"], "bindingFailureConditions": ["gemini.io/refused"]}


def result(**more: Any) -> dict[str, Any]:
    taken = {"core": "30", "memory": "4Gi"}
    return {
        "request": "card", "driver": "gemini.io", "pool": "n1", "device": "gpu-98583a5c", "shareID": "s-1",
        "consumedCapacity": taken, **WAITS, **more,
    }  # fmt: skip


def claim(*results: dict[str, Any], devices: Any = ()) -> dict[str, Any]:
    metadata = {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "5"}
    status = {"allocation": {"devices": {"results": list(results)}}, "devices": list(devices)}
    return {"metadata": metadata, "spec": {}, "status": status}


def same(given: dict[str, Any]) -> bool:
    """Whether of what is kept of a claim the same is read as of all of it."""
    found, kept = read_claim(given), read_claim(slim_claim(given))
    return kept == (None if found is None else replace(found, object=slim_claim(given)))


def test_of_what_is_kept_of_a_claim_the_same_is_read() -> None:
    theirs = {"driver": "other.io", "pool": "x", "device": "y", "conditions": []}
    half = result(shareID="s-2", device="gpu-b", consumedCapacity={"core": "500m", "memory": "1.5"})
    assert same(claim(result(), theirs, half, devices=[theirs]))
    assert same(claim(result(adminAccess=True)))
    assert same(claim(result(bindingConditions=[]), result(pool="n2")))
    assert same(claim())
    assert same({"metadata": {"uid": "u"}, "status": {"allocation": {"allocationTimestamp": "t"}}})


def test_allocation_is_read_with_its_amounts_and_waits_for_an_answer() -> None:
    found = read_claim(claim(result(), {"driver": "other.io", "pool": "x", "device": "y"}))
    assert found is not None
    assert (found.node, found.key, found.waits) == ("n1", "claim/u/s-1", True)
    assert grants_of(found, NODE) == (Grant("gpu", 0, 30, 4 * GIB),)
    assert grants_of(found, Node("n1", ())) is None


@pytest.mark.parametrize(("promised", "word"), [(True, "promised"), (False, "refused")])
def test_answer_stands_beside_what_other_drivers_said_and_is_read_back(promised: bool, word: str) -> None:
    theirs = {"driver": "other.io", "pool": "x", "device": "y", "conditions": []}
    ready = {"type": "Ready", "status": "True"}
    ours = {"driver": "gemini.io", "pool": "n1", "device": "gpu-98583a5c", "shareID": "s-1", "conditions": [ready]}
    given = claim(result(), devices=[theirs, ours])
    before = copy.deepcopy(given)
    found = read_claim(given)
    assert found is not None
    said = answered(found, promised, "why", "2026-01-01T00:00:00Z")
    assert given == before
    assert same(said)
    assert said["metadata"]["resourceVersion"] == "5"
    assert said["status"]["devices"][0] == theirs
    conditions = {c["type"]: c["status"] for c in said["status"]["devices"][1]["conditions"]}
    assert conditions == {
        "Ready": "True", "gemini.io/promised": str(promised), "gemini.io/refused": str(not promised),
    }  # fmt: skip
    again = read_claim(said)
    assert again is not None
    assert (again.promised, again.refused, again.waits) == (promised, not promised, False)
    assert answered(again, promised, "why", "2026-01-01T00:00:00Z") == said
    assert word in ("promised", "refused")


def test_answer_to_an_earlier_allocation_is_none_to_this_one() -> None:
    found = read_claim(claim(result()))
    assert found is not None
    old = answered(found, True, "", "2026-01-01T00:00:00Z")["status"]["devices"]
    again = read_claim(claim(result(shareID="s-2"), devices=old))
    assert again is not None
    assert again.waits
    assert again.key != found.key


def test_claim_with_several_shares_waits_until_all_are_promised() -> None:
    found = read_claim(
        claim(result(), result(device="gpu-b", shareID="s-2", consumedCapacity={"core": "1", "memory": "0"}))
    )
    assert found is not None
    assert grants_of(found, NODE) == (Grant("gpu", 0, 30, 4 * GIB, 0), Grant("gpu", 1, 1, 0, 1))
    half = answered(found, True, "", "")
    half["status"]["devices"].pop()
    again = read_claim(half)
    assert again is not None
    assert again.waits


def test_parts_of_a_unit_are_rounded_up_and_administrators_hold_nothing() -> None:
    found = read_claim(claim(result(consumedCapacity={"core": "500m", "memory": "1.5"})))
    assert found is not None
    assert [(s.core, s.memory) for s in found.shares] == [(1, 2)]
    both = read_claim(claim(result(), result(adminAccess=True, shareID="s-2", consumedCapacity={})))
    assert both is not None
    assert (both.admin, len(both.shares), both.waits) == (True, 1, True)
    no = answered(both, False, "why", "2026-01-01T00:00:00Z")
    assert [entry["shareID"] for entry in no["status"]["devices"]] == ["s-1", "s-2"], "kube-scheduler waits for each"


def test_claim_that_was_not_asked_to_wait_counts_as_promised() -> None:
    found = read_claim(claim(result(bindingConditions=[])))
    assert found is not None
    assert found.promised


@pytest.mark.parametrize(
    "given", [{}, {"status": 3}, claim(), claim(result(consumedCapacity={"core": "x", "memory": "1"})),
              claim(result(consumedCapacity={"core": "1"})), claim(result(), result(pool="n2"))]
)  # fmt: skip
def test_claim_that_makes_no_sense_is_none_of_ours(given: dict[str, Any]) -> None:
    assert read_claim(given) is None


def test_slice_has_what_others_left_of_each_card_and_waits_for_our_word() -> None:
    made = slice_object(NODE, {0: (60, 8 * GIB, 2), 1: (100, 0, 1)}, OWNER, None)
    assert made is not None
    (device,) = made["spec"]["devices"]  # the second is wholly another's, the third is no card
    assert device["name"] == "gpu-98583a5c"
    assert device["capacity"] == {
        "core": {"value": "40", "requestPolicy": {"default": "100", "validRange": {"min": "0", "step": "1"}}},
        "memory": {"value": str(72 * GIB), "requestPolicy": {"default": str(80 * GIB)}},
        "slots": {"value": "14", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "1"}}},
    }
    assert device["attributes"]["uuid"] == {"string": "GPU-98583A5C"}
    assert keeps_promises(made)
    assert made["spec"]["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}


def test_slice_is_written_again_only_when_devices_have_changed_with_a_new_generation() -> None:
    made = slice_object(NODE, {}, OWNER, None)
    assert made is not None
    stored = {**made, "metadata": {**made["metadata"], "resourceVersion": "9"}}
    assert slice_object(NODE, {}, OWNER, stored) is None
    again = slice_object(NODE, {0: (10, 0, 1)}, OWNER, stored)
    assert again is not None
    assert (again["spec"]["pool"]["generation"], again["metadata"]["resourceVersion"]) == (2, "9")
    sick = Node("n1", (Device(0, uuid="GPU-a", memory=GIB, health=False), Device(1, uuid="GPU-b", cordoned=True)))
    empty = slice_object(sick, {}, OWNER, stored)
    assert empty is not None
    assert empty["spec"]["devices"] == []


def test_server_that_drops_what_makes_a_claim_wait_does_not_keep_promises() -> None:
    made = slice_object(NODE, {}, OWNER, None)
    assert made is not None
    for key in ("bindingConditions", "allowMultipleAllocations"):
        less = copy.deepcopy(made)
        del less["spec"]["devices"][0][key]
        assert not keeps_promises(less)


def test_names_are_labels_of_dns_whatever_the_uuid() -> None:
    assert card_name(Device(3, uuid="GPU-1/2_ä")) == "gpu-1-2"
    assert card_name(Device(3)) == "gpu-3"
    assert len(card_name(Device(3, uuid="x" * 90))) == 63


KEYS = ["metadata", "status", "allocation", "devices", "results", "driver", "pool", "consumedCapacity", "conditions"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["gemini.io", "core", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_nothing_that_json_can_hold_makes_it_raise(value: object) -> None:
    read_claim({"status": {"allocation": {"devices": {"results": [value]}}, "devices": value}})
    read_claim({"metadata": value, "status": value})
