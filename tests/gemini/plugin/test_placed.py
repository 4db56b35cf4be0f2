"""Containers that another scheduler placed: what the daemon is told of them, and when they may not start."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from gemini.kube import names
from gemini.kube.checkpoint import Entry
from gemini.kube.kubelet_api import v1beta1
from gemini.plugin import reply
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.host import Host
from gemini.plugin.placed import PlacedService
from gemini.plugin.placedview import PlacedView
from gemini.plugin.view import POD, Refusal
from tests.gemini.plugin import rig

CARDS = {"GPU-a": 80 << 30, "GPU-b": 80 << 30}
HAMI = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30", "nvidia.com/gpumem": "4096", names.RESOURCE_PLACED: "1"}
VOLCANO = {
    "volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-cores": "30", "volcano.sh/vgpu-memory": "4",
    names.RESOURCE_PLACED: "1",
}  # fmt: skip


class Daemon(rig.Daemon):
    async def cards(self) -> dict[str, int]:
        self._answer()
        return CARDS


class Kubelet:
    """Its record alone."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def checkpoint(self) -> list[Entry]:
        return self.entries

    async def listed(self) -> None:
        return None


class Node:
    """One node: pods are admitted as a kubelet does, which asks each plugin once for each container."""

    def __init__(self) -> None:
        self.api, self.daemon, self.kubelet = rig.Api(), Daemon(), Kubelet()
        self.view = PlacedView("n", self.api, self.kubelet)
        tokens = itertools.count(1)
        options = reply.Options(reply.Paths("/lib.so", "/run/gemini/tenants", "/preload"))
        self.service = PlacedService(self.view, options, self.daemon, Host(), lambda: f"{next(tokens):08x}")
        self.api.seen = self.view.apply

    def admit(self, name: str, limits: dict[str, str] = HAMI, container: str = "main", **theirs: Any) -> list[str]:
        """The ids of our slot. `theirs`: the other plugin's reply."""
        resource = next(iter(limits))
        given = {"envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-a", "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m"}, **theirs}
        other = v1beta1.ContainerAllocateResponse(**given).SerializeToString()
        ids = [f"slot-{name}-{container}"]
        ours = asyncio.run(self.service.allocate(ids)).SerializeToString()
        uid = f"uid-{name}"
        self.kubelet.entries += [
            Entry(uid, container, names.RESOURCE_PLACED, tuple(ids), ours),
            Entry(uid, container, resource, ("GPU-a-7",), other),
        ]
        return ids

    def start(self, ids: list[str]) -> None:
        asyncio.run(self.service.start(ids))

    def tidy(self) -> None:
        asyncio.run(self.service.tidy())

    def put(self, name: str, limits: dict[str, str] = HAMI, **status: Any) -> None:
        self.api.put(pod(name, limits, **status))


def pod(name: str, limits: dict[str, str] = HAMI, env: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    said = [{"name": key, "value": value} for key, value in (env or {}).items()]
    container = {"name": "main", "resources": {"limits": limits}, "env": said}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {}}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Running", **status}}


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize("limits", [HAMI, VOLCANO], ids=["hami", "volcano"])
def test_a_container_is_held_to_its_cores_on_the_card_that_the_other_plugin_gave(
    node: Node, limits: dict[str, str]
) -> None:
    node.put("p", limits)
    ids = node.admit("p", limits, envs={"NVIDIA_VISIBLE_DEVICES": "GPU-b", "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m"})
    node.start(ids)
    (spec,) = node.daemon.specs.values()
    assert spec == {
        "name": "placed-00000001", "request": 0.3, "limit": 0.3, "memory_bytes": 4 << 30, "latency": False,
        "gpus": ["GPU-b"],
    }  # fmt: skip
    ((_, reason, told),) = node.api.events
    assert reason == names.PLACED_ENFORCED
    assert told == "container main is tenant placed-00000001: 0.3 of the time, 0.3 at most, of GPU-b"


