"""The watched cluster: what holds a card and what does not, and that history leaves no trace."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.extender.kinds import BUDGET, CLAIM, DEVICE, KINDS, NODE, POD
from gemini.extender.state import Cluster
from gemini.kube.device import write_device
from gemini.placement.model import Node
from tests.gemini.extender.world import GIB, Replica, World, admitted, cards, node_object, pod_object

Object = dict[str, Any]


def cluster(*nodes: str) -> Cluster:
    made = Cluster()
    for name in nodes:
        made.apply(NODE, "ADDED", node_object(name))
        made.apply(DEVICE, "ADDED", write_device(cards(name)))
    return made


def bound(name: str, node: str, minor: int = 0, core: int = 50, init: bool = False, **status: Any) -> Object:
    pod = pod_object(name, gpu_request=f"{core}%", gpu_memory="1Gi")
    resources = {"gemini.io/gpu-core": core, "gemini.io/gpu-memory": GIB}
    entry = {
        "minor": minor,
        "uuid": f"GPU-{node}-{minor}",
        "resources": resources,
        **({"role": "init"} if init else {}),
    }
    pod["metadata"]["annotations"]["gemini.io/allocation"] = json.dumps({"gpu": [entry]})
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running", **status}
    return pod


def used(made: Cluster, node: str, minor: int = 0) -> int:
    return made.book.snapshot()[node, "gpu", minor][0]


def test_bound_pod_with_a_record_holds_its_card_and_an_unbound_one_nothing() -> None:
    made = cluster("n1")
    made.apply(POD, "ADDED", bound("p", "n1"))
    made.apply(POD, "ADDED", pod_object("q", gpu_request="0.3"))
    assert (used(made, "n1"), made.pods["uid-q"].waits, made.pods["uid-p"].waits) == (50, True, False)


def test_a_full_card_that_has_another_minor_after_a_reboot_is_still_full() -> None:
    """The driver numbers cards as it finds them; the record names them by uuid, and that counts."""
    made = cluster("n1")
    made.apply(POD, "ADDED", bound("full", "n1", 0, core=100))
    first, second = made.devices["n1"].node.devices
    swapped = Node("n1", (replace(second, minor=0), replace(first, minor=1)))
    made.apply(DEVICE, "MODIFIED", write_device(swapped))
    assert used(made, "n1", 1) == 100, "the card is where its uuid is"
    assert used(made, "n1", 0) == 0
    fresh = cluster("n1")
    fresh.apply(DEVICE, "MODIFIED", write_device(swapped))
    fresh.apply(POD, "ADDED", bound("full", "n1", 0, core=100))
    assert fresh.picture() == made.picture()
    other = Node("n1", (replace(second, minor=0),))  # and the card itself is gone: its share holds no other card
    made.apply(DEVICE, "MODIFIED", write_device(other))
    assert used(made, "n1", 0) == 0
    made.apply(DEVICE, "MODIFIED", write_device(Node("n1", (first, second))))
    assert used(made, "n1", 0) == 100


def rewritten(pod: Object, record: object) -> Object:
    text = record if isinstance(record, str) or record is None else json.dumps(record)
    annotations = {**pod["metadata"]["annotations"], "gemini.io/allocation": text}
    annotations = {key: value for key, value in annotations.items() if value is not None}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def test_a_record_that_its_owner_emptied_frees_no_card() -> None:
    for record in (None, "{}", "not one", {"gpu": []}):
        made = cluster("n1")
        pod = bound("p", "n1", core=90)
        made.apply(POD, "ADDED", pod)
        assert (used(made, "n1", 0), used(made, "n1", 1)) == (90, 0)
        made.apply(POD, "MODIFIED", rewritten(pod, record))
        assert (used(made, "n1", 0), used(made, "n1", 1)) == (90, 90), "nobody knows which: it may be any"
        made.apply(POD, "DELETED", pod)
        assert (used(made, "n1", 0), used(made, "n1", 1)) == (0, 0)


def test_a_record_counts_as_far_as_the_pods_resources_cover_it() -> None:
    made = cluster("n1")
    everything = {
        "gpu": [
            {"minor": m, "resources": {"gemini.io/gpu-core": 100, "gemini.io/gpu-memory": 16 * GIB}} for m in (0, 1)
        ]
    }
    plain = {**pod_object("plain"), "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "x"}]}}
    made.apply(POD, "ADDED", rewritten(plain, everything))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (0, 0)
    made.apply(POD, "ADDED", rewritten(bound("p", "n1", core=20), everything))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (20, 20)


def test_terminating_pod_keeps_its_share_until_it_is_gone() -> None:
    made = cluster("n1")
    pod = bound("p", "n1")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made.apply(POD, "ADDED", pod)
    assert used(made, "n1") == 50
    made.apply(POD, "DELETED", pod)
    assert used(made, "n1") == 0


def test_finished_pod_frees_its_share_once_no_container_runs() -> None:
    made = cluster("n1")
    still = [{"name": "main", "state": {"running": {}}}]
    made.apply(POD, "ADDED", bound("p", "n1", phase="Failed", containerStatuses=still))
    assert used(made, "n1") == 50
    made.apply(POD, "MODIFIED", bound("p", "n1", phase="Failed", containerStatuses=[{"state": {"terminated": {}}}]))
    assert used(made, "n1") == 0


def test_init_share_ends_with_the_init_containers_and_comes_back_with_them() -> None:
    made = cluster("n1")
    pod = bound("p", "n1", init=True)
    pod["spec"]["restartPolicy"] = "Never"
    done = {**pod, "status": {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}]}}
    for status, core in ((pod, 50), (done, 0), (pod, 50)):
        made.apply(POD, "MODIFIED", copy.deepcopy(status))
        assert used(made, "n1") == core


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"restartPolicy": "Always"},
        {"restartPolicy": "OnFailure"},
        {"restartPolicy": "Never", "rules": [{"action": "RestartAllContainers"}]},
    ],
    ids=["default", "always", "on-failure", "by-a-rule"],
)
def test_what_init_containers_held_is_given_to_nobody_where_they_may_run_again(more: dict[str, Any]) -> None:
    """A container may end its pod's sandbox, by a signal to the process that holds it, and the kubelet begins all anew:
    what the init containers hold then others had been promised meanwhile, 30 of 16 GiB."""
    made = World()
    made.nodes("n1", count=1)
    replica, rules = Replica(made, alone=True), more.get("rules", [])
    pod = pod_object("p")
    said = {"gpu-request.first": "0.9", "gpu-memory.first": "15Gi", "gpu-request.main": "0.1", "gpu-memory.main": "1Gi"}
    pod["metadata"]["annotations"] = {f"gemini.io/{key}": value for key, value in said.items()}
    pod["spec"] |= {
        "initContainers": [{"name": "first"}],
        "containers": [{"name": "main", "restartPolicyRules": rules}],
    }
    pod["spec"] |= {key: value for key, value in more.items() if key != "rules"}
    made.put(POD, admitted(pod))
    other = made.put(POD, pod_object("q", gpu_request="0.9", gpu_memory="15Gi"))
    replica.watch()
    assert asyncio.run(replica.bind(pod, "n1")) == ""
    for initialized in ("True", "False"):  # what its kubelet says when they have ended, and when they run again
        status = {"phase": "Running", "conditions": [{"type": "Initialized", "status": initialized}]}
        made.put(POD, {**made.pod_of("uid-p"), "status": status})
        replica.watch()
        assert asyncio.run(replica.bind(other, "n1")), "the card is full"
        assert used(replica.cluster, "n1") == 90
    replica.cluster.book.check()


def test_unhealthy_and_cordoned_cards_take_nobody_and_recover() -> None:
    made = cluster("n1")
    spec = made.view(pod_object("q", gpu_request="0.3")).spec
    assert spec is not None
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1", health=False)))
    assert made.allocator.possible(spec.ask) == []
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1")))
    assert made.allocator.possible(spec.ask) == ["n1"]
    made.apply(NODE, "MODIFIED", node_object("n1", **{"gemini.io/cordon": "GPU-n1-0, GPU-n1-1"}))
    assert made.allocator.possible(spec.ask) == []


def test_B18_card_given_out_by_another_plugin_is_never_given_again() -> None:
    made = cluster("n1")
    entry = {"podUID": "theirs", "containerName": "c", "resourceName": "nvidia.com/gpu", "deviceIDs": ["GPU-n1-0::3"]}
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1"), [entry]))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (100, 0)
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1")))
    assert used(made, "n1", 0) == 0


def test_our_own_pod_in_the_checkpoint_is_counted_once() -> None:
    made = cluster("n1")
    entry = {"podUID": "uid-p", "containerName": "c", "resourceName": "gemini.io/gpu-core", "deviceIDs": ["GPU-n1-0"]}
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1"), [entry]))
    made.apply(POD, "ADDED", bound("p", "n1"))
    assert used(made, "n1") == 50
    made.apply(POD, "DELETED", bound("p", "n1"))
    assert used(made, "n1") == 100  # the kubelet says it is held still


def vendor_pod(name: str, node: str | None = None, *containers: str) -> Object:
    """A pod whose cards NVIDIA's plugin chooses: it came past the webhook."""
    pod = pod_object(name)
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod["spec"]["containers"] = [{"name": c, "image": "x", **limits} for c in containers or ("main",)]
    if node is not None:
        pod["spec"]["nodeName"] = node
    return pod


