"""Who is given what, over the kubelet's real gRPC: in any order, through restarts, with guesses that were wrong."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from gemini.kube import names
from gemini.kube.kubelet_api import UNHEALTHY
from gemini.plugin.slots import gpushare
from tests.e2e.fake_kubelet import AdmissionError
from tests.gemini.plugin.pods import GIB, bound, cards, record
from tests.gemini.plugin.rig import Rig, running

KNOWN = cards(2)


class Start(Protocol):
    def __call__(self, *args: Any, **more: Any) -> Rig: ...


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a node with its plugin."""
    with ExitStack() as stack:

        def begin(known: Any = None, **more: Any) -> Rig:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="gemini-", dir="/tmp", ignore_cleanup_errors=True)
            )  # a short path
            return stack.enter_context(running(Path(folder), known or KNOWN, **more))

        yield begin


def running_status(*containers: str) -> dict[str, Any]:
    states = [{"name": one, "state": {"running": {}}} for one in containers]
    return {"phase": "Running", "containerStatuses": states}


# ---- complaint 1: the wrong pod, the wrong card


@pytest.mark.parametrize(
    ("told", "seed"), [(True, 0), (False, 1)], ids=["kubelet-tells-whom-it-admits", "kubelet-does-not-tell"]
)
def test_two_hundred_equal_pods_in_random_order_with_restarts_of_kubelet_and_plugin_get_what_they_were_promised(
    start: Start, told: bool, seed: int
) -> None:
    rig = start(cards(8), told=told, seed=seed)
    chance = random.Random(seed)
    pods = [bound(f"p{n:03}", rig.cards, [n % 8], gpu_request="0.04") for n in range(200)]
    for pod in pods:
        rig.api.put(pod)
    order = chance.sample(pods, len(pods))
    kubelet_restarts, plugin_restarts = (set(chance.sample(range(200), 3)) for _ in range(2))
    for place, pod in enumerate(order):
        if place in kubelet_restarts:
            rig.restart_kubelet()
        if place in plugin_restarts:
            rig.stop_plugin()
            rig.start_plugin()
            rig.wait_slots()
        rig.kubelet.admit(rig.now(pod["metadata"]["name"]))
    tenants = [rig.check(pod["metadata"]["name"]) for pod in pods]
    assert len(set(tenants)) == len(rig.daemon.specs) == 200
    assert set(Counter(record(rig.now(f"p{n:03}"))[0] for n in range(200)).values()) == {25}


@pytest.mark.parametrize("lost", [0.0, 0.2], ids=["", "writes-that-are-lost-or-not-answered"])
def test_pods_that_all_start_at_once_after_wrong_guesses_are_put_in_step(start: Start, lost: float) -> None:
    rig = start(cards(6), told=False, seed=5)
    for n in range(48):
        rig.api.put(bound(f"p{n:02}", rig.cards, [n % 6], gpu_request="0.12"))
    names_ = [f"p{n:02}" for n in range(48)]
    for name in random.Random(5).sample(names_, len(names_)):
        rig.kubelet.admit(rig.now(name), start=False)
    rig.api.lost = lost

    def begin(name: str) -> None:
        for _ in range(50):  # as the kubelet does, if not so often
            try:
                rig.kubelet.start_container(f"uid-{name}", "main")
            except AdmissionError as why:
                if not lost or "was not written" not in str(why):
                    raise
            else:
                return

    with ThreadPoolExecutor(8) as workers:
        list(workers.map(begin, names_))
    for name in names_:
        rig.check(name)
    assert set(Counter(record(rig.now(name))[0] for name in names_).values()) == {8}