def test_library_and_socket_of_its_own_tenant_come_with_the_reply_and_no_card(node: Node) -> None:
    answer = asyncio.run(node.service.allocate(["x"]))
    mounts = {one.container_path: one.host_path for one in answer.mounts}
    assert mounts == {
        names.LIBRARY_PATH: "/lib.so", "/run/gemini": "/run/gemini/tenants/placed-00000001",
        names.PRELOAD_FILE: "/preload",
    }  # fmt: skip
    assert dict(answer.envs) == {"LD_PRELOAD": names.LIBRARY_PATH, "GEMINI_SOCKET": "ipc:///run/gemini/tenant.sock"}


def test_the_environment_of_hamis_says_whether_cores_are_a_limit(node: Node) -> None:
    node.api.put(pod("p", env={"GPU_CORE_UTILIZATION_POLICY": "disable"}))
    node.start(node.admit("p"))
    (spec,) = node.daemon.specs.values()
    assert (spec["request"], spec["limit"]) == (0.3, 1)


def test_annotations_change_nothing(node: Node) -> None:
    given = pod("p")
    given["metadata"]["annotations"] = {
        "hami.io/vgpu-devices-allocated": "GPU-b,NVIDIA,81920,100:;", "gemini.io/gpu-request": "1",
    }  # fmt: skip
    node.api.put(given)
    node.start(node.admit("p"))
    (spec,) = node.daemon.specs.values()
    assert (spec["request"], spec["gpus"]) == (0.3, ["GPU-a"])


@pytest.mark.parametrize(
    "theirs",
    [
        {"envs": {"NVIDIA_VISIBLE_DEVICES": "void"}, "cdi_devices": [v1beta1.CDIDevice(name="nvidia.com/gpu=GPU-b")]},
        {"envs": {}, "annotations": {"cdi.k8s.io/nvidia-device-plugin_x": "nvidia.com/gpu=GPU-b"}},
        {"envs": {}, "mounts": [v1beta1.Mount(container_path="/var/run/nvidia-container-devices/GPU-b")]},
    ],
    ids=["CDI", "annotations", "mounts"],
)
def test_the_card_is_read_in_each_way_that_plugins_name_it(node: Node, theirs: dict[str, Any]) -> None:
    node.put("p")
    node.start(node.admit("p", **theirs))
    (spec,) = node.daemon.specs.values()
    assert (spec["gpus"], spec["memory_bytes"]) == (["GPU-b"], 80 << 30)  # its card's; 0 would be no limit


@pytest.mark.parametrize(
    ("limits", "theirs", "told"),
    [
        (HAMI, {"envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-c"}}, "gave GPU-c, the daemon's cards are GPU-a, GPU-b"),
        (HAMI, {"envs": {"NVIDIA_VISIBLE_DEVICES": "MIG-1"}}, "gave MIG-1"),
        (HAMI, {"envs": {}}, "named 0 cards, container main asks for 1"),
        (
            HAMI,
            {
                "envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-a"},
                "mounts": [v1beta1.Mount(container_path="/etc/ld.so.preload")],
            },
            "set CUDA_DISABLE_CONTROL=true in its env",
        ),
        ({**HAMI, "nvidia.com/gpu": "2"}, {}, "named 1 cards, container main asks for 2"),
        ({**HAMI, "nvidia.com/gpucores": "101"}, {}, "nvidia.com/gpucores: 101 is above 100 percent"),
        ({names.RESOURCE_PLACED: "1"}, {}, "asks no other plugin for a card; add nvidia.com/gpu or volcano.sh/vgpu"),
        ({**HAMI, **VOLCANO}, {}, "container main asks HAMi and Volcano; keep one of the two"),
        ({**HAMI, names.RESOURCE_PLACED: "2"}, {}, "2: a container has one share of its cards; write 1"),
    ],
)
def test_what_cannot_be_enforced_does_not_start(
    node: Node, limits: dict[str, str], theirs: dict[str, Any], told: str
) -> None:
    node.put("p", limits)
    ids = node.admit("p", limits, **theirs)
    with pytest.raises(Refusal) as refused:
        node.start(ids)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not node.daemon.specs
    assert node.service.counts["start", "refused"] == 1