def given_out(pod: str, container: str, *uuids: str) -> Object:
    return {"podUID": pod, "containerName": container, "resourceName": "nvidia.com/gpu", "deviceIDs": list(uuids)}


def test_pod_whose_cards_another_plugin_has_yet_to_choose_holds_all_of_the_node_until_they_are_reported() -> None:
    made = cluster("n1")
    made.apply(POD, "ADDED", vendor_pod("v"))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (0, 0)
    made.apply(POD, "MODIFIED", vendor_pod("v", "n1", "a", "b"))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (100, 100)
    one = given_out("uid-v", "a", "GPU-n1-1")
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1"), [one]))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (100, 100)  # the other container's card is not known yet
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1"), [one, given_out("uid-v", "b", "GPU-n1-1::2")]))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (0, 100)


@pytest.mark.parametrize("resource", ["koordinator.sh/gpu-core", "aliyun.com/gpu-mem", "nvidia.com/gpu"])
def test_pod_that_was_put_on_a_node_with_a_resource_that_is_not_there_holds_nothing(resource: str) -> None:
    """Admission leaves other projects' pods that name their node as they are, and the kubelet leaves out resources that
    it has not: whoever may create pods could fill all cards so, and no quota would count it."""
    made = cluster("n1")
    pod = pod_object("x")
    pod["spec"] = {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {resource: "100"}}}]}
    made.apply(POD, "ADDED", pod)
    assert used(made, "n1") == 100  # what the node has is not known
    node = node_object("n1")
    node["status"]["capacity"] = {"gemini.io/gpu-core": "200", "cpu": "8"}
    made.apply(NODE, "MODIFIED", copy.deepcopy(node))
    assert used(made, "n1") == 0
    node["status"]["capacity"] |= {resource: "0"}  # its plugin rests, or has just come
    made.apply(NODE, "MODIFIED", node)
    assert used(made, "n1") == 100