def test_pods_of_two_kinds_of_equals_never_get_one_anothers_cards(start: Start) -> None:
    rig = start(cards(4), told=False, seed=3)
    pods = [bound(f"a{n}", rig.cards, [n % 4], gpu_request="0.1") for n in range(8)]
    pods += [bound(f"b{n}", rig.cards, [n % 4], gpu_request="0.1", gpu_memory="1Gi") for n in range(8)]
    refused = 0
    for pod in pods:
        rig.api.put(pod)
    for pod in random.Random(3).sample(pods, len(pods)):
        name = pod["metadata"]["name"]
        try:
            rig.kubelet.admit(rig.now(name))
        except AdmissionError:  # what the kubelet does not tell cannot always be mended: then it is said
            refused += 1
            rig.kubelet.remove(f"uid-{name}")
        else:
            rig.check(name)
    assert refused < len(pods)
    assert [reason for _, reason, _ in rig.api.events] == ["GeminiMismatch"] * refused


def test_the_pod_that_the_kubelet_admits_gets_its_card_however_many_others_wait(start: Start) -> None:
    rig = start()
    for n in range(6):
        rig.api.put(bound(f"p{n}", KNOWN, [n % 2], gpu_request="0.3"))
    for n in (5, 0, 3):
        rig.kubelet.admit(rig.now(f"p{n}"))
        rig.check(f"p{n}")
    assert rig.service.counts["repair", "exchanged"] == 0


@pytest.mark.parametrize("told", [True, False], ids=["kubelet-tells-whom-it-admits", "kubelet-does-not-tell"])
def test_slots_that_best_effort_pods_take_of_a_card_cost_nobody_the_card_that_was_promised(
    start: Start, told: bool
) -> None:
    """The kubelet counts a slot for each of their containers, and the book no core: then a card's slots do not suffice
    for what was promised of it, and the kubelet adds some of another card's."""
    rig = start(cards(2), told=told)
    for n in range(3):
        rig.api.put(bound(f"free{n}", rig.cards, [0], gpu_request="0", gpu_memory="1Gi"))
    rig.api.put(bound("whole", rig.cards, [0], gpu_request="1", gpu_memory="8Gi"))
    rig.api.put(bound("rest", rig.cards, [1], gpu_request="0.97", gpu_memory="8Gi"))
    promised = {"free0": "GPU-0", "free1": "GPU-0", "free2": "GPU-0", "whole": "GPU-0", "rest": "GPU-1"}
    for name, card in promised.items():
        rig.kubelet.admit(rig.now(name))
        held = rig.kubelet.held(f"uid-{name}", "main")[names.RESOURCE_CORE]
        (mount,) = (one for one in held.reply.mounts if one.container_path == "/run/gemini")
        assert record(rig.now(name)) == rig.daemon.specs[Path(mount.host_path).name]["gpus"] == [card]
        assert held.reply.envs["NVIDIA_VISIBLE_DEVICES"] == card
    whole = rig.kubelet.held("uid-whole", "main")[names.RESOURCE_CORE].devices
    assert Counter(slot.partition("::")[0] for slot in whole) == {"GPU-0": 97, "GPU-1": 3}
    assert not rig.api.events
    with pytest.raises(AdmissionError):  # the node's slots are gone, and kube-scheduler counts them as the kubelet does
        rig.kubelet.admit(rig.api.put(bound("more", rig.cards, [1], gpu_request="0.03")))


def test_a_pod_that_the_watch_has_not_brought_yet_is_looked_up(start: Start) -> None:
    rig = start()
    rig.api.put(bound("waits", KNOWN, [0], gpu_request="0.5"))
    rig.api.deaf = True
    pod = rig.api.put(bound("fresh", KNOWN, [1], gpu_request="0.5"))
    rig.kubelet.admit(pod)
    rig.check("fresh")


def test_a_misplaced_pod_without_an_equal_is_refused_with_an_event_and_ended_if_somebody_makes_it_anew(
    start: Start,
) -> None:
    rig = start(told=False)
    rig.api.put(bound("first", KNOWN, [0], gpu_request="0.5", gpu_uuid="GPU-0"))
    owned = bound("second", KNOWN, [1], gpu_request="0.5", gpu_uuid="GPU-1")
    owned["metadata"]["ownerReferences"] = [{"controller": True, "kind": "ReplicaSet"}]
    rig.api.put(owned)
    with pytest.raises(AdmissionError, match="GPU-0, the record says GPU-1"):
        rig.kubelet.admit(rig.now("second"))
    ((name, reason, message),) = rig.api.events
    assert (name, reason) == ("second", "GeminiMismatch")
    assert "no other pod here asks for the same" in message
    assert rig.api.ended == ["second"]
    assert not rig.daemon.specs


