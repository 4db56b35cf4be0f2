"""The device-plugin API over real sockets: the tests' kubelet on one side, a toy plugin on the other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from gemini.kube.kubelet_api import stub, v1, v1beta1
from tests.e2e.fake_kubelet import CHECKPOINT, AdmissionError, FakeKubelet
from tests.e2e.toy_plugin import RESOURCE, ToyPlugin

CARDS = [f"card-{index}" for index in range(4)]


def pod(uid: str, *amounts: int, init: tuple[int, ...] = ()) -> dict[str, Any]:
    def container(name: str, amount: int) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {RESOURCE: str(amount), "cpu": "1"}}}

    return {
        "metadata": {"uid": uid, "name": f"pod-{uid}", "namespace": "default"},
        "spec": {
            "initContainers": [container(f"init-{index}", amount) for index, amount in enumerate(init)],
            "containers": [container(f"main-{index}", amount) for index, amount in enumerate(amounts)],
        },
    }


@pytest.fixture
def kubelet() -> Iterator[FakeKubelet]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as root, FakeKubelet(Path(root)) as started:  # a short path
        yield started


@pytest.fixture
def plugin(kubelet: FakeKubelet) -> Iterator[ToyPlugin]:
    toy = ToyPlugin(kubelet.plugin_folder, CARDS)
    toy.start()
    toy.register()
    kubelet.wait_devices(RESOURCE, len(CARDS))
    yield toy
    toy.stop()


def cards(kubelet: FakeKubelet, uid: str, container: str = "main-0") -> set[str]:
    return set(kubelet.held(uid, container)[RESOURCE].devices)


def test_wire_format_is_the_public_apis() -> None:
    """Bytes by hand from the .proto: field 1 string, field 3 message, a map entry as key 1 and value 2."""
    device = v1beta1.Device(ID="a", health="H", topology=v1beta1.TopologyInfo(nodes=[v1beta1.NUMANode(ID=1)]))
    assert device.SerializeToString() == b"\x0a\x01a\x12\x01H\x1a\x04\x0a\x02\x08\x01"
    reply = v1beta1.ContainerAllocateResponse(envs={"k": "v"}, cdi_devices=[v1beta1.CDIDevice(name="x")])
    assert reply.SerializeToString() == b"\x0a\x06\x0a\x01k\x12\x01v\x2a\x03\x0a\x01x"


def test_preference_is_followed_and_pre_start_is_called(kubelet: FakeKubelet, plugin: ToyPlugin) -> None:
    kubelet.admit(pod("u", 2))
    assert cards(kubelet, "u") == {"card-3", "card-2"}
    assert [name for name, _ in plugin.calls] == ["prefer", "allocate", "start"]
    assert kubelet.env("u", "main-0") == {"TOY_CARDS": "card-2,card-3"}


def test_no_card_is_held_twice_and_what_is_removed_is_free_again(kubelet: FakeKubelet, plugin: ToyPlugin) -> None:
    kubelet.admit(pod("a", 1, 2))
    assert not cards(kubelet, "a", "main-0") & cards(kubelet, "a", "main-1")
    with pytest.raises(AdmissionError, match="unavailable"):
        kubelet.admit(pod("b", 2))
    kubelet.remove("a")
    kubelet.admit(pod("b", 4))
    assert cards(kubelet, "b") == set(CARDS)


def test_app_container_takes_over_what_the_init_container_held(kubelet: FakeKubelet, plugin: ToyPlugin) -> None:
    kubelet.admit(pod("a", 3, init=(2,)))
    assert cards(kubelet, "a", "init-0") < cards(kubelet, "a")


def test_restart_keeps_the_record_and_needs_the_plugin_to_register_again(
    kubelet: FakeKubelet, plugin: ToyPlugin
) -> None:
    kubelet.admit(pod("a", 1))
    before = cards(kubelet, "a")
    kubelet.restart()
    assert cards(kubelet, "a") == before
    assert not list(kubelet.plugin_folder.glob("toy*.sock")), "the kubelet removes plugins' sockets when it starts"
    with pytest.raises(AdmissionError, match="no healthy devices"):
        kubelet.admit(pod("b", 1))
    plugin.start()
    plugin.register()
    kubelet.wait_devices(RESOURCE, len(CARDS))
    kubelet.admit(pod("b", 3))
    assert not cards(kubelet, "b") & before
    kubelet.admit(pod("a", 1))  # seen again after the restart: has its devices, so no second Allocate
    assert len([name for name, _ in plugin.calls if name == "allocate"]) == 2


def test_unhealthy_card_is_not_given_and_comes_back(kubelet: FakeKubelet, plugin: ToyPlugin) -> None:
    plugin.set_health("card-3", False)
    kubelet.wait_devices(RESOURCE, 3)
    kubelet.admit(pod("a", 3))
    assert "card-3" not in cards(kubelet, "a")
    plugin.set_health("card-3", True)
    kubelet.wait_devices(RESOURCE, 4)


def test_refused_allocation_fails_the_pod_and_frees_its_cards(kubelet: FakeKubelet, plugin: ToyPlugin) -> None:
    plugin.refuse_allocate = "wrong card"
    with pytest.raises(AdmissionError, match="wrong card"):
        kubelet.admit(pod("a", 4))
    plugin.refuse_allocate = ""
    kubelet.admit(pod("b", 4))


def test_devices_are_gone_when_the_plugin_is(kubelet: FakeKubelet, plugin: ToyPlugin) -> None:
    plugin.stop()
    kubelet.wait_devices(RESOURCE, 0)


def test_pod_resources_and_checkpoint_tell_who_holds_what(kubelet: FakeKubelet, plugin: ToyPlugin) -> None:
    kubelet.admit(pod("a", 2))
    with grpc.insecure_channel(f"unix://{kubelet.pod_resources_socket}") as channel:
        listed = stub(channel, "v1.PodResourcesLister").List(v1.ListPodResourcesRequest(), timeout=60)
    (told,) = listed.pod_resources
    assert (told.name, told.containers[0].devices[0].resource_name) == ("pod-a", RESOURCE)
    assert set(told.containers[0].devices[0].device_ids) == cards(kubelet, "a")
    (entry,) = json.loads((kubelet.plugin_folder / CHECKPOINT).read_text())["Data"]["PodDeviceEntries"]
    assert (entry["PodUID"], entry["ResourceName"], set(entry["DeviceIDs"]["-1"])) == (
        "a",
        RESOURCE,
        cards(kubelet, "a"),
    )


def test_another_version_of_the_api_is_refused(kubelet: FakeKubelet) -> None:
    toy = ToyPlugin(kubelet.plugin_folder, CARDS)
    toy.start()
    with pytest.raises(grpc.RpcError, match="not supported"):
        toy.register(version="v1alpha")
    toy.stop()