@pytest.mark.parametrize(
    ("asked", "held"), [("10E", 0), ("1e19", 0), ("18446744073709551616", 0), ("18446744073709551617", 100)]
)
def test_pod_that_asks_for_more_cards_than_a_kubelet_can_count_holds_none(asked: str, held: int) -> None:
    """The kubelet takes that for none and lets the pod run, which names its node. No card of it is ever reported, so
    all of the node's were its. Of the last one the kubelet counts 1."""
    made, node, pod = cluster("n1"), node_object("n1"), vendor_pod("v", "n1")
    node["status"]["capacity"] = {"nvidia.com/gpu": "2"}
    made.apply(NODE, "MODIFIED", node)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": asked}}
    made.apply(POD, "ADDED", pod)
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (held, held)


@pytest.mark.parametrize("containers", [1, 2, 3])
@pytest.mark.parametrize("minor", [0, 7], ids=["its card", "no card"])
def test_a_record_of_more_than_a_card_has_makes_no_room_and_no_fault(containers: int, minor: int) -> None:
    """It adds up to what is asked, for as much may be asked; the book's numbers are of 64 bits."""
    most = 2**63 - 1
    made = cluster("n1")
    pod = bound("p", "n1")
    limits = {"gemini.io/gpu-core": "50", "gemini.io/gpu-memory": str(most)}
    pod["spec"]["containers"] = [{"name": f"m{i}", "resources": {"limits": limits}} for i in range(containers)]
    amounts = {"gemini.io/gpu-core": 50, "gemini.io/gpu-memory": most}
    grants = [{"minor": minor, "uuid": f"GPU-n1-{minor}", "resources": amounts, "tenant": i} for i in range(containers)]
    pod["metadata"]["annotations"]["gemini.io/allocation"] = json.dumps({"gpu": grants})
    made.apply(POD, "ADDED", pod)
    made.apply(POD, "ADDED", bound("q", "n1"))
    assert made.book.snapshot()["n1", "gpu", 0][1] >= 16 * GIB
    spec = made.view(pod_object("z", gpu_request="0.1", gpu_memory="8Gi")).spec
    assert spec is not None
    assert made.allocator.choose(spec.ask, ["n1"]) is None