def test_an_exchange_waits_for_an_api_server_that_does_not_answer(start: Start) -> None:
    rig = start(told=False)
    for n, name in enumerate(("first", "second")):
        rig.api.put(bound(name, KNOWN, [n], gpu_request="0.5"))
    rig.api.down = True
    with pytest.raises(AdmissionError, match="was not written"):
        rig.kubelet.admit(rig.now("second"))
    assert record(rig.now("second")) == ["GPU-1"]
    rig.api.down = False
    rig.kubelet.start_container("uid-second", "main")
    rig.check("second")
    assert record(rig.now("first")) == ["GPU-1"]


def test_slots_of_another_card_do_not_move_the_share(start: Start) -> None:
    """The kubelet may pass over what is preferred; what the container sees is what its record says."""
    rig = start()
    rig.api.put(bound("p", KNOWN, [1], gpu_request="0.5"))
    answer = rig.call(rig.service.allocate([f"GPU-0::{n}" for n in range(50)]))
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert rig.service.counts["allocate", "elsewhere"] == 1


# ---- complaint 4: never a container with a poisoned environment


def test_a_pod_that_was_not_bound_by_the_extender_is_refused_with_the_reason(start: Start) -> None:
    rig = start()
    pod = bound("p", KNOWN, [0], gpu_request="0.5")
    del pod["metadata"]["annotations"][names.ALLOCATION]
    rig.api.put(pod)
    with pytest.raises(AdmissionError, match="not bound by the Gemini extender; delete it"):
        rig.kubelet.admit(pod)


def test_slots_of_an_unknown_card_are_refused(start: Start) -> None:
    from gemini.plugin.view import Refusal

    rig = start()
    with pytest.raises(Refusal, match="GPU-9 is no card of this node"):
        rig.call(rig.service.allocate(["GPU-9::0"]))


def test_without_the_daemon_a_container_does_not_start_and_starts_when_it_is_there(start: Start) -> None:
    rig = start()
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.daemon.down = True
    with pytest.raises(AdmissionError, match="no answer from the daemon"):
        rig.kubelet.admit(rig.now("p"))
    rig.daemon.down = False
    rig.kubelet.start_container("uid-p", "main")
    rig.check("p")


# ---- complaint 5: several containers


def test_all_containers_of_a_pod_with_one_share_are_one_tenant(start: Start) -> None:
    rig = start()
    rig.api.put(bound("p", KNOWN, [1], ("main", "side"), ("prepare",), gpu_request="0.5", gpu_limit="0.6"))
    rig.kubelet.admit(rig.now("p"))
    assert len({rig.check("p", container) for container in ("prepare", "main", "side")}) == 1
    ((_, spec),) = rig.daemon.specs.items()
    assert (spec["request"], spec["limit"], spec["memory_bytes"]) == (0.5, 0.6, 8 * GIB)


def test_containers_with_shares_of_their_own_are_tenants_on_their_own_cards(start: Start) -> None:
    rig = start()
    rig.api.put(bound("p", KNOWN, None, ("x", "y"), gpu_request__x="0.7", gpu_request__y="0.6"))
    rig.kubelet.admit(rig.now("p"))
    gpus = {}
    for container in ("x", "y"):
        held = rig.kubelet.held("uid-p", container)[names.RESOURCE_CORE]
        gpus[container] = held.reply.envs["NVIDIA_VISIBLE_DEVICES"]
        assert {slot.partition("::")[0] for slot in held.devices} == {gpus[container]}
    assert sorted(gpus.values()) == ["GPU-0", "GPU-1"]
    assert sorted(spec["request"] for spec in rig.daemon.specs.values()) == [0.6, 0.7]


