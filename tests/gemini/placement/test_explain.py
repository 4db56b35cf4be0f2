"""Reasons are true, and their numbers are those of the card. Single cases: tests/gemini/cli/test_scenario.py."""

from __future__ import annotations

import pytest

from gemini.placement.explain import format_bytes
from gemini.placement.reasons import BY_DISTANCE, Reason
from tests.gemini.placement.bed import answer, ask, box, cards, gpu, held, node, pod, reason, whole


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (1, "1"), (1024, "1Ki"), (4 * 2**30, "4Gi"), (16276 * 2**20, "16276Mi"), (1500, "1500"), (2**60, "1Ei")],
)
def test_sizes_are_written_exactly_and_shortly(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_a_node_has_the_reason_of_the_card_that_came_nearest() -> None:
    devices = [gpu(0, health=False), gpu(1, model="V100"), gpu(2, model="A100")]
    placed = [held("a", "n1", (2, 80, 0))]
    for says, name in (({"gpu_model": "A100"}, "InsufficientCore"), ({"gpu_model": "H200"}, "ModelMismatch")):
        refused = answer([node("n1", *devices)], ask("p", gpu_request="0.5", **says), placed=placed)
        assert reason(refused, "n1") == name
    assert BY_DISTANCE.index(Reason.MODEL_MISMATCH) < BY_DISTANCE.index(Reason.INSUFFICIENT_CORE)


def test_memory_asked_by_itself_is_named_before_core() -> None:
    placed = [held("a", "n1", (0, 80, "15Gi"))]
    by_itself = answer([cards("n1", 1)], ask("p", gpu_request="0.5", gpu_memory="2Gi"), placed=placed)
    with_share = answer([cards("n1", 1)], ask("p", gpu_request="0.5"), placed=placed)
    assert (reason(by_itself, "n1"), reason(with_share, "n1")) == ("InsufficientMemory", "InsufficientCore")
    text = "core: 20 free of 100, 50 asked; memory: 1Gi free of 16Gi, 8Gi asked"
    assert with_share["refused"]["n1"]["devices"] == {"0": text}


def test_too_few_cards_are_said_by_their_number() -> None:
    refused = answer([cards("n1", 2)], whole("p", 3))["refused"]["n1"]
    assert refused == {"reason": "InsufficientDevices", "message": "the node has 2 cards, 3 asked", "devices": {}}


def test_the_container_that_does_not_fit_is_named() -> None:
    refused = answer([cards("n1", 1)], pod("p", box("a", gpu=60), box("b", gpu=60)))["refused"]["n1"]
    assert refused["message"] == "b: 0 of 1 card can take the ask, 1 asked"
    assert refused["devices"]["0"].startswith("core: 40 free of 100, 60 asked")


def test_a_card_without_a_known_switch_cannot_give_joint_devices() -> None:
    nodes = [node("n1", gpu(0), gpu(1, pcie="1"), {"type": "rdma", "minor": 0, "pcie": "0"})]
    refused = answer(nodes, ask("p", gpu_request="0.5", joint="rdma"))["refused"]["n1"]
    assert refused["reason"] == "JointUnavailable"
    assert refused["devices"] == {
        "0": "joint: its PCIe switch is unknown",
        "1": "joint: PCIe switch 1 has not rdma 100% free",
    }