def test_pod_that_ends_before_its_cards_were_reported_frees_the_node() -> None:
    for event, last in (("MODIFIED", {"phase": "Failed"}), ("DELETED", {"phase": "Pending"})):
        made = cluster("n1")
        pod = vendor_pod("v", "n1")
        made.apply(POD, "ADDED", pod)
        assert used(made, "n1") == 100
        made.apply(POD, event, {**pod, "status": last})
        assert (used(made, "n1", 0), used(made, "n1", 1)) == (0, 0)


def test_pod_with_our_record_and_another_plugins_card_holds_both() -> None:
    made = cluster("n1")
    made.apply(POD, "ADDED", bound("p", "n1", minor=0))
    made.apply(DEVICE, "MODIFIED", write_device(cards("n1"), [given_out("uid-p", "x", "GPU-n1-1", "GPU-n1-0")]))
    assert (used(made, "n1", 0), used(made, "n1", 1)) == (50, 100)


def versioned(pod: Object, version: int) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(version)}}


def test_event_older_than_what_is_known_is_passed_over() -> None:
    made = cluster("n1")
    made.apply(POD, "MODIFIED", versioned(bound("p", "n1"), 9))
    made.apply(POD, "ADDED", versioned(pod_object("p", gpu_request="0.5"), 5))
    assert used(made, "n1") == 50


def test_deleted_pod_that_a_slow_read_still_shows_stays_gone() -> None:
    made = cluster("n1")
    made.apply(POD, "ADDED", versioned(bound("p", "n1"), 5))
    made.apply(POD, "DELETED", versioned(bound("p", "n1"), 7))
    made.apply(POD, "MODIFIED", versioned(bound("p", "n1"), 5))
    assert used(made, "n1") == 0


def test_list_forgets_what_is_not_in_it_but_not_what_is_newer() -> None:
    made = cluster("n1")
    made.apply(POD, "ADDED", versioned(bound("old", "n1", core=20), 5))
    made.apply(POD, "ADDED", versioned(bound("new", "n1", core=30), 50))
    made.replace(POD, [], version=10)
    assert used(made, "n1") == 30


def test_node_without_device_object_and_device_without_node_take_nobody() -> None:
    made = Cluster()
    made.apply(NODE, "ADDED", node_object("n1"))
    made.apply(DEVICE, "ADDED", write_device(cards("n2")))
    assert list(made.book.nodes()) == []