def test_an_init_containers_share_is_free_when_the_next_container_starts(start: Start) -> None:
    rig = start(cards(1))
    pod = bound("p", rig.cards, None, ("main",), ("prepare",), gpu_request__prepare="0.9", gpu_request__main="0.8")
    rig.api.put(pod)
    rig.kubelet.admit(rig.now("p"), start=False)
    rig.kubelet.start_container("uid-p", "prepare")
    assert [spec["request"] for spec in rig.daemon.specs.values()] == [0.9]
    done = {"name": "prepare", "state": {"terminated": {"exitCode": 0}}}
    rig.api.put({**rig.now("p"), "status": {"phase": "Pending", "initContainerStatuses": [done]}})
    rig.kubelet.start_container("uid-p", "main")
    assert [spec["request"] for spec in rig.daemon.specs.values()] == [0.8]


def test_a_pod_that_begins_anew_begins_with_the_share_of_its_init_container(start: Start) -> None:
    """Its sandbox has gone, and its kubelet begins with the first container again. That one found no room beside what
    the later ones had held, for as long as the pod was there."""
    rig = start(cards(1))
    said = {"gpu_request__prepare": "0.9", "gpu_request__main": "0.6", "gpu_request__more": "0.2"}
    rig.api.put(bound("p", rig.cards, None, ("main", "more"), ("prepare",), **said))
    rig.kubelet.admit(rig.now("p"), start=False)
    done = {"name": "prepare", "state": {"terminated": {"exitCode": 0}}}
    for _ in range(2):
        rig.kubelet.start_container("uid-p", "prepare")
        assert [spec["request"] for spec in rig.daemon.specs.values()] == [0.9]
        rig.api.put({**rig.now("p"), "status": {"phase": "Running", "initContainerStatuses": [done]}})
        for container in ("main", "more"):
            rig.kubelet.start_container("uid-p", container)
        assert sorted(spec["request"] for spec in rig.daemon.specs.values()) == [0.2, 0.6]


def test_a_share_of_several_cards_has_slots_of_each(start: Start) -> None:
    rig = start(cards(4))
    rig.api.put(bound("p", rig.cards, [1, 3], gpu_request="0.3", gpu_count="2"))
    rig.kubelet.admit(rig.now("p"))
    rig.check("p")
    held = rig.kubelet.held("uid-p", "main")[names.RESOURCE_CORE]
    assert Counter(slot.partition("::")[0] for slot in held.devices) == {"GPU-1": 30, "GPU-3": 30}


# ---- tenants come and go with their pods


def test_a_pod_that_is_gone_leaves_no_tenant_and_its_slots_are_anothers(start: Start) -> None:
    rig = start(cards(1))
    for name in ("old", "new"):
        rig.api.put(bound(name, rig.cards, [0], gpu_request="0.8"))
        rig.kubelet.admit(rig.now(name))
        rig.check(name)
        rig.api.put({**rig.now(name), "status": {"phase": "Succeeded"}})
        rig.kubelet.remove(f"uid-{name}")
    rig.call(rig.service.tenancy.tidy())
    assert not rig.daemon.specs


def test_the_tenant_of_a_pod_that_is_being_deleted_stays_while_its_container_runs(start: Start) -> None:
    rig = start()
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"))
    pod = {**rig.now("p"), "status": {**running_status("main"), "phase": "Failed"}}
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    rig.api.put(pod)
    rig.call(rig.service.tenancy.tidy())
    assert len(rig.daemon.specs) == 1
    rig.api.delete("uid-p")
    rig.call(rig.service.tenancy.tidy())
    assert not rig.daemon.specs


def test_a_pod_whose_driver_calls_pass_the_library_by_is_told_so_once(start: Start) -> None:
    rig = start()
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"))
    rig.call(rig.service.tenancy.tidy())
    assert not [event for event in rig.api.events if event[1] == names.NOT_ENFORCED]
    (tenant,) = rig.daemon.specs.values()
    tenant["ungated_lookups"] = 2  # as /state tells it
    for _ in range(2):
        rig.call(rig.service.tenancy.tidy())
    ((pod, _, message),) = [event for event in rig.api.events if event[1] == names.NOT_ENFORCED]
    assert (pod, "container main uses driver calls" in message) == ("p", True)


