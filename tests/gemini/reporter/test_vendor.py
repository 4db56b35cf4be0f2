"""What other plugins gave out, from checkpoints as kubelets write them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gemini.kube import names
from gemini.kube.checkpoint import BadCheckpoint, Entry, read_checkpoint
from gemini.kube.kubelet_api import v1beta1
from gemini.reporter.inventory import Card
from gemini.reporter.sysfs import Place
from gemini.reporter.vendor import cards_of, published

CARDS = [Card(i, i + 4, f"GPU-{i}", "H200", 1 << 30, "", Place()) for i in range(3)]
UID = "fa8983dc-bb76-4eeb-8dcc-556fbd44d7ce"
ALL = [card.uuid for card in CARDS]


def reply(**fields: Any) -> bytes:
    return bytes(v1beta1.ContainerAllocateResponse(**fields).SerializeToString())


def entry(*ids: str, resource: str = "nvidia.com/gpu", answer: bytes = b"", pod: str = UID) -> Entry:
    return Entry(pod, "c", resource, ids, answer)


def pod(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


def checkpoint(ids: Any) -> str:
    answer = base64.b64encode(reply(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-0"})).decode()
    given = {"PodUID": UID, "ContainerName": "cuda-container", "ResourceName": "nvidia.com/gpu", "DeviceIDs": ids}
    return json.dumps({"Data": {"PodDeviceEntries": [{**given, "AllocResp": answer}], "RegisteredDevices": {}}})


@pytest.mark.parametrize("ids", [["GPU-0"], {"-1": ["GPU-0"]}])
def test_B18_example_is_read_and_published_in_the_checkpoints_own_words(ids: Any) -> None:
    entries = read_checkpoint(checkpoint(ids))
    (said,) = published(entries, CARDS, {UID: pod()}, frozenset())
    assert {key: said[key] for key in said if key != "allocResp"} == {
        "podUID": UID, "containerName": "cuda-container", "resourceName": "nvidia.com/gpu", "deviceIDs": ["GPU-0"],
    }  # fmt: skip
    told = v1beta1.ContainerAllocateResponse.FromString(base64.b64decode(said["allocResp"]))
    assert told.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"Data": 3}', '{"Data": {"PodDeviceEntries": [{}]}}', "[" * 100_000, "null"]
)
def test_text_that_is_no_checkpoint_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadCheckpoint) as caught:
        read_checkpoint(text)
    assert "\n" not in str(caught.value)


def test_checkpoint_of_a_kubelet_that_gave_out_nothing_is_empty() -> None:
    assert read_checkpoint('{"Data": {"PodDeviceEntries": null, "RegisteredDevices": {}}, "Checksum": 1}') == []


@pytest.mark.parametrize(
    ("given", "cards"),
    [
        (entry("GPU-1"), ["GPU-1"]),
        (entry("GPU-1::3", "GPU-1::4"), ["GPU-1"]),  # replicas, where cards are time-sliced
        (entry("GPU-2-_-7", resource="aliyun.com/gpu-mem"), ["GPU-2"]),
        (entry("0", "2", answer=reply(envs={"NVIDIA_VISIBLE_DEVICES": "0,2"})), ["GPU-0", "GPU-2"]),
        (entry("x", answer=reply(cdi_devices=[{"name": "nvidia.com/gpu=GPU-1"}])), ["GPU-1"]),
        (entry("x", answer=reply(devices=[{"host_path": "/dev/nvidia6"}, {"host_path": "/dev/nvidiactl"}])), ["GPU-2"]),
        (entry("x", answer=reply(envs={"NVIDIA_VISIBLE_DEVICES": "all"})), ALL),
        (entry("x"), ALL),  # nothing tells: it may be any
        (entry("x", answer=b"\xff\xff"), ALL),
        (entry("MIG-1"), []),
        (entry("x", resource="nvidia.com/mig-1g.10gb"), []),
        (entry("x", resource="example.com/camera"), []),
        (entry("GPU-0", resource="example.com/share"), ["GPU-0"]),
        (entry("x", resource="example.com/share", answer=reply(envs={"NVIDIA_VISIBLE_DEVICES": "1"})), ["GPU-1"]),
    ],
)
def test_cards_are_found_whatever_a_plugin_calls_them(given: Entry, cards: list[str]) -> None:
    assert cards_of(given, CARDS) == cards


def test_B18_pods_of_our_own_scheduler_are_left_out() -> None:
    ours = entry("GPU-0::1", resource="gemini.io/gpu-core")
    assert published([ours], CARDS, {UID: pod(**{names.ALLOCATION: "{}"})}, None) == []


def test_B18_card_that_nvidias_plugin_gave_to_a_pod_with_our_record_is_published() -> None:
    (said,) = published([entry("GPU-0")], CARDS, {UID: pod(**{names.ALLOCATION: "{}"})}, None)
    assert said["deviceIDs"] == ["GPU-0"]


def test_B20_running_pod_without_annotation_is_adopted_from_its_own_allocation_record() -> None:
    answer = reply(envs={"NVIDIA_VISIBLE_DEVICES": "2"})
    (said,) = published([entry("slot-7", resource="gemini.io/gpu-core", answer=answer)], CARDS, {UID: pod()}, None)
    assert said["deviceIDs"] == ["GPU-2"]
    assert said["podUID"] == UID


def test_entry_of_a_pod_that_has_ended_is_left_out_unless_the_kubelet_shows_its_devices_or_does_not_answer() -> None:
    assert published([entry("GPU-0")], CARDS, {}, frozenset()) == []
    assert len(published([entry("GPU-0")], CARDS, {}, frozenset({"GPU-0"}))) == 1  # a static pod has another uid here
    assert len(published([entry("GPU-0")], CARDS, {}, None)) == 1


def test_order_is_fixed_and_a_vast_answer_is_not_repeated() -> None:
    one, two = entry("GPU-0", pod="b", answer=b"x" * 5000), entry("GPU-1", pod="a")
    said = published([one, two], CARDS, {"a": pod(), "b": pod()}, None)
    assert [(s["podUID"], s["allocResp"]) for s in said] == [("a", ""), ("b", "")]
    assert said == published([two, one], CARDS, {"a": pod(), "b": pod()}, None)