def test_new_device_type_needs_configuration_only() -> None:
    made = Cluster(types=frozenset({"npu"}))
    made.apply(NODE, "ADDED", node_object("n1"))
    device = {"metadata": {"name": "n1"}, "spec": {"devices": [{"id": "N0", "minor": 0, "type": "npu"}]}}
    made.apply(DEVICE, "ADDED", device)
    pod = pod_object("p")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"gemini.io/npu": "50"}}
    spec = made.view(pod).spec
    assert spec is not None
    assert made.allocator.possible(spec.ask) == ["n1"]


def test_objects_that_are_none_are_passed_over() -> None:
    made = cluster("n1")
    for kind in (NODE, DEVICE, POD, BUDGET):
        for nonsense in (None, 3, [], {}, {"metadata": None}, {"metadata": {"name": 3, "uid": []}}):
            made.apply(kind, "ADDED", nonsense)
    made.apply(POD, "ADDED", {"metadata": {"uid": "u", "annotations": {"gemini.io/gpu-request": "x"}}, "spec": 3})
    assert made.pods["u"].fault


KEYS = ["metadata", "uid", "name", "namespace", "annotations", "labels", "spec", "status", "containers", "resources"]
KEYS += ["limits", "nodeName", "phase", "conditions", "type", "containerStatuses", "state", "gemini.io/gpu-request"]
KEYS += ["gemini.io/allocation", "gemini.io/cordon", "gemini.io/devices-checkpoints", "devices", "minor", "gpu"]
nonsense = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 200)
    | st.sampled_from(["", "a", "0.5", "Failed", '{"gpu":[{}]}', "[{}]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=30,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([NODE, DEVICE, POD, CLAIM, BUDGET]), nonsense, nonsense, nonsense), max_size=6)
)
def test_nothing_that_json_can_hold_makes_it_raise(objects: list[tuple[str, Any, Any, Any]]) -> None:
    made = cluster("n1")
    for kind, metadata, spec, status in objects:
        base = {"name": "n1", "uid": "u"}
        meta = {**metadata, **base} if isinstance(metadata, dict) else base
        made.apply(kind, "MODIFIED", {"metadata": meta, "spec": spec, "status": status})
        made.book.check()


# ---- restart equivalence

NODES = ("n1", "n2", "n3")


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, Object]]:
    """Events as they would come, each object in its own order: nodes, devices, pods, in states of all kinds."""
    events: list[tuple[str, str, Object]] = []
    alive: dict[tuple[str, str], Object] = {}
    for step in range(draw(st.integers(5, 40))):
        kind = draw(st.sampled_from([NODE, DEVICE, POD, POD, POD, CLAIM, BUDGET]))
        which = draw(st.integers(0, 5 if kind == POD else 2))
        key = {POD: f"uid-p{which}", CLAIM: f"uid-c{which}", BUDGET: f"b{which}"}.get(kind, NODES[which % 3])
        if alive.get((kind, key)) == {}:
            continue
        if (kind, key) in alive and draw(st.integers(0, 3)) == 0:
            gone = versioned(alive.pop((kind, key)), step + 1)
            events.append((kind, "DELETED", gone))
            if kind in (POD, CLAIM):  # a uid never comes again
                alive[kind, key] = {}
            continue
        if kind == NODE:
            made = node_object(key, **draw(st.sampled_from([{}, {"gemini.io/cordon": f"GPU-{key}-0"}])))
        elif kind == DEVICE:
            held = [
                {
                    "podUID": draw(st.sampled_from(["uid-p0", "uid-p4", "x"])),
                    "containerName": "main",
                    "deviceIDs": [f"GPU-{key}-{draw(st.integers(0, 1))}"],
                }
            ]
            made = write_device(cards(key, draw(st.integers(1, 2)), health=draw(st.booleans())), held if which else ())
        elif kind == BUDGET:
            made = {
                "metadata": {"name": key, "namespace": "ns"},
                "status": {"disruptionsAllowed": draw(st.integers(0, 2))},
            }
        elif kind == CLAIM:
            made = draw_claim(draw, f"c{which}", step)
        else:
            made = draw_pod(draw, f"p{which}", alive.get((kind, key)))
        made = versioned(made, step + 1)
        events.append((kind, "MODIFIED" if (kind, key) in alive else "ADDED", made))
        alive[kind, key] = made
    return events