def test_a_tenant_is_not_removed_because_a_watch_lags(start: Start) -> None:
    rig = start()
    rig.api.deaf = True
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"))
    rig.view.pods.clear()
    rig.call(rig.service.tenancy.tidy())
    assert len(rig.daemon.specs) == 1


def test_tenants_of_others_are_left_alone(start: Start) -> None:
    rig = start()
    rig.daemon.specs["train"] = {"name": "train", "request": 0.2, "gpus": ["GPU-0"]}
    rig.call(rig.service.tenancy.tidy())
    assert list(rig.daemon.specs) == ["train"]


def test_tenants_that_the_daemon_lost_are_registered_again_for_containers_that_run(start: Start) -> None:
    rig = start()
    for name in ("runs", "ended"):
        rig.api.put(bound(name, KNOWN, [0], gpu_request="0.3"))
        rig.kubelet.admit(rig.now(name))
    rig.api.put({**rig.now("runs"), "status": running_status("main")})
    before = dict(rig.daemon.specs)
    rig.daemon.specs.clear()
    rig.stop_plugin()
    rig.start_plugin()
    rig.call(rig.service.tenancy.tidy())
    (name,) = rig.daemon.specs
    assert rig.daemon.specs[name] == before[name]
    assert name == rig.check("runs")


def test_a_kubelet_that_lost_its_record_costs_no_running_pod_its_tenant(start: Start) -> None:
    rig = start()
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"))
    (rig.kubelet.plugin_folder / "kubelet_internal_checkpoint").unlink()
    rig.call(rig.service.tenancy.tidy())
    assert len(rig.daemon.specs) == 1


def test_assigned_is_written_when_the_container_starts(start: Start) -> None:
    rig = start()
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    assert rig.now("p")["metadata"]["annotations"][names.ASSIGNED] == "false"
    rig.kubelet.admit(rig.now("p"))
    rig.call(rig.service.settle())
    assert rig.now("p")["metadata"]["annotations"][names.ASSIGNED] == "true"


# ---- complaint 9: health and back


def test_a_card_out_of_service_takes_its_slots_along_and_comes_back(start: Start) -> None:
    rig = start()
    rig.loop.call_soon_threadsafe(rig.report, ("GPU-1",))
    rig.wait_slots(100)
    devices = rig.kubelet.devices(names.RESOURCE_CORE)
    assert {name.partition("::")[0] for name, one in devices.items() if one.health == UNHEALTHY} == {"GPU-1"}
    rig.loop.call_soon_threadsafe(rig.report)
    rig.wait_slots(200)


def test_slots_tell_the_numa_node_of_their_card(start: Start) -> None:
    from gemini.kube.device import write_device
    from gemini.placement.model import Device, Node

    rig = start()
    devices = tuple(Device(m, uuid=f"GPU-{m}", memory=GIB, numa=numa) for m, numa in enumerate(("0", "1", None)))
    rig.loop.call_soon_threadsafe(rig.view.apply, "Device", "MODIFIED", write_device(Node("n", devices)))
    rig.wait_slots(300)
    listed = rig.kubelet.devices(names.RESOURCE_CORE)
    said = {name.partition("::")[0]: [n.ID for n in one.topology.nodes] for name, one in listed.items()}
    assert said == {"GPU-0": [0], "GPU-1": [1], "GPU-2": []}


# ---- gpushare's own resource


def test_A12_A13_gpushares_pods_are_matched_by_amount_and_the_oldest_assume_time_and_assigned(start: Start) -> None:
    rig = start(kind=gpushare("MiB"), told=False)
    for n, (name, amount) in enumerate((("other", "2048"), ("old", "1024"), ("young", "1024"))):
        rig.api.put(bound(name, KNOWN, [n % 2], limits={names.ALIYUN_GPU_MEM: amount}))
    answer = rig.call(rig.service.allocate([f"GPU-1::{n}" for n in range(1024)]))
    assert answer.envs["ALIYUN_COM_GPU_MEM_IDX"] == "1"  # old's, promised before young's
    rig.kubelet.admit(rig.now("old"))
    rig.call(rig.service.settle())
    annotations = rig.now("old")["metadata"]["annotations"]
    assert (annotations[names.ALIYUN_ASSIGNED], annotations[names.ASSIGNED]) == ("true", "true")
    env = rig.kubelet.env("uid-old", "main")
    assert {key: env[key] for key in env if key.startswith("ALIYUN")} == {
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "1024",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "1024",
        "ALIYUN_COM_GPU_MEM_DEV": "16384",
    }
    assert rig.check("old") in rig.daemon.specs


