"""The verbs: binding, what gives back, groups, and several replicas that never promise a share twice."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from gemini.extender import grouproom, preempt, service
from gemini.extender.codec import FilterRequest, PreemptRequest, Victims, write_filter
from gemini.extender.kinds import DEVICE, NODE, POD
from gemini.extender.reserve import AWAITED_NS, BIND_NS, GROUP_NS, SECOND
from gemini.extender.service import EXPLAINED, FEW_SHARES, PREEMPT_NS, UNSEEN_NS
from gemini.kube.answer import Refused, Unanswered
from gemini.kube.device import write_device
from gemini.kube.names import ALLOCATION
from gemini.placement.written import Written
from tests.gemini.extender import binders
from tests.gemini.extender.world import GIB, Replica, World, admitted, cards, node_object, pod_object

Object = dict[str, Any]
OPERATIONS = 2_000  # 10^5 of them: python -m bench.replicas


def world(*nodes: str, **more: Any) -> World:
    made = World()
    made.nodes(*(nodes or ("n1",)), **more)
    return made


@pytest.mark.parametrize(("cards_", "ask"), [(1, "0.6"), (1, "1.0"), (2, "1.0"), (1, "0.3")])
@pytest.mark.parametrize("policies", [(), ("binpack",)])
@pytest.mark.parametrize("shortlist", [0, 3, 100])
def test_names_as_they_are_written_are_answered_as_a_list_of_them_is(
    cards_: int, ask: str, policies: tuple[str, ...], shortlist: int
) -> None:
    made = world(*(f"n{i}" for i in range(12)), count=cards_)
    replica = Replica(made, policies=policies, shortlist=shortlist)
    asked = ["n11", "nowhere", *(f"n{i}" for i in range(11))]

    async def run() -> None:
        for i in (3, 4, 7, 11):
            assert await replica.bind(made.put(POD, pod_object(f"q{i}", gpu_request="0.5")), f"n{i}") == ""
        replica.watch()
        written, said = Written.of(asked), []
        assert written is not None
        for names in (tuple(asked), written):
            pod = made.put(POD, pod_object(f"p{len(said)}", gpu_request=ask))
            replica.watch()
            verdict = await replica.service.filter(FilterRequest(pod, names))
            said.append((list(verdict.passed), verdict.failed, list(verdict.rest)))
            replica.cluster.reservations.drop(f"uid-p{len(said) - 1}")
        assert said[0] == said[1]

    asyncio.run(run())


def test_bind_writes_one_binding_with_uid_and_annotations_and_is_idempotent() -> None:
    made = world()
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5"))

    async def run() -> None:
        assert (await replica.filter(pod, "n1", "n2")).passed == ["n1"]
        assert await replica.bind(pod, "n1") == ""
        assert await replica.bind(pod, "n1") == ""  # before the watch knows
        replica.watch()
        assert await replica.bind(pod, "n1") == ""
        assert "bound to n1 already" in await replica.bind(pod, "n2")

    asyncio.run(run())
    said = made.pod_of("uid-p")["metadata"]["annotations"]
    assert made.bindings == [("uid-p", "n1")]
    assert made.promised() == {("n1", 0): (50, 8 * GIB)}
    assert (said["gemini.io/assigned"], said["gemini.io/assume-time"]) == ("false", "1000")
    assert len(replica.cluster.reservations) == 0
    replica.cluster.book.check()


def test_two_calls_at_once_for_one_pod_make_one_binding() -> None:
    made = world()
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5"))
    replica.watch()

    async def run() -> list[str]:
        return await asyncio.gather(*(replica.bind(pod, "n1") for _ in range(4)))

    assert asyncio.run(run()) == [""] * 4
    assert len(made.bindings) == 1


@pytest.mark.parametrize("fault", [Refused(403, "no"), Refused(409, "another uid"), Refused(404, "gone")])
def test_binding_that_is_refused_gives_back_what_was_reserved(fault: Refused) -> None:
    made = world()
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5"))
    made.binds_refused = [fault]

    async def run() -> None:
        assert str(fault) in await replica.bind(pod, "n1")
        assert len(replica.cluster.reservations) == 0
        await asyncio.sleep(0.01)  # the ledger's own writer
        assert await replica.bind(pod, "n1") == ""

    asyncio.run(run())
    assert made.promised() == {("n1", 0): (50, 8 * GIB)}


def test_binding_nobody_answered_for_keeps_its_cards_until_its_fate_is_known() -> None:
    made = world()
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.7"))
    other = made.put(POD, pod_object("q", gpu_request="0.7", gpu_uuid="GPU-n1-0"))
    made.binds_refused = [Unanswered("time-out")]

    async def run() -> None:
        replica.watch()
        assert "time-out" in await replica.bind(pod, "n1")
        assert "InsufficientCore" in await replica.bind(other, "n1")
        replica.now_ns += BIND_NS
        await replica.service.sweep()
        assert await replica.bind(other, "n1") == ""

    asyncio.run(run())


def test_binding_that_was_done_though_the_answer_was_lost_is_found_out() -> None:
    made = world()
    replica = Replica(made, alone=True)
    pod = made.put(POD, pod_object("p", gpu_request="0.7"))
    replica.watch()
    original = made.bind

    async def lost(*args: Any) -> None:
        await original(*args)
        raise Unanswered("cut off")

    made.bind = lost  # type: ignore[method-assign]
    assert asyncio.run(replica.bind(pod, "n1")) == ""
    assert len(made.bindings) == 1


def test_refusal_names_the_reason_for_every_card() -> None:
    made = world()
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5", gpu_memory="64Gi"))
    replica.watch()
    verdict = asyncio.run(replica.filter(pod, "n1", "unknown"))
    assert verdict.passed == []
    assert verdict.failed["n1"][0] == "InsufficientMemory"
    assert "0: memory: 16Gi free of 16Gi, 64Gi asked" in verdict.failed["n1"][1]
    assert verdict.failed["unknown"][0] == "InsufficientDevices"
    assert "InsufficientMemory on 1 node" in replica.service.waiting["uid-p"]


def test_filter_answers_with_the_best_of_many_nodes_unless_the_pod_prefers_some_itself() -> None:
    names = [f"n{i}" for i in range(8)]
    made = world(*names)
    replica = Replica(made, policies=("binpack",), shortlist=3)
    for i in (2, 5):
        made.put(POD, pod_object(f"old{i}", gpu_request="0.5"))
    plain, picky = pod_object("p", gpu_request="0.2"), pod_object("q", gpu_request="0.2")
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
    picky["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}

    async def run() -> None:
        for i in (2, 5):
            assert await replica.bind(made.pod_of(f"uid-old{i}"), f"n{i}") == ""
        replica.watch()
        verdict = await replica.filter(made.put(POD, plain), *names)
        assert verdict.passed == ["n2"]  # the first of two that are in use, and as good as each other
        assert not verdict.failed
        assert (await replica.filter(made.put(POD, picky), *names)).passed == names
        few = await replica.filter(made.put(POD, pod_object("r", gpu_request="0.2")), *names[:3])
        assert few.passed == names[:3]

    asyncio.run(run())


def test_pods_that_are_on_their_way_to_one_node_do_not_meet_there() -> None:
    """kube-scheduler asks about the next pods before it binds the first: they were sent after the same cards."""
    names = [f"n{i}" for i in range(8)]
    made = world(*names, count=1)
    replica = Replica(made, policies=("binpack",), shortlist=3)
    pods = [made.put(POD, pod_object(f"p{i}", gpu_request="0.4")) for i in range(4)]

    async def run() -> None:
        replica.watch()
        sent = [(await replica.filter(pod, *names)).passed for pod in pods]
        assert sent == [["n0"], ["n0"], ["n1"], ["n1"]]
        assert await asyncio.gather(*(replica.bind(pod, at[0]) for pod, at in zip(pods, sent, strict=True))) == [""] * 4

    asyncio.run(run())
    replica.watch()
    assert len(replica.cluster.reservations) == 0
    replica.cluster.book.check()


@pytest.mark.parametrize("change", ["nothing", "promised", "unhealthy", "gone"])
def test_what_filter_chose_is_bound_only_where_it_is_as_good_as_chosen_now(change: str) -> None:
    names = [f"n{i}" for i in range(8)]
    made = world(*names)
    replica = Replica(made, policies=("binpack", "minor"), shortlist=3)
    pod = made.put(POD, pod_object("p", gpu_request="0.4"))
    amounts = {"gemini.io/gpu-core": 80, "gemini.io/gpu-memory": GIB}
    own = {"allocation": json.dumps({"gpu": [{"minor": 0, "resources": amounts}]})}

    async def run() -> None:
        replica.watch()
        assert (await replica.filter(pod, *names)).passed == ["n0"]
        if change == "promised":
            bound = pod_object("q", gpu_request="0.8", gpu_memory="1Gi", **own)
            made.put(POD, {**bound, "spec": {**bound["spec"], "nodeName": "n0"}})
        elif change != "nothing":
            both = cards("n0").devices
            left = (replace(both[0], health=False), both[1]) if change == "unhealthy" else both[1:]
            made.put(DEVICE, write_device(replace(cards("n0"), devices=left)))
        replica.watch()
        assert await replica.bind(pod, "n0") == ""

    asyncio.run(run())
    record = json.loads(made.pod_of("uid-p")["metadata"]["annotations"][ALLOCATION])
    assert [entry["minor"] for entry in record["gpu"]] == [0 if change == "nothing" else 1]


def test_cards_of_a_pod_that_is_not_bound_where_it_was_sent_are_free_again() -> None:
    names = [f"n{i}" for i in range(8)]
    made = world(*names, count=1)
    replica = Replica(made, policies=("binpack",), shortlist=3)
    one, two, three, four = (made.put(POD, pod_object(f"p{i}", gpu_request="1")) for i in range(4))
    held = replica.cluster.reservations

    async def run() -> None:
        replica.watch()
        assert (await replica.filter(one, *names)).passed == ["n0"]
        assert (await replica.filter(one, *names)).passed == names, "it comes again, and is held nothing meanwhile"
        assert len(held) == 0
        assert (await replica.filter(two, *names)).passed == ["n0"]
        assert await replica.bind(two, "n5") == "", "the scheduler's word counts"
        assert (await replica.filter(three, *names)).passed == ["n0"]
        made.delete(POD, "uid-p2")
        replica.watch()
        assert (await replica.filter(four, *names)).passed == ["n0"], "who is deleted holds nothing"
        before = replica.cluster.releases
        replica.now_ns += AWAITED_NS
        await replica.service.sweep()
        assert len(held) == 0
        assert replica.cluster.releases > before, "who was refused for it is told that there is room"
        assert await replica.bind(four, "n0") == "", "late, and not too late"

    asyncio.run(run())
    replica.watch()
    replica.cluster.book.check()


def test_scheduler_may_ask_about_a_pod_that_it_does_not_know_as_bound_yet() -> None:
    names = [f"n{i}" for i in range(8)]
    made = world(*names)
    replica = Replica(made, policies=("binpack",), shortlist=3)
    pod = made.put(POD, pod_object("p", gpu_request="0.4"))
    replica.watch()
    assert asyncio.run(replica.bind(pod, "n2")) == ""
    replica.watch()
    assert asyncio.run(replica.filter(pod, *names)).passed == ["n2"]
    assert len(replica.cluster.reservations) == 0


def test_a_dry_run_holds_nothing() -> None:
    names = [f"n{i}" for i in range(8)]
    made = world(*names)
    replica = Replica(made, policies=("binpack",), shortlist=3)
    pod = made.put(POD, pod_object("p", gpu_request="0.4"))
    verdict = asyncio.run(replica.service.filter(FilterRequest(pod, tuple(names)), effect=False))
    assert verdict.passed == names
    assert len(replica.cluster.reservations) == 0


def test_without_policies_filter_leaves_the_choice_among_as_many_nodes_as_it_may_name() -> None:
    names = [f"n{i}" for i in range(8)]
    replica = Replica(world(*names), shortlist=3)
    verdict = asyncio.run(replica.filter(replica.world.put(POD, pod_object("p", gpu_request="0.2")), *names))
    assert verdict.passed == names[:3]


def test_pod_that_comes_back_unbound_is_told_of_all_nodes() -> None:
    names = [f"n{i}" for i in range(8)]
    made = world(*names)
    replica = Replica(made, policies=("binpack",), shortlist=3)
    pod, other = (made.put(POD, pod_object(name, gpu_request="0.2")) for name in ("p", "q"))

    async def run() -> None:
        replica.watch()
        assert await replica.bind(other, "n4") == ""
        replica.watch()
        assert (await replica.filter(pod, *names)).passed == ["n4"]
        assert (await replica.filter(pod, *names)).passed == names  # something there was not to the scheduler's mind
        assert await replica.bind(pod, "n6") == ""
        assert (await replica.filter(made.put(POD, pod_object("r", gpu_request="0.2")), *names)).passed == ["n4"]

    asyncio.run(run())


def test_best_nodes_are_none_that_a_taint_advises_against_where_others_will_do() -> None:
    names = [f"n{i}" for i in range(8)]
    made = world(*names)
    for name in names[:6]:
        taint = {"key": "maintenance", "effect": "PreferNoSchedule"}
        made.put(NODE, {**node_object(name), "spec": {"taints": [taint]}})
    replica = Replica(made, shortlist=3)

    async def run() -> None:
        pod = made.put(POD, pod_object("p", gpu_request="0.2"))
        assert (await replica.filter(pod, *names)).passed == names[6:]
        pod = made.put(POD, pod_object("q", gpu_request="0.2"))
        assert (await replica.filter(pod, *names[:6])).passed == names[:3]

    asyncio.run(run())


@pytest.mark.parametrize(
    "said",
    [
        {"pod_group": "g" * 200_000, "pod_group_size": "2"},
        {"gpu_model": ",".join(f"model-{i}" for i in range(15_000))},
        {"gpu_model": ",".join("m" * 253 + str(i) for i in range(250))},
    ],
    ids=["group", "models", "long models"],
)
def test_what_a_pod_says_makes_no_answer_long(said: dict[str, str]) -> None:
    """The reason stands in the answer for each node: 100 MB at 500 of them by the name of a group, 430 MB and a minute
    at 300 by the names of models."""
    names = [f"n{i}" for i in range(100)]
    made = world(*names, count=8)
    replica = Replica(made)
    pod = made.put(POD, pod_object("p", gpu_request="0.5", **said))
    request = FilterRequest(pod, names)
    verdict = asyncio.run(replica.service.filter(request))
    assert not verdict.passed
    assert len(write_filter(request, verdict.passed, verdict.failed, verdict.rest)) < 1_100 * len(names)
    assert all(len(text) < 1_100 for text in replica.service.waiting.values())


def test_malformed_pod_is_refused_with_field_and_mend() -> None:
    replica = Replica(world())
    verdict = asyncio.run(replica.filter(pod_object("p", gpu_request="1.5"), "n1"))
    assert verdict.failed["n1"][0] == "Invalid"
    assert "gemini.io/gpu-request: 1.5 is above 1" in verdict.failed["n1"][1]


def test_pod_that_wants_no_card_passes_and_is_bound_plainly() -> None:
    made = world()
    replica = Replica(made)
    pod = made.put(POD, pod_object("p"))
    replica.watch()

    async def run() -> None:
        assert (await replica.filter(pod, "n1", "x")).passed == ["n1", "x"]
        assert await replica.bind(pod, "x") == ""

    asyncio.run(run())
    assert made.bindings == [("uid-p", "x")]


# ---- groups


def group(made: World, size: int, count: int, request: str = "100%") -> list[Object]:
    return [
        made.put(POD, pod_object(f"g{i}", gpu_request=request, pod_group="g", pod_group_size=str(size)))
        for i in range(count)
    ]


def test_group_of_four_with_room_for_three_binds_nobody() -> None:
    made = world("n1", count=3)
    replica = Replica(made)
    pods = group(made, 4, 4)
    replica.watch()

    async def run() -> None:
        for pod in pods:
            verdict = await replica.filter(pod)
            assert verdict.failed["n1"][0] == "GroupDoesNotFit"
            assert "not placed" in await replica.bind(pod, "n1")

    asyncio.run(run())
    assert (made.bindings, len(replica.cluster.reservations)) == ([], 0)


def test_incomplete_group_waits_and_a_complete_one_goes_to_one_node() -> None:
    made = world("n1", "n2", count=2)
    replica = Replica(made)
    first = group(made, 2, 1)[0]
    replica.watch()

    async def run() -> None:
        assert (await replica.filter(first)).failed["n1"][0] == "GroupIncomplete"
        second = group(made, 2, 2)[1]
        replica.watch()
        node = (await replica.filter(first)).passed
        assert len(node) == 1
        assert (await replica.filter(second)).passed == node
        assert await asyncio.gather(*(replica.bind(pod, node[0]) for pod in (first, second))) == ["", ""]

    asyncio.run(run())
    assert len({node for _, node in made.bindings}) == 1


def test_group_reservation_is_gone_after_the_time_out() -> None:
    made = world("n1", count=4)
    replica = Replica(made)
    pods = group(made, 4, 4)
    replica.watch()

    async def run() -> None:
        assert (await replica.filter(pods[0])).passed == ["n1"]
        assert len(replica.cluster.reservations) == 4
        replica.now_ns += GROUP_NS - 1
        await replica.service.sweep()
        assert len(replica.cluster.reservations) == 4
        replica.now_ns += 1
        await replica.service.sweep()
        await asyncio.sleep(0.01)
        assert len(replica.cluster.reservations) == 0
        made.put(POD, pod_object("other", gpu_request="100%", gpu_count="4"))
        replica.watch()
        assert (await replica.filter(made.pod_of("uid-other"))).passed == ["n1"]
        assert await replica.bind(made.pod_of("uid-other"), "n1") == ""

    asyncio.run(run())


def test_second_replica_takes_over_what_the_first_chose_for_a_group() -> None:
    made = world("n1", "n2", count=2)
    one, two = Replica(made, "one"), Replica(made, "two")
    pods = group(made, 2, 2)
    one.watch(), two.watch()

    async def run() -> None:
        node = (await one.filter(pods[0])).passed
        assert (await two.filter(pods[1], *reversed(two.known()))).passed == node
        assert await asyncio.gather(two.bind(pods[1], node[0]), one.bind(pods[0], node[0])) == ["", ""]

    asyncio.run(run())
    assert max(core for core, _ in made.promised().values()) == 100
    assert len({node for _, node in made.bindings}) == 1


# ---- several replicas


def test_replica_that_is_behind_learns_of_the_others_promise_before_it_binds() -> None:
    made = world("n1", count=1)
    one, two = Replica(made, "one"), Replica(made, "two")
    pods = [made.put(POD, pod_object(name, gpu_request="0.7")) for name in ("p", "q")]
    one.watch(), two.watch()

    async def run() -> None:
        assert await one.bind(pods[0], "n1") == ""
        assert "InsufficientCore" in await two.bind(pods[1], "n1")  # it has watched nothing of that

    asyncio.run(run())
    assert made.promised() == {("n1", 0): (70, 70 * 16 * GIB // 100)}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_replicas_and_eight_binders_never_promise_more_than_a_card(seed: int) -> None:
    outcome = binders.run(seed, OPERATIONS)
    assert outcome.sound, outcome
    assert outcome.peak_core == 100  # it was fought for
    assert outcome.bound > OPERATIONS // 50
    assert outcome.restarts


def test_replicas_that_keep_their_promises_to_themselves_would_be_found_out() -> None:
    assert binders.run(1, 500, alone=True).peak_core > 100


# ---- beside another device plugin


def vendor_pod(name: str) -> Object:
    """One that came past the webhook: NVIDIA's own plugin serves it."""
    pod = pod_object(name)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return pod