def draw_claim(draw: st.DrawFn, name: str, step: int) -> Object:
    """A claim without an allocation, with one that waits, or with an answer."""
    world = World()
    world.shares = step
    made = world.allocate(name, draw(st.sampled_from(NODES)), draw(st.integers(0, 1)), draw(st.sampled_from([20, 60])))
    word = draw(st.sampled_from(["", "promised", "refused", "deallocated"]))
    if word == "deallocated":
        return {**made, "status": {}}
    (result,) = made["status"]["allocation"]["devices"]["results"]
    said = [{"type": f"gemini.io/{word}", "status": "True"}]
    made["status"]["devices"] = [{key: result[key] for key in ("driver", "pool", "device", "shareID")}]
    made["status"]["devices"][0]["conditions"] = said
    return made


def draw_pod(draw: st.DrawFn, name: str, before: Object | None) -> Object:
    waits = before is None or not before["spec"].get("nodeName")
    if waits and draw(st.booleans()):  # for the first time, or preempting, or with another share than before
        said = draw(st.sampled_from([{}, {"pod_group": "g", "pod_group_size": "2"}]))
        pod = pod_object(name, gpu_request=draw(st.sampled_from(["0.3", "0.5", "1.5"])), **said)
        pod["status"]["nominatedNodeName"] = draw(st.sampled_from(["", *NODES]))
        return pod
    node = (before or {}).get("spec", {}).get("nodeName") or draw(st.sampled_from(NODES))
    pod = bound(name, node, draw(st.integers(0, 1)), draw(st.sampled_from([20, 60])), draw(st.booleans()))
    if name in ("p4", "p5"):  # one that NVIDIA's plugin serves as well, or alone
        pod["spec"]["containers"] = vendor_pod(name)["spec"]["containers"]
        if name == "p5":
            pod["metadata"]["annotations"] = {}
    record = (before or {}).get("metadata", {}).get("annotations", {}).get("gemini.io/allocation")
    if record:
        pod["metadata"]["annotations"]["gemini.io/allocation"] = record
    pod["status"]["phase"] = draw(st.sampled_from(["Pending", "Running", "Succeeded"]))
    pod["spec"]["restartPolicy"] = draw(st.sampled_from(["Always", "Never"]))
    if draw(st.booleans()):
        pod["status"]["conditions"] = [{"type": "Initialized", "status": "True"}]
    if draw(st.booleans()):
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod


@settings(max_examples=100, deadline=None)
@given(histories(), st.data())
def test_B12_rebuilt_state_equals_the_live_one_after_any_events(
    events: list[tuple[str, str, Object]], data: st.DataObject
) -> None:
    live = Cluster()
    objects: dict[tuple[str, str], Object] = {}
    for kind, event, given_object in events:
        live.apply(kind, event, copy.deepcopy(given_object))
        if data.draw(st.integers(0, 3)) == 0:  # a read brings a pod as it was, late or for the second time
            past = events[: events.index((kind, event, given_object)) + 1]
            seen = [o for k, e, o in past if k == POD and e != "DELETED"]
            if seen:
                live.apply(POD, "MODIFIED", copy.deepcopy(data.draw(st.sampled_from(seen))))
        key = (kind, _key(kind, given_object))
        if event == "DELETED":
            objects.pop(key, None)
        else:
            objects[key] = given_object
        live.book.check()
        if data.draw(st.integers(0, 9)) == 0:  # a watch breaks: all of a kind is listed anew
            kind = data.draw(st.sampled_from(KINDS))
            live.replace(kind, listed(kind, objects), len(events))
    fresh = Cluster()
    for kind in data.draw(st.permutations(KINDS)):
        fresh.replace(kind, listed(kind, objects), 1000)
    assert fresh.picture() == live.picture()


def listed(kind: str, objects: dict[tuple[str, str], Object]) -> list[Object]:
    return [copy.deepcopy(o) for (k, _), o in objects.items() if k == kind]


def _key(kind: str, given_object: Object) -> str:
    return str(given_object["metadata"]["uid" if kind in (POD, CLAIM) else "name"])