def test_equal_gpushare_pods_that_were_mistaken_exchange_their_own_annotation_too(start: Start) -> None:
    rig = start(kind=gpushare("MiB"), told=False)
    for n, name in enumerate(("first", "second")):
        rig.api.put(bound(name, KNOWN, [n], limits={names.ALIYUN_GPU_MEM: "1024"}))
    rig.kubelet.admit(rig.now("second"))
    rig.check("second")
    indices = [rig.now(name)["metadata"]["annotations"][names.ALIYUN_INDEX] for name in ("first", "second")]
    assert indices == ["1", "0"]


def test_a_gpushare_node_takes_no_card_based_pods(start: Start) -> None:
    rig = start(kind=gpushare("MiB"))
    assert not rig.kubelet.devices(names.RESOURCE_CORE)
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    assert not rig.view.pods


# ---- CDI


def test_a_cdi_file_stands_beside_the_allocation_and_goes_with_the_tenant(start: Start) -> None:
    rig = start()
    rig.service.options = replace(rig.options, cdi=True)
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"))
    held = rig.kubelet.held("uid-p", "main")[names.RESOURCE_CORE]
    (device,) = held.reply.cdi_devices
    (file,) = (rig.folder / "cdi").iterdir()
    assert json.loads(file.read_text())["devices"][0]["name"] == device.name.partition("=")[2]
    rig.api.delete("uid-p")
    rig.kubelet.remove("uid-p")
    rig.call(rig.service.tenancy.tidy())
    assert not list((rig.folder / "cdi").iterdir())


@pytest.mark.parametrize("left", [None, b"", b'{"cdiVersion": "0.5.0", "kind": "gem', b"\xff\xfe"])
def test_a_cdi_file_that_somebody_took_away_is_there_again_when_a_container_starts(
    start: Start, left: bytes | None
) -> None:
    """And with the node's /run, which goes when it is started again: its kubelet keeps what was allocated."""
    rig = start()
    rig.service.options = replace(rig.options, cdi=True)
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"))
    (file,) = (rig.folder / "cdi").iterdir()
    before = file.read_text()
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    rig.kubelet.start_container("uid-p", "main")
    assert file.read_text() == before


def test_no_container_starts_whose_cdi_file_cannot_be_written(start: Start) -> None:
    rig = start()
    rig.service.options = replace(rig.options, cdi=True)
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"), start=False)
    (file,) = (rig.folder / "cdi").iterdir()
    file.unlink()
    (rig.folder / "cdi").rmdir()
    (rig.folder / "cdi").write_text("a file in the way")
    with pytest.raises(Exception, match="cdi: File exists; see --cdi-dir"):
        rig.kubelet.start_container("uid-p", "main")
    assert not rig.daemon.specs
    (rig.folder / "cdi").unlink()
    rig.kubelet.start_container("uid-p", "main")
    assert file.exists()


def test_cdi_files_of_pods_that_never_began_go_with_them(start: Start) -> None:
    rig = start()
    rig.service.options = replace(rig.options, cdi=True)
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"), start=False)
    others = rig.folder / "cdi" / "others.json"
    others.touch()
    rig.call(rig.service.tenancy.tidy())
    assert len(list((rig.folder / "cdi").iterdir())) == 2
    rig.api.delete("uid-p")
    rig.kubelet.remove("uid-p")
    rig.call(rig.service.tenancy.tidy())
    assert list((rig.folder / "cdi").iterdir()) == [others]