def test_pod_of_another_plugin_is_bound_to_a_node_that_has_no_device_of_ours() -> None:
    made = world("n1")
    made.put(NODE, {"metadata": {"name": "theirs", "uid": "uid-theirs"}})
    replica = Replica(made)

    async def run() -> None:
        pod = made.put(POD, vendor_pod("v"))
        replica.watch()
        assert (await replica.filter(pod, "n1", "theirs")).passed == ["n1", "theirs"]
        assert await replica.bind(pod, "theirs") == ""
        assert made.pod_of("uid-v")["spec"]["nodeName"] == "theirs"

    asyncio.run(run())


def test_pod_of_another_plugin_goes_where_nobody_shares_a_card_and_then_nobody_shares_one_there() -> None:
    made = world("n1", "n2", count=2)
    replica = Replica(made)

    async def run() -> None:
        assert await replica.bind(made.put(POD, pod_object("p", gpu_request="0.2")), "n1") == ""
        replica.watch()
        pod = made.put(POD, vendor_pod("v"))
        verdict = await replica.filter(pod)
        assert verdict.passed == ["n2"]
        assert "1 pods or claims share cards here" in verdict.failed["n1"][1]
        assert "share cards here" in await replica.bind(pod, "n1")
        assert await replica.bind(pod, "n2") == ""
        assert "gemini.io/allocation" not in made.pod_of("uid-v")["metadata"]["annotations"]
        late = made.put(POD, pod_object("q", gpu_request="0.2"))
        assert "InsufficientCore" in await replica.bind(late, "n2")  # its card is not known yet
        replica.watch()
        assert "InsufficientCore" in await replica.bind(late, "n2")
        entry = {"podUID": "uid-v", "containerName": "main", "deviceIDs": ["GPU-n2-1"]}
        made.put(DEVICE, write_device(cards("n2"), [entry]))
        replica.watch()
        assert await replica.bind(late, "n2") == ""
        assert len(replica.cluster.reservations) == 1  # what was just bound, not seen yet

    asyncio.run(run())
    assert made.promised() == {("n1", 0): (20, 20 * 16 * GIB // 100), ("n2", 0): (20, 20 * 16 * GIB // 100)}


def test_scheduler_is_woken_when_there_is_room_for_who_waits_and_not_otherwise() -> None:
    made = world("n1", count=1)
    replica = Replica(made)

    async def run() -> None:
        first = made.put(POD, pod_object("first", gpu_request="0.8"))
        assert await replica.bind(first, "n1") == ""
        late = made.put(POD, pod_object("late", gpu_request="0.5"))
        replica.watch()
        await replica.service.sweep()
        assert not (await replica.filter(late)).passed
        await replica.service.sweep()
        assert made.woken == 0  # nothing was given back
        made.delete(POD, "uid-first")
        assert not (await replica.filter(late)).passed  # the scheduler has seen it first, and asks too early
        replica.watch()
        await replica.service.sweep()
        assert made.woken == 1
        await replica.service.sweep()
        assert made.woken == 1
        assert await replica.bind(late, "n1") == ""
        replica.watch()
        made.delete(POD, "uid-late")
        replica.watch()
        await replica.service.sweep()
        assert made.woken == 1  # nobody waits
        over = made.put(POD, pod_object("over", gpu_request="0.1", gpu_memory="20Gi"))
        replica.watch()
        assert not (await replica.filter(over)).passed
        made.put(DEVICE, write_device(cards("n1", 2)))  # of this the scheduler sees nothing
        replica.watch()
        await replica.service.sweep()
        assert made.woken == 2

    asyncio.run(run())


# ---- preempt, dry-run, state


def test_scheduler_is_woken_for_a_member_that_asked_before_the_watch_had_seen_the_others() -> None:
    made = world("n1")
    replica = Replica(made)
    members = [pod_object(f"m{i}", gpu_request="0.4", pod_group="g", pod_group_size="2") for i in range(2)]

    async def run() -> None:
        await replica.service.sweep()
        first, last = (made.put(POD, member) for member in members)
        assert "has 1 of its 2 pods" in (await replica.filter(last)).failed["n1"][1]
        await replica.service.sweep()
        assert made.woken == 0  # nobody new is known
        replica.watch()
        await replica.service.sweep()
        assert made.woken == 1
        for member in (last, first):
            assert (await replica.filter(member)).passed == ["n1"]
        assert await asyncio.gather(*(replica.bind(member, "n1") for member in (last, first))) == ["", ""]

    asyncio.run(run())
    assert len(made.bindings) == 2


def test_pod_that_the_watch_never_shows_is_forgotten_in_the_end() -> None:
    replica = Replica(world("n1", count=1))

    async def run() -> None:
        assert not (await replica.filter(pod_object("p", gpu_request="0.5", gpu_memory="99Gi"))).passed
        await replica.service.sweep()
        assert list(replica.service.waiting) == ["uid-p"]
        replica.now_ns += UNSEEN_NS + 1
        await replica.service.sweep()
        assert not replica.service.waiting

    asyncio.run(run())


def test_preempt_answers_victims_on_the_card_and_leaves_out_hopeless_nodes() -> None:
    made = world("n1", "n2", count=1)
    replica = Replica(made)
    low = made.put(POD, pod_object("low", gpu_request="0.8"))
    replica.watch()
    asyncio.run(replica.bind(low, "n1"))
    replica.watch()
    high = pod_object("high", priority=10, gpu_request="0.5")
    asked = PreemptRequest(high, {"n1": Victims(("uid-low",)), "n2": Victims(("nobody",))})
    assert replica.service.preempt(asked) == {"n1": Victims(("uid-low",))}


def test_preempt_ends_in_time_however_long_its_nodes_take() -> None:
    """A pod of four cards held the extender for 5.5 s at 100 nodes of 8, one of 100 shares for 4.9 s."""
    names = [f"n{i}" for i in range(8)]
    made = world(*names)
    replica = Replica(made)
    for i, name in enumerate(names):
        assert not asyncio.run(replica.bind(made.put(POD, pod_object(f"low{i}", gpu_count="2")), name))
        replica.watch()
    high = pod_object("high", priority=100, gpu_count="2")
    request = PreemptRequest(high, {name: Victims((f"uid-low{i}",)) for i, name in enumerate(names)})
    assert len(replica.service.preempt(request)) == len(names)
    steps = iter(range(10**6))
    replica.service._clock_ns = lambda: next(steps) * PREEMPT_NS // 5  # each look at a node takes a fifth of it
    assert list(replica.service.preempt(request)) == names[:4]


def test_preempt_ends_in_time_on_one_node_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of eight cards may be had in 70 ways, each of which is weighed with all pods of the node: beside 200 small
    ones, which anybody may have there, that took seconds, and only between nodes it was seen that the time was up."""
    made, node = World(), node_object("n1")
    node["status"]["allocatable"]["gemini.io/gpu-core"] = "800"
    made.put(NODE, node)
    made.put(DEVICE, write_device(cards("n1", 8)))
    replica = Replica(made)
    for i in range(8):
        assert not asyncio.run(replica.bind(made.put(POD, pod_object(f"low{i}", gpu_request="1")), "n1"))
        replica.watch()
    request = PreemptRequest(pod_object("high", priority=100, gpu_count="4"), {"n1": Victims(("uid-low0",))})
    weighed, real = [], preempt._plan

    def plan(*given: Any) -> Any:
        weighed.append(given)
        return real(*given)

    monkeypatch.setattr(preempt, "_plan", plan)
    assert len(replica.service.preempt(request)["n1"].uids) == 4
    assert len(weighed) == 70
    weighed.clear()
    steps = iter(range(10**6))
    replica.service._clock_ns = lambda: (
        next(steps) * PREEMPT_NS // 5
    )  # each look at the clock comes a fifth of it later
    assert len(replica.service.preempt(request)["n1"].uids) == 4
    assert len(weighed) < 6


def test_preemptors_of_a_namespace_that_find_nobody_take_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look for victims holds everybody for up to a quarter of a second, and kube-scheduler asks for one whenever
    it tries such a pod: of a hundred pods of one namespace it had one made after the other, without an end."""
    made = world("n1", count=1)
    replica = Replica(made)
    assert not asyncio.run(replica.bind(made.put(POD, pod_object("low", gpu_request="0.5")), "n1"))
    replica.watch()
    victims = {"n1": Victims(("uid-low",))}
    never = PreemptRequest(pod_object("high", priority=100, gpu_request="0.9", gpu_model="none-such"), victims)
    theirs = pod_object("theirs", priority=100, gpu_request="0.9")
    theirs["metadata"]["namespace"] = "theirs"
    now_ns = 0

    def clock() -> int:  # each look at the clock takes a while, and so does each look for victims
        nonlocal now_ns
        now_ns += PREEMPT_NS // 4
        return now_ns

    replica.service._clock_ns = clock
    looked: list[str] = []
    real = service.victims_on

    def victims_on(cluster: Any, pod: Any, *rest: Any) -> Any:
        looked.append(pod.namespace)
        return real(cluster, pod, *rest)

    monkeypatch.setattr(service, "victims_on", victims_on)
    for _ in range(400):
        assert replica.service.preempt(never) == {}
        now_ns += PREEMPT_NS // 4  # of others
    spent_ns = 2 * (PREEMPT_NS // 4) * len(looked)
    assert len(looked) > 3
    assert spent_ns < now_ns // 8
    assert replica.service.preempt(PreemptRequest(theirs, victims)) == victims, "another namespace has its own part"
    before = replica.cluster.releases
    now_ns += 100 * PREEMPT_NS
    asyncio.run(replica.service.sweep())
    assert replica.cluster.releases > before, "who was turned away is asked about again"


def test_who_finds_nobody_to_evict_keeps_no_other_of_its_namespace_from_looking() -> None:
    """kube-scheduler tries the pods of a namespace in one order, whenever they are woken: the first of them, which
    finds nobody, had all of the time that there was."""
    made = world("n1", count=1)
    replica = Replica(made)
    assert not asyncio.run(replica.bind(made.put(POD, pod_object("low", gpu_request="0.5")), "n1"))
    replica.watch()
    victims = {"n1": Victims(("uid-low",))}
    never = pod_object("never", priority=200, gpu_request="0.9", gpu_model="none-such")
    could = pod_object("could", priority=100, gpu_request="0.9")
    for pod in (never, could):
        made.put(POD, pod)
    replica.watch()
    now_ns = 0

    def clock() -> int:  # each look for victims takes a while
        nonlocal now_ns
        now_ns += PREEMPT_NS // 2
        return now_ns

    replica.service._clock_ns = clock
    found = []
    for _ in range(8):
        assert replica.service.preempt(PreemptRequest(never, victims)) == {}
        found.append(replica.service.preempt(PreemptRequest(could, victims)))
        before = replica.cluster.releases
        now_ns += 20 * PREEMPT_NS
        asyncio.run(replica.service.sweep())
        if len(found) == 1:
            assert replica.cluster.releases > before, "who was turned away is asked about again"
    assert victims in found


def shares(name: str, many: int, namespace: str = "ns", **said: str) -> dict[str, Any]:
    """A pod of so many shares, of a percent each, and of the last of them this."""
    pod = pod_object(name)
    pod["metadata"]["namespace"] = namespace
    pod["spec"]["containers"] = [{"name": f"c{i}", "image": "x"} for i in range(many)]
    annotations = {f"gemini.io/gpu-request.c{i}": "1%" for i in range(many)}
    annotations |= {f"gemini.io/{key.replace('_', '-')}.c{many - 1}": value for key, value in said.items()}
    pod["metadata"]["annotations"] = annotations
    return admitted(pod)


def test_pods_of_many_shares_take_a_part_of_the_time_and_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look for such a pod takes a tenth of a second and more: a hundred of them that fit nowhere took all there is,
    whenever something had changed."""
    made = world("n1", count=2)
    replica = Replica(made, alone=True)
    pods = [made.put(POD, shares(f"p{i}", 20 + i, gpu_model="none-such")) for i in range(20)]
    theirs, few = made.put(POD, shares("q", 20, namespace="theirs")), made.put(POD, shares("few", FEW_SHARES))
    replica.watch()
    looked: list[str] = []
    real = replica.service._judge

    def judge(pod: Any, *rest: Any) -> Any:
        looked.append(pod.uid)
        replica.now_ns += SECOND // 5
        return real(pod, *rest)

    monkeypatch.setattr(replica.service, "_judge", judge)

    async def run() -> None:
        for _ in range(600):
            for pod in pods:
                reason, text = (await replica.filter(pod)).failed["n1"]
                assert reason in ("ModelMismatch", "Rests")
                assert ("waits for its turn" in text) == (reason == "Rests")
            replica.now_ns += SECOND // 5
            await replica.service.sweep()

    asyncio.run(run())
    assert len(looked) * SECOND // 5 < replica.now_ns // 8
    assert {looked.count(pod["metadata"]["uid"]) for pod in pods} <= {2, 3, 4}
    assert asyncio.run(replica.filter(theirs)).passed == ["n1"], "another namespace has its own part"
    assert asyncio.run(replica.filter(few)).passed == ["n1"]
    before = replica.cluster.releases
    replica.now_ns += 100 * SECOND
    asyncio.run(replica.service.sweep())
    assert replica.cluster.releases > before, "who was turned away is asked about again"


def test_of_a_pod_of_many_shares_few_nodes_are_explained() -> None:
    made = world(*(f"n{i}" for i in range(40)), count=1)
    replica = Replica(made, alone=True)
    pod = made.put(POD, shares("p", 50, gpu_model="none-such"))
    replica.watch()
    verdict = asyncio.run(replica.filter(pod))
    assert [reason for reason, _ in verdict.failed.values()].count("ModelMismatch") == EXPLAINED // 50
    assert len(verdict.failed) == 40


def test_cards_freed_for_a_preemptor_are_not_given_to_lesser_pods() -> None:
    made = world("n1", count=1)
    replica = Replica(made)
    high = pod_object("high", priority=10, gpu_request="0.8")
    high["status"]["nominatedNodeName"] = "n1"
    made.put(POD, high)
    lesser, equal = (made.put(POD, pod_object(n, priority=p, gpu_request="0.5")) for n, p in (("a", 5), ("b", 10)))
    replica.watch()

    async def run() -> None:
        assert (await replica.filter(lesser)).passed == []
        assert "InsufficientCore" in await replica.bind(lesser, "n1")
        assert (await replica.filter(equal)).passed == ["n1"]
        assert await replica.bind(made.pod_of("uid-high"), "n1") == ""

    asyncio.run(run())
    replica.watch()
    assert replica.cluster.nominated == set()
    replica.cluster.book.check()


def test_cards_freed_for_a_preemptor_are_not_given_to_a_group_of_lesser_pods() -> None:
    """A group of one, made anew again and again, took what others had been evicted for, and they were evicted again."""
    made = world("n1", count=1)
    replica = Replica(made, alone=True)
    high = pod_object("high", priority=10, gpu_request="0.8")
    high["status"]["nominatedNodeName"] = "n1"
    made.put(POD, high)
    said = {"gpu_request": "0.5", "pod_group_size": "1"}
    lesser = made.put(POD, pod_object("a", priority=5, pod_group="lesser", **said))
    equal = made.put(POD, pod_object("b", priority=10, pod_group="equal", **said))
    replica.watch()

    async def run() -> None:
        assert (await replica.filter(lesser)).passed == []
        assert (await replica.filter(equal)).passed == ["n1"]
        await replica.service._groups.give_back(("ns", "equal"))
        assert (await replica.filter(made.pod_of("uid-high"))).passed == ["n1"]

    asyncio.run(run())
    replica.cluster.book.check()


def test_a_group_takes_what_was_freed_for_one_of_its_own() -> None:
    made = world("n1", count=2)
    replica = Replica(made, alone=True)
    group = {"gpu_request": "0.8", "pod_group": "g", "pod_group_size": "2"}
    first, second = pod_object("a", priority=10, **group), pod_object("b", priority=5, **group)
    first["status"]["nominatedNodeName"] = "n1"
    made.put(POD, first)
    made.put(POD, second)
    replica.watch()
    assert asyncio.run(replica.filter(second)).passed == ["n1"]


def test_a_group_whose_search_came_to_no_end_does_not_hold_up_the_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world("n1", count=8)
    node = made.objects[NODE, "n1"]
    node["status"]["allocatable"]["gemini.io/gpu-core"] = "800"  # else it has no room besides its cards
    made.put(NODE, node)
    replica = Replica(made, alone=True)
    group = {"pod_group": "g", "pod_group_size": "17"}
    pods = [made.put(POD, pod_object(f"p{i}", gpu_request=f"{34 + i % 13}%", **group)) for i in range(17)]
    replica.watch()
    searched = []
    real = grouproom.place_within
    monkeypatch.setattr(grouproom, "place_within", lambda *words: searched.append(1) or real(*words))
    for pod in pods[:3]:
        assert asyncio.run(replica.filter(pod, "n1")).passed == []
    assert len(searched) == 1
    replica.now_ns += grouproom.GROUP_NS + 1
    assert asyncio.run(replica.filter(pods[0], "n1")).passed == []
    assert len(searched) == 2