def test_without_the_daemon_the_pod_or_the_other_plugins_word_nothing_starts(node: Node) -> None:
    ids = node.admit("p")
    with pytest.raises(Refusal, match="not known here"):
        node.start(ids)
    node.put("p")
    theirs = node.kubelet.entries.pop()
    with pytest.raises(Refusal, match=r"gave container main no nvidia.com/gpu"):
        node.start(ids)
    node.kubelet.entries.append(theirs)
    node.daemon.down = True
    with pytest.raises(Refusal, match="no answer from the daemon"):
        node.start(ids)
    node.daemon.down = False
    node.start(ids)
    with pytest.raises(Refusal, match="has no container with the slot unknown"):
        node.start(["unknown"])


def test_tenants_of_pods_that_are_gone_make_room_also_for_who_starts_now(node: Node) -> None:
    whole = {**HAMI, "nvidia.com/gpucores": "100"}
    node.put("old", whole)
    node.start(node.admit("old", whole))
    node.put("new", whole)
    ids = node.admit("new", whole)
    with pytest.raises(Refusal, match="above 1"):
        node.start(ids)
    node.api.delete("uid-old")
    node.start(ids)
    assert set(node.daemon.specs) == {"placed-00000002"}
    node.api.delete("uid-new")
    node.tidy()
    assert not node.daemon.specs


def test_a_tenant_that_the_daemon_lost_is_brought_back_and_others_are_left_alone(node: Node) -> None:
    node.daemon.specs["by-hand"] = {"name": "by-hand", "request": 0.1, "limit": 1, "gpus": ["GPU-a"]}
    running = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    node.put("p", **running)
    node.start(node.admit("p"))
    before = node.daemon.specs.pop("placed-00000001")
    node.tidy()
    assert node.daemon.specs["placed-00000001"] == before
    assert "by-hand" in node.daemon.specs


def test_an_init_containers_share_is_free_for_what_comes_after_it(node: Node) -> None:
    whole = {**HAMI, "nvidia.com/gpucores": "100"}
    given = pod("p", whole)
    given["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": whole}}]
    node.api.put(given)
    first, main = node.admit("p", whole, "first"), node.admit("p", whole)
    node.start(first)
    ended = {"initContainerStatuses": [{"name": "first", "state": {"terminated": {"exitCode": 0}}}]}
    node.api.put({**given, "status": {"phase": "Pending", **ended}})
    node.start(main)
    assert set(node.daemon.specs) == {"placed-00000002"}


def test_the_cards_are_the_daemons_and_slots_are_listed_when_it_has_said_them(node: Node) -> None:
    changes = []
    node.view.changed = lambda: changes.append(len(node.view.cards))
    node.daemon.down = True
    with pytest.raises(DaemonFault):
        node.tidy()
    assert not node.view.cards
    node.daemon.down = False
    node.tidy()
    node.tidy()
    assert changes == [2]
    assert sum(map(node.view.kind.count, node.view.cards.values())) == 200


def test_little_is_kept_of_a_pod(node: Node) -> None:
    large = pod("p", env={"A": "x" * 100_000, "GPU_CORE_UTILIZATION_POLICY": "force"})
    large["metadata"]["annotations"] = {"a": "x" * 100_000}
    node.view.replace(POD, [large])
    assert len(str(node.view.pods["uid-p"])) < 1_000


def test_cdi_files_come_and_go_with_the_tenant(tmp_path: Path) -> None:
    node = Node()
    node.service.options = reply.Options(node.service.options.paths, cdi=True)
    node.service.host = Host(tmp_path)
    node.put("p")
    ids = node.admit("p")
    node.start(ids)
    (file,) = tmp_path.iterdir()
    assert "placed-00000001" in file.read_text()
    ours = v1beta1.ContainerAllocateResponse.FromString(node.kubelet.entries[0].reply)
    assert {one.container_path for one in ours.mounts} >= {names.LIBRARY_PATH, "/run/gemini"}, "without CDI it ran free"
    node.api.delete("uid-p")
    node.tidy()
    assert not list(tmp_path.iterdir())


