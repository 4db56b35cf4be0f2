"""The Device object: what a node has, there and back, and entries that make no sense."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gemini.extender.kinds import DEVICE
from gemini.extender.state import Cluster
from gemini.kube.device import MOST_CARDS, MOST_DEVICES, cordoned, read_device, write_device
from gemini.placement.model import Device, Link, Node, Partitions
from tests.gemini.ends import ends

NODE = Node(
    "n1",
    (
        Device(0, uuid="GPU-a", model="H200", memory=15472384 * 1024, numa="0", pcie="1", slots=16),
        Device(1, uuid="GPU-b", memory=8, health=False),
        Device(0, type="rdma", uuid="mlx5_0", pcie="1"),
    ),
    (Link(0, 1, "NVLINK", 2),),
    Partitions(True, ((0,), (0, 1))),
)


def test_B14_node_survives_being_written_and_read() -> None:
    assert read_device(write_device(NODE)).node == NODE
    assert read_device(write_device(NODE)).faults == ()


def test_B15_example_of_the_proposal_is_read() -> None:
    def card(minor: int, identity: str) -> dict[str, object]:
        amounts = {"gpu-core": "100", "gpu-memory": "15472384Ki", "gpu-memory-ratio": "100"}
        resources = {f"kubernetes.io/{key}": value for key, value in amounts.items()}
        return {"health": True, "id": identity, "minor": minor, "resources": resources, "type": "gpu"}

    uuids = ["GPU-98583a5c-c155-9cf6-f955-03c189d3dbfb", "GPU-7f6410b9-bdf7-f9a5-de09-aa5ec31a7124"]
    spec = {"devices": [card(i, uuid) for i, uuid in enumerate(uuids)]}
    node = read_device({"metadata": {"name": "node-1"}, "spec": spec, "status": {}}).node
    assert [(d.minor, d.uuid, d.memory, d.core) for d in node.devices] == [
        (0, uuids[0], 15_843_721_216, 100),
        (1, uuids[1], 15_843_721_216, 100),
    ]


def test_B18_devices_of_other_plugins_are_read_by_card() -> None:
    entry = {
        "podUID": "fa8983dc",
        "containerName": "c",
        "resourceName": "nvidia.com/gpu",
        "deviceIDs": ["GPU-a", "GPU-b::3"],
    }
    assert read_device(write_device(NODE, [entry])).foreign == (("fa8983dc", "GPU-a"), ("fa8983dc", "GPU-b"))


def test_entry_that_makes_no_sense_is_left_out_and_named() -> None:
    good = {"id": "GPU-a", "minor": 0, "resources": {"gemini.io/gpu-memory": "8Gi"}}
    entries = [good, {**good}, {"minor": -1}, 3, {"minor": 1}, {**good, "minor": 2, "health": "yes"}]
    spec = {"devices": entries, "links": [{"a": 0, "b": 7, "kind": "PIX"}, None], "partitions": {"sets": [[9]]}}
    found = read_device(
        {"metadata": {"name": "n", "annotations": {"gemini.io/devices-checkpoints": "{"}}, "spec": spec}
    )
    assert [d.uuid for d in found.node.devices] == ["GPU-a"]
    assert len(found.faults) == 9
    assert all("\n" not in fault for fault in found.faults)


def test_cordoned_cards_are_marked_by_uuid() -> None:
    assert [d.cordoned for d in cordoned(NODE, {"GPU-b"}).devices] == [False, True, False]
    assert cordoned(NODE, ()) is NODE


KEYS = ["devices", "minor", "id", "spec", "links", "metadata", "annotations", "resources", "gemini.io/gpu-memory"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, "partitions", "sets", "slots", "health"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values)
def test_nothing_that_json_can_hold_makes_it_raise(given_value: object) -> None:
    read_device(given_value)


def test_a_device_of_ever_so_many_cards_and_links_is_taken_in_in_time() -> None:
    """A node's token writes it as it likes, and each card is compared with each."""
    amounts = {"gemini.io/gpu-memory": "8Gi"}
    devices = [{"minor": i, "type": f"t{i % 3}" if i % 4 else "gpu", "resources": amounts} for i in range(20_000)]
    links = [{"a": i % 256 * 4, "b": i % 255 * 4 + 4, "kind": "NVLINK"} for i in range(20_000)]
    sets = [[i % 200 * 4] for i in range(20_000)]
    given = {
        "metadata": {"name": "n"},
        "spec": {"devices": devices, "links": links, "partitions": {"sets": sets}},
    }
    with ends():
        found = read_device(given)
        made = Cluster()
        made.apply("Node", "ADDED", {"metadata": {"name": "n", "uid": "u"}})
        made.apply(DEVICE, "ADDED", given)
    assert len(found.node.devices) <= MOST_DEVICES
    assert sum(device.type == "gpu" for device in found.node.devices) == MOST_CARDS
    assert f"devices: 20000 are more than {MOST_DEVICES}; the first of them count" in found.faults
    assert len(found.faults) < 10_000