def test_a_cdi_file_that_went_with_the_nodes_run_is_there_again_when_a_container_starts(tmp_path: Path) -> None:
    node = Node()
    node.service.options = reply.Options(node.service.options.paths, cdi=True)
    node.service.host = Host(tmp_path)
    node.put("p")
    ids = node.admit("p")
    node.start(ids)
    (file,) = tmp_path.iterdir()
    before = file.read_text()
    file.unlink()  # the machine was started again; its kubelet keeps what was allocated
    node.start(ids)
    assert file.read_text() == before


def test_cdi_files_of_pods_that_never_began_go_when_the_kubelet_has_forgotten_them(tmp_path: Path) -> None:
    node = Node()
    node.service.options = reply.Options(node.service.options.paths, cdi=True)
    node.service.host = Host(tmp_path)
    (tmp_path / "others.json").touch()
    for number in range(3):
        node.put(f"p{number}")
        node.admit(f"p{number}")
        node.api.delete(f"uid-p{number}")
    node.kubelet.entries = node.kubelet.entries[-2:]  # the last one's
    node.tidy()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["gemini.io-share_placed-00000003.json", "others.json"]


def test_what_our_own_pods_left_on_a_node_that_is_anothers_now_goes_with_them(node: Node) -> None:
    """Else their parts of the cards would be promised for ever, and who is placed there would not start."""
    for name in ("pod.ns.mine-00000001", "pod.ns.gone-00000002", "by-hand", "claim-1"):
        node.daemon.specs[name] = {"name": name, "request": 0.2, "limit": 1, "gpus": ["GPU-a"]}
    node.api.put(pod("mine", {"gemini.io/gpu-core": "20"}))
    node.tidy()
    assert set(node.daemon.specs) == {"pod.ns.mine-00000001", "by-hand", "claim-1"}
    node.api.delete("uid-mine")
    node.put("p", {**HAMI, "nvidia.com/gpucores": "60"})
    node.start(node.admit("p", {**HAMI, "nvidia.com/gpucores": "60"}))  # for which there was no room
    assert set(node.daemon.specs) == {"placed-00000001", "by-hand", "claim-1"}


def kais(name: str, written: str = "50%,1", labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod as KAI's binder and our admission have it."""
    given = pod(name, {names.RESOURCE_PLACED: "1"}, {names.ENV_PLACED: written})
    given["metadata"]["labels"] = {"runai-gpu-group": "g1"} if labels is None else labels
    return given


def keep(node: Node, group: str, card: str, namespace: str = "kai-resource-reservation") -> None:
    """KAI's pod that keeps a whole card, which NVIDIA's plugin gave it."""
    name = f"keeps-{group}-{namespace}"
    given = pod(name, {"nvidia.com/gpu": "1"})
    given["metadata"] |= {"namespace": namespace, "labels": {"runai-gpu-group": group, "app": "kai"}}
    node.api.put(given)
    reply_ = v1beta1.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": card}).SerializeToString()
    node.kubelet.entries.append(Entry(f"uid-{name}", "main", "nvidia.com/gpu", (card,), reply_))


def admit_kais(node: Node, name: str) -> list[str]:
    ids = [f"slot-{name}"]
    ours = asyncio.run(node.service.allocate(ids)).SerializeToString()
    node.kubelet.entries.append(Entry(f"uid-{name}", "main", names.RESOURCE_PLACED, tuple(ids), ours))
    return ids


@pytest.fixture
def kai(tmp_path: Path) -> Node:
    node = Node()
    node.service.options = reply.Options(node.service.options.paths, cdi=True)
    node.service.host = Host(tmp_path)
    return node


def shown(tmp_path: Path) -> str:
    """What the container would see by its CDI file."""
    (file,) = tmp_path.iterdir()
    (device,) = json.loads(file.read_text())["devices"]
    return str(dict(one.split("=", 1) for one in device["containerEdits"]["env"])["NVIDIA_VISIBLE_DEVICES"])


def test_a_pod_of_kais_is_shown_the_card_that_kai_keeps_for_its_group(kai: Node, tmp_path: Path) -> None:
    keep(kai, "g1", "GPU-b")
    keep(kai, "g2", "GPU-a")
    kai.api.put(kais("p"))
    ids = admit_kais(kai, "p")
    kai.start(ids)
    (spec,) = kai.daemon.specs.values()
    assert (spec["request"], spec["limit"], spec["memory_bytes"], spec["gpus"]) == (0.5, 1, 40 << 30, ["GPU-b"])
    assert shown(tmp_path) == "GPU-b"
    kai.api.put(kais("p", labels={"runai-gpu-group": "g2"}))  # by an editor of its namespace
    kai.start(ids)
    assert (kai.daemon.specs[spec["name"]]["gpus"], shown(tmp_path)) == (["GPU-b"], "GPU-b")


def test_a_card_that_is_gone_is_said_in_a_line_and_keeps_no_other_from_its_share(
    kai: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(kai, "g1", "GPU-b")
    keep(kai, "g2", "GPU-a")
    running = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    ids = {}
    for name, group in (("p", "g1"), ("q", "g2")):
        kai.api.put({**kais(name, labels={"runai-gpu-group": group}), "status": {"phase": "Running", **running}})
        ids[name] = admit_kais(kai, name)
        kai.start(ids[name])
    monkeypatch.delitem(CARDS, "GPU-b")  # it fell off the bus, and the daemon began anew
    kai.daemon.specs.clear()
    with pytest.raises(DaemonFault, match="main was shown GPU-b, the daemon's cards are GPU-a; delete the pod"):
        kai.tidy()
    assert [spec["gpus"] for spec in kai.daemon.specs.values()] == [["GPU-a"]]
    with pytest.raises(Refusal, match="main was shown GPU-b"):
        kai.start(ids["p"])


def test_memory_alone_and_several_cards_of_kais(kai: Node) -> None:
    keep(kai, "g1", "GPU-b")
    keep(kai, "g2", "GPU-a")
    kai.api.put(kais("memory", "2000Mi,1"))
    kai.start(admit_kais(kai, "memory"))
    kai.api.put(kais("two", "25%,2", {"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}))
    kai.start(admit_kais(kai, "two"))
    memory, two = kai.daemon.specs.values()
    assert (memory["request"], memory["memory_bytes"]) == (0, 2000 << 20)
    assert (two["request"], two["memory_bytes"], two["gpus"]) == (0.25, 20 << 30, ["GPU-b", "GPU-a"])


@pytest.mark.parametrize(
    ("written", "labels", "told"),
    [
        ("50%,1", {}, "KAI gave the pod 0 groups of cards, admission read 1"),
        (
            "50%,1",
            {"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"},
            "gave the pod 2 groups of cards, admission",
        ),
        ("50%,1", {"runai-gpu-group": "g3"}, "reservation of group g3 has no card here"),
        ("50%,1", {"runai-gpu-group": "mine"}, "reservation of group mine has no card here"),
        ("50%,1", {"runai-gpu-group": "index"}, "reservation of group index has 0 here"),
        ("x,1", {"runai-gpu-group": "g1"}, "GEMINI_PLACED"),
    ],
)
def test_what_kai_does_not_say_clearly_does_not_start(
    kai: Node, written: str, labels: dict[str, str], told: str
) -> None:
    keep(kai, "g1", "GPU-b")
    keep(kai, "g2", "GPU-a")
    keep(kai, "mine", "GPU-a", "ns")  # a stranger's namespace
    keep(kai, "index", "0")
    kai.api.put(kais("p", written, labels))
    with pytest.raises(Refusal) as refused:
        kai.start(admit_kais(kai, "p"))
    assert told in str(refused.value)
    assert not kai.daemon.specs


def test_without_cdi_a_pod_of_kais_does_not_start(node: Node) -> None:
    keep(node, "g1", "GPU-b")
    node.api.put(kais("p"))
    with pytest.raises(Refusal, match=r"start the device plugin with --cdi \(node.cdi\)"):
        node.start(admit_kais(node, "p"))
