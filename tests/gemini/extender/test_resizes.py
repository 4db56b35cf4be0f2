"""Wishes of pods that run are answered: booked where there is room, refused where not; and the book counts the larger
of what is booked and what the node enforces, whoever ends when."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gemini.extender.grown import GROWN, read_grown
from gemini.extender.kinds import POD, RESIZE
from gemini.extender.reserve import BIND_NS
from gemini.extender.wishes import A_SECOND, AT_ONCE, BURST
from gemini.kube.answer import Refused, Unanswered
from gemini.kube.resize import Amounts, read_resize, slim_resize
from tests.gemini.extender.weighed import TEN, weighed
from tests.gemini.extender.world import GIB, Replica, World, pod_object

OPERATIONS = int(os.environ.get("GEMINI_OPERATIONS", "3000"))


def world(*names: str, count: int = 1) -> World:
    made = World()
    made.nodes(*(names or ("n1",)), count=count)
    return made


def run(talk: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await talk()

    asyncio.run(main())


async def place(made: World, replica: Replica, name: str, node: str = "n1", **said: str) -> None:
    pod = made.put(POD, pod_object(name, **{"gpu_memory": "4Gi", **said}))
    assert await replica.bind(pod, node) == ""
    begin(made, f"uid-{name}")
    replica.watch()


def begin(made: World, uid: str) -> None:
    """A container of the pod runs."""
    made.put(POD, {**made.pod_of(uid), "status": {"phase": "Running"}})


async def answer(*replicas: Replica) -> None:
    for replica in replicas:
        replica.watch()
        replica.service.resizes.kick()
    for replica in replicas:
        await replica.service.resizes.settled()
        replica.watch()


def enforce(made: World, pod: str) -> None:
    """What the node does when all goes well."""
    stored = made.objects[RESIZE, f"resize-uid-{pod}"]
    status = {**stored["status"], "enforced": stored["status"]["booked"], "settled": True}
    made.put(RESIZE, {**stored, "status": status})


def used(replica: Replica, minor: int = 0) -> tuple[int, int]:
    return replica.cluster.book.snapshot()["n1", "gpu", minor][:2]


@pytest.mark.parametrize("alone", [True, False])
def test_more_is_booked_before_the_node_and_less_given_back_after_it(alone: bool) -> None:
    made = world()
    replica = Replica(made, alone=alone)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.5")
        made.wish("p", 80, 8 * GIB)
        await answer(replica)
        assert made.resized("p")["booked"] == {"request": 80, "limit": 100, "memory": 8 * GIB}
        assert made.resized("p")["node"] == "n1"
        assert used(replica) == (80, 8 * GIB)
        enforce(made, "p")
        made.wish("p", 30, 2 * GIB, 40)
        await answer(replica)
        assert made.resized("p")["booked"] == {"request": 30, "limit": 40, "memory": 2 * GIB}
        assert used(replica) == (80, 8 * GIB), "the node has not given anything back yet"
        before = replica.cluster.releases
        enforce(made, "p")
        replica.watch()
        assert used(replica) == (30, 2 * GIB)
        assert replica.cluster.releases > before, "who waits is asked about again"
        assert len(replica.cluster.reservations) == 0

    run(talk)


def test_a_wish_that_is_more_of_one_and_less_of_the_other_counts_with_the_larger_of_each() -> None:
    made = world()
    replica = Replica(made)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.5")
        made.wish("p", 20, 12 * GIB)
        await answer(replica)
        assert used(replica) == (50, 12 * GIB)
        enforce(made, "p")
        replica.watch()
        assert used(replica) == (20, 12 * GIB)

    run(talk)


@pytest.mark.parametrize("alone", [True, False])
def test_a_wish_beyond_the_card_is_refused_with_what_there_is_and_nothing_changes(alone: bool) -> None:
    made = world()
    replica = Replica(made, alone=alone)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.3")
        await place(made, replica, "other", gpu_request="0.4")
        for request, memory in ((61, 4 * GIB), (30, 13 * GIB)):
            made.wish("p", request, memory)
            await answer(replica)
            refused = made.resized("p")["refused"]
            assert refused == (
                "no room: the pod's card on n1 has a request of 0.6 and 12Gi at most for it; ask for no more, or make "
                "room there"
            )
            assert "booked" not in made.resized("p")
            assert used(replica) == (70, 8 * GIB)
        made.wish("p", 60, 12 * GIB)
        await answer(replica)
        assert "refused" not in made.resized("p")
        assert used(replica) == (100, 16 * GIB)
        assert len(replica.cluster.reservations) == 0

    run(talk)


def test_growth_takes_no_slot_of_its_own_where_all_are_taken() -> None:
    made = World()
    made.nodes("n1", count=1, slots=2)
    replica = Replica(made)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.3")
        await place(made, replica, "q", gpu_request="0.3")
        made.wish("p", 50, 4 * GIB)
        await answer(replica)
        assert used(replica) == (80, 8 * GIB)

    run(talk)


def waits(made: World) -> None:
    made.put(POD, pod_object("p", gpu_request="0.5"))


def several(made: World) -> None:
    said = {"gemini.io/gpu-request.main": "0.3", "gemini.io/gpu-request.side": "0.2"}
    pod = pod_object("p")
    pod["metadata"]["annotations"] = said
    pod["spec"]["containers"] = [{"name": "main", "image": "x"}, {"name": "side", "image": "x"}]
    made.put(POD, pod)


@pytest.mark.parametrize(
    ("make", "bind", "why"),
    [
        (waits, False, "the pod is on no node yet; wait until it runs"),
        (several, True, "the pod has several shares; only a pod with one share"),
    ],
    ids=["waits", "several"],
)
def test_what_cannot_be_resized_is_refused_in_one_line(make: Callable[[World], None], bind: bool, why: str) -> None:
    from tests.gemini.extender.world import admitted

    made = world()
    replica = Replica(made)

    async def talk() -> None:
        make(made)
        if bind:
            pod = made.put(POD, admitted(made.pod_of("uid-p")))
            assert await replica.bind(pod, "n1") == ""
            begin(made, pod["metadata"]["uid"])
        made.wish("p", 50, GIB)
        await answer(replica)
        assert made.resized("p")["refused"].startswith(why)
        assert "\n" not in made.resized("p")["refused"]

    run(talk)


@pytest.mark.parametrize(
    ("hard", "label", "wished", "by"),
    [
        ("requests.gemini.io/gpu-core", None, (60, 4), "the ResourceQuota q (requests.gemini.io/gpu-core)"),
        ("requests.gemini.io/gpu-memory", None, (50, 5), "the ResourceQuota q (requests.gemini.io/gpu-memory)"),
        ("requests.gemini.io/gpu-core", None, (50, 5), None),
        ("requests.cpu", None, (60, 5), None),
        (None, "kueue.x-k8s.io/queue-name", (60, 4), "Kueue (kueue.x-k8s.io/queue-name)"),
        (None, "kueue.x-k8s.io/queue-name", (40, 4), None),
    ],
)
def test_growth_that_a_quota_would_not_see_is_refused(
    hard: str | None, label: str | None, wished: tuple[int, int], by: str | None
) -> None:
    made = world()
    replica = Replica(made)
    if hard:
        made.quotas_of["ns"] = [{"metadata": {"name": "q"}, "spec": {"hard": {hard: "100"}}}]

    async def talk() -> None:
        pod = pod_object("p", gpu_request="0.5", gpu_memory="4Gi")
        pod["metadata"]["labels"] = {label: "team"} if label else {}
        assert await replica.bind(made.put(POD, pod), "n1") == ""
        begin(made, "uid-p")
        made.wish("p", wished[0], wished[1] * GIB)
        await answer(replica)
        refused = made.resized("p").get("refused", "")
        assert refused.startswith(f"{by} counts what the pod's own resources name") if by else refused == ""

    run(talk)


@pytest.mark.parametrize(
    ("most", "wished", "by"),
    [
        ({"gemini.io/gpu-core": "60"}, (61, 4), "60 of gemini.io/gpu-core, and this is 61"),
        ({"gemini.io/gpu-core": "60"}, (60, 8), None),
        ({"gemini.io/gpu-core": "20"}, (40, 8), None),  # no more than the pod has
        ({"gemini.io/gpu-memory": "6Gi"}, (50, 7), f"6Gi of gemini.io/gpu-memory, and this is {7 * GIB}"),
        ({"gemini.io/gpu-memory": "6Gi"}, (90, 4), None),
        ({"gemini.io/gpu-memory-ratio": "40"}, (50, 7), "40 of gemini.io/gpu-memory-ratio, and this is 44"),
        ({"gemini.io/gpu": "60"}, (61, 4), "60 of gemini.io/gpu, and this is 61"),
        ({"gemini.io/gpu-core": "many"}, (51, 4), "many of gemini.io/gpu-core, and this is 51"),
        ({"cpu": "1"}, (90, 8), None),
    ],
)
def test_growth_past_what_a_limit_range_lets_a_pod_have_is_refused(
    most: dict[str, str], wished: tuple[int, int], by: str | None
) -> None:
    """Its maximum holds when a pod is created, of resources that stay what they are."""
    made = world()
    replica = Replica(made)
    limit = {"type": "Container", "max": most}
    made.limits_of["ns"] = [{"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Pod"}, limit]}}]

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.5")
        made.wish("p", wished[0], wished[1] * GIB)
        await answer(replica)
        refused = made.resized("p").get("refused", "")
        assert refused == (f"the LimitRange l lets nobody have more than {by}; ask for no more" if by else "")
        assert ("booked" in made.resized("p")) == (by is None)

    run(talk)


def test_a_pod_whose_resize_went_before_it_counts_with_what_it_was_given() -> None:
    """Kubernetes' own collector deletes it so where the pod is deleted in the foreground; the pod's programs go on for
    as long as the pod says. Another wish for it, which has no status yet, changes nothing of that."""
    made = world()
    replica = Replica(made)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.2")
        made.wish("p", 90, 12 * GIB)
        await answer(replica)
        enforce(made, "p")
        pod = made.pod_of("uid-p")
        pod["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
        made.put(POD, pod)
        made.delete(RESIZE, "resize-uid-p")
        await answer(replica)
        assert used(replica) == (90, 12 * GIB)
        stored = made.wish("p", 10, GIB)
        await answer(replica)
        assert used(replica) == (90, 12 * GIB)
        assert stored["metadata"]["generation"] == 1
        made.delete(RESIZE, "resize-uid-p")
        made.put(POD, {**made.pod_of("uid-p"), "status": {"phase": "Running"}})
        await answer(replica)
        assert used(replica) == (90, 12 * GIB)
        made.delete(POD, "uid-p")
        await answer(replica)
        assert used(replica) == (0, 0)

    run(talk)


@pytest.mark.parametrize("heard", [True, False])
def test_a_replica_that_begins_while_a_grown_pod_ends_counts_what_it_was_given(heard: bool) -> None:
    """Its Resize went before it, and nothing but the node's lease tells of that. `heard`: whether the one that booked
    it heard the API server's answer."""
    made = world()
    replica, true_answer = Replica(made, "old"), made.answer_resize

    async def lost(*given: Any) -> Any:
        await true_answer(*given)
        raise Unanswered("lost")

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.2")
        made.wish("p", 90, 12 * GIB)
        if not heard:
            made.answer_resize = lost  # type: ignore[method-assign]
        await answer(replica)
        made.answer_resize = true_answer  # type: ignore[method-assign]
        if not heard:
            replica.now_ns += 3 * BIND_NS
            await replica.service.sweep()
        await answer(replica)
        enforce(made, "p")
        while "gemini.io/grown" not in json.dumps(made.leases):
            await asyncio.sleep(0)
        pod = made.pod_of("uid-p")
        made.put(POD, {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-26T00:00:00Z"}})
        made.delete(RESIZE, "resize-uid-p")
        made.queues.remove(replica.queue)
        fresh = Replica(made, "fresh", listed=False)
        await fresh.begin()
        assert used(fresh) == (90, 12 * GIB)
        late = made.put(POD, pod_object("late", gpu_request="0.2", gpu_memory="1Gi"))
        assert "Insufficient" in await fresh.bind(late, "n1")
        made.wish("p", 10, GIB)  # another wish, which has no status yet
        await answer(fresh)
        assert used(fresh) == (90, 12 * GIB)
        made.delete(POD, "uid-p")
        fresh.watch()
        assert used(fresh) == (0, 0)
        assert await fresh.bind(late, "n1") == ""
        assert "uid-p" not in json.dumps(made.leases), "what is gone is forgotten"

    run(talk)


def test_of_a_grown_pod_that_has_ended_the_lease_says_no_more() -> None:
    """Pods that ended stay in the API server for as long as their namespace likes. What the lease kept of some five
    hundred of them made it too large to be written, and nobody was bound on that node any more. Nor are their Resizes
    read one by one whenever another replica has written."""
    made = world()
    replica, other = Replica(made, "a"), Replica(made, "b")

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.2")
        made.wish("p", 30, 5 * GIB)
        await answer(replica)
        enforce(made, "p")
        while "gemini.io/grown" not in json.dumps(made.leases):
            await asyncio.sleep(0)
        made.put(POD, {**made.pod_of("uid-p"), "status": {"phase": "Succeeded"}})
        replica.watch()
        other.watch()
        asked: list[str] = []
        true_resize = made.resize

        async def resize(namespace: str, name: str) -> Any:
            asked.append(name)
            return await true_resize(namespace, name)

        made.resize = resize  # type: ignore[method-assign]
        for i, one in enumerate((other, replica)):
            pod = made.put(POD, pod_object(f"next{i}", gpu_request="0.2", gpu_memory="1Gi"))
            one.watch()
            assert await one.bind(pod, "n1") == ""
        assert "uid-p" not in json.dumps(made.leases)
        assert "p" not in asked

    run(talk)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"ns/p/u":[1e400,1,1]}', '{"ns/p/u":[1,1]}', "[]", "3"])
def test_what_a_lease_says_of_grown_pods_in_no_such_text_is_nothing(text: str) -> None:
    assert read_grown({"metadata": {"annotations": {GROWN: text}}}) == {}


def test_what_a_pod_was_given_counts_once_as_long_as_its_resize_is_there() -> None:
    made = world()
    replica = Replica(made, "old")

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.2")
        for request in (90, 40, 60, 20):
            made.wish("p", request, 4 * GIB)
            await answer(replica)
            enforce(made, "p")
            for one in (replica, fresh := Replica(made, f"fresh{request}", listed=False)):
                await one.begin() if one is fresh else one.watch()
                assert used(one) == (request, 4 * GIB)

    run(talk)


def test_one_namespaces_thousand_wishes_keep_anothers_waiting_for_no_more_than_a_few() -> None:
    """All were begun at once, each of them some calls to the API server; whoever came behind them waited for all."""
    made = World()
    made.nodes("n1", count=1)
    replica, answered = Replica(made), []
    real = made.answer_resize

    async def told(namespace: str, name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        answered.append(namespace)
        return await real(namespace, name, version, status)

    made.answer_resize = told  # type: ignore[method-assign]

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.01", gpu_memory="8Mi")
        several = made.pod_of("uid-p")
        for namespace, name in [("crowd", f"p{i}") for i in range(1000)] + [("ns", "late")]:
            uid = f"uid-{namespace}-{name}"
            one = {**several, "metadata": {**several["metadata"], "name": name, "namespace": namespace, "uid": uid}}
            replica.cluster.apply(POD, "ADDED", made.put(POD, {**one, "status": {"phase": "Pending"}}))
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
            wish = {
                "metadata": {"name": name, "namespace": namespace, "uid": f"resize-{uid}", "generation": 1,
                             "ownerReferences": [owner]},
                "spec": Amounts(2, 2, GIB).written(),
            }  # fmt: skip
            made.put(RESIZE, wish)
        replica.watch()
        tasks = len(asyncio.all_tasks())
        replica.service.resizes.kick()
        assert len(asyncio.all_tasks()) - tasks <= AT_ONCE
        await replica.service.resizes.settled()
        assert "ns" in answered[: 2 * AT_ONCE]
        assert len(answered) == BURST + 1, "and it has a pace"
        for _ in range(1000 // A_SECOND):
            replica.now_ns += 10**9
            await replica.service.sweep()
            await replica.service.resizes.settled()
        assert len(answered) == 1001

    run(talk)


def test_a_pod_that_does_not_run_yet_grows_nowhere_for_its_node_may_exchange_its_card() -> None:
    """Its kubelet may give it the card of another that asks for the same; then both records change. What it had grown
    by would stand on a card that nobody looked at: 170 percent, and whose pod is on it has no room when it starts."""
    made = world(count=2)
    replica = Replica(made)

    async def talk() -> None:
        for name, minor, request in (("grows", 0, "0.1"), ("same", 1, "0.1"), ("victim", 1, "0.8")):
            pod = pod_object(name, gpu_request=request, gpu_memory="1Gi", gpu_uuid=f"GPU-n1-{minor}")
            assert await replica.bind(made.put(POD, pod), "n1") == ""
            replica.watch()
        made.wish("grows", 90, GIB)
        await answer(replica)
        grows, same = made.pod_of("uid-grows"), made.pod_of("uid-same")
        records = [pod["metadata"]["annotations"]["gemini.io/allocation"] for pod in (grows, same)]
        for pod, record in ((grows, records[1]), (same, records[0])):
            pod["metadata"]["annotations"]["gemini.io/allocation"] = record
            made.put(POD, pod)
        replica.watch()
        assert used(replica, 1)[0] <= 100
        assert "does not run yet" in made.resized("grows")["refused"]

    run(talk)


def stranger(number: int, fill: int = 0) -> dict[str, Any]:
    """A wish for a pod that is not there, with so many labels."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"s{number}", "uid": f"uid-s{number}"}
    labels = {f"k{i}": "x" * 60 for i in range(fill)}
    metadata = {
        "name": f"s{number}", "namespace": "evil", "uid": f"evil{number}", "generation": 1, "labels": labels,
        "ownerReferences": [owner], "resourceVersion": str(number + 1),
    }  # fmt: skip
    return {"metadata": metadata, "spec": Amounts(10, 10, GIB).written()}


def test_wishes_for_pods_that_are_not_there_are_not_looked_at_again_and_again() -> None:
    """Each was a task of the loop at each change of any Resize, and each second."""
    made = world()
    replica = Replica(made)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.5")
        for number in range(1000):
            replica.cluster.apply(RESIZE, "ADDED", stranger(number))
        assert not replica.cluster.unbooked()
        before = len(asyncio.all_tasks())
        replica.service.resizes.kick()
        assert len(asyncio.all_tasks()) == before
        made.wish("p", 60, 4 * GIB)
        await answer(replica)
        assert made.resized("p")["booked"]["request"] == 60
        made.wish("late", 60, 4 * GIB)  # whose pod is seen after it
        await answer(replica)
        await place(made, replica, "late", gpu_request="0.2")
        await answer(replica)
        assert "no room" in made.resized("late")["refused"]

    run(talk)


@pytest.mark.parametrize("in_a_list", [False, True])
def test_large_resizes_take_little_memory(in_a_list: bool) -> None:
    """A hundred of 1.2 MB, which any editor of a namespace could make, took more than that of each replica, and of the
    device plugin of each node; those of a list did so while it was read."""

    def own(given: dict[str, Any], number: int) -> None:
        given["metadata"]["ownerReferences"][0]["uid"] = f"pod{number}"
        given["status"] = {"pod": f"pod{number}", "waits": "x" * (1 << 20), "refused": "y" * (1 << 20), "node": "n1"}

    cluster, held = weighed(RESIZE, stranger(0, fill=13_000), slim_resize if in_a_list else None, own)
    assert len(cluster.resizes) == TEN
    assert held < TEN * (1 << 20) / 8


def test_a_lease_that_another_replica_wrote_has_the_resizes_of_its_nodes_pods_read_and_no_others() -> None:
    """All of the cluster were read at each such binding; who may make them makes ever so many."""
    made = world()
    replica, other = Replica(made), Replica(made, "other")

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.3")
        other.watch()
        made.wish("p", 50, 4 * GIB)
        await answer(replica)
        asked: list[str] = []
        real = made.resize

        async def resize(namespace: str, name: str) -> dict[str, Any]:
            asked.append(f"{namespace}/{name}")
            return await real(namespace, name)

        made.resize = resize  # type: ignore[method-assign]
        for number in range(50):
            made.put(RESIZE, stranger(number))
        pod = made.put(POD, pod_object("q", gpu_request="0.6", gpu_memory="1Gi"))
        assert await other.bind(pod, "n1") != "", "the other has not seen by its watch that p counts with more"
        assert set(asked) == {"ns/p"}

    run(talk)


def test_a_resize_of_another_namespace_that_names_the_pod_as_its_owner_changes_nothing() -> None:
    made = world()
    replica = Replica(made)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.5")
        made.wish("p", 60, 4 * GIB)
        await answer(replica)
        stored = made.objects[RESIZE, "resize-uid-p"]
        metadata = {**stored["metadata"], "namespace": "evil", "uid": "evil"}
        booked = {
            "pod": "uid-p",
            "answered": 1,
            "booked": Amounts(1, 1, GIB).written(),
            "enforced": Amounts(1, 1, GIB).written(),
        }
        made.put(RESIZE, {**stored, "metadata": metadata, "status": booked})
        await answer(replica)
        assert used(replica) == (60, 4 * GIB)

    run(talk)


def test_what_another_replica_has_booked_is_not_promised_by_one_whose_watch_lags() -> None:
    made = world()
    one, two = Replica(made, "one"), Replica(made, "two")

    async def talk() -> None:
        await place(made, one, "p", gpu_request="0.3")
        two.watch()
        made.wish("p", 90, 4 * GIB)
        await answer(one)  # two has seen nothing of it
        late = made.put(POD, pod_object("late", gpu_request="0.5", gpu_memory="1Gi"))
        assert "Insufficient" in await two.bind(late, "n1")
        assert made.promised() == {("n1", 0): (90, 4 * GIB)}

    run(talk)


def test_what_another_replica_has_booked_is_known_also_when_its_promise_has_left_the_lease() -> None:
    made = world()
    one, two = Replica(made, "one"), Replica(made, "two")

    async def talk() -> None:
        await place(made, one, "p", gpu_request="0.3")
        two.watch()
        made.wish("p", 80, 4 * GIB)
        await answer(one)
        await place(made, one, "small", gpu_request="0.1", gpu_memory="1Gi")
        assert "resize/" not in json.dumps(made.leases), "the lease says nothing of it any more"
        late = made.put(POD, pod_object("late", gpu_request="0.5", gpu_memory="1Gi"))
        assert "Insufficient" in await two.bind(late, "n1")
        assert made.promised() == {("n1", 0): (90, 5 * GIB)}

    run(talk)


def test_what_was_said_of_another_pod_of_that_name_does_not_count() -> None:
    made = world()
    replica = Replica(made)

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.5")
        made.wish("p", 20, 2 * GIB)
        await answer(replica)
        enforce(made, "p")
        stored = made.objects[RESIZE, "resize-uid-p"]
        made.delete(POD, "uid-p")
        await place(made, replica, "other", gpu_request="0.5")
        again = pod_object("p", uid="uid-again", gpu_request="0.5", gpu_memory="4Gi")
        assert await replica.bind(made.put(POD, again), "n1") == ""
        begin(made, "uid-again")
        owner = {**stored["metadata"]["ownerReferences"][0], "uid": "uid-again"}
        made.put(RESIZE, {**stored, "metadata": {**stored["metadata"], "ownerReferences": [owner]}})
        replica.watch()
        assert used(replica) == (100, 8 * GIB)
        await answer(replica)
        assert made.resized("p")["booked"]["request"] == 20
        assert "enforced" not in made.resized("p")
        assert used(replica) == (100, 8 * GIB), "its node has not given anything back yet"

    run(talk)


def test_an_answer_that_nobody_heard_of_counts_until_the_object_tells() -> None:
    made = world()
    replica = Replica(made)

    async def lost(*_: Any) -> Any:
        await true_answer(*_)
        raise Unanswered("lost")

    true_answer = made.answer_resize

    async def talk() -> None:
        await place(made, replica, "p", gpu_request="0.3")
        made.wish("p", 90, 4 * GIB)
        made.answer_resize = lost  # type: ignore[method-assign]
        await answer(replica)
        made.answer_resize = true_answer  # type: ignore[method-assign]
        assert used(replica) == (90, 4 * GIB)
        assert made.resized("p")["booked"]["request"] == 90
        replica.now_ns += 3 * BIND_NS
        await replica.service.sweep()
        await answer(replica)
        assert used(replica) == (90, 4 * GIB)
        assert len(replica.cluster.reservations) == 0

    run(talk)


class Daemon:
    """What a node really gives, pod by pod."""

    def __init__(self) -> None:
        self.gives: dict[str, Amounts] = {}


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6])
def test_no_card_is_promised_twice_whoever_ends_between_any_two_steps(seed: int) -> None:
    """Two replicas that lag and are killed, a node that is killed after any of its writes, users that change their
    wishes at any time, and pods that come and go: what nodes really give never passes a card, nor what is promised."""
    made = World(seed)
    made.nodes("n1", "n2", count=3)
    made.fault_rate = 0.02
    replicas = [Replica(made, "one"), Replica(made, "two")]
    chance, daemon = random.Random(seed), Daemon()
    pods: list[str] = []
    busy: set[str] = set()
    done = grown = shrunk = refused = 0

    def check() -> None:
        for core, memory in made.promised().values():
            assert core <= 100
            assert memory <= 16 * GIB
        given: dict[tuple[str, int], list[int]] = {}
        for name in pods:
            pod = made.pod_of(f"uid-{name}")
            record = pod["metadata"]["annotations"].get("gemini.io/allocation")
            if not record:
                continue
            (entry,) = json.loads(record)["gpu"]
            own = entry["resources"]
            by_record = Amounts(own["gemini.io/gpu-core"], 100, own["gemini.io/gpu-memory"])
            gives = daemon.gives.get(name, by_record)
            card = given.setdefault((pod["spec"]["nodeName"], entry["minor"]), [0, 0])
            card[0] += gives.request
            card[1] += gives.memory
        for core, memory in given.values():
            assert core <= 100, "given twice"
            assert memory <= 16 * GIB

    async def node(name: str) -> None:
        """One round of what gemini/plugin/resizing.py does, which may end after each step."""
        nonlocal grown, shrunk
        stored = made.objects.get((RESIZE, f"resize-uid-{name}"))
        record = made.pod_of(f"uid-{name}")["metadata"]["annotations"].get("gemini.io/allocation")
        seen = None if stored is None else read_resize(stored)
        if seen is None or seen.booked is None or record is None:
            return
        own = json.loads(record)["gpu"][0]["resources"]
        by_record = Amounts(own["gemini.io/gpu-core"], 100, own["gemini.io/gpu-memory"])
        enforced, booked = seen.enforced or by_record, seen.booked
        try:
            most = enforced.most(booked)
            if most != enforced:
                given = await made.answer_resize("ns", name, seen.version, {"enforced": most.written()})
                seen = read_resize(given)
                assert seen is not None
            if chance.random() < 0.2 or name not in pods:
                return
            before = daemon.gives.get(name, by_record)
            grown += booked.request > before.request
            shrunk += booked.request < before.request
            daemon.gives[name] = booked
            check()
            if chance.random() < 0.2:
                return
            await made.answer_resize("ns", name, seen.version, {"enforced": booked.written(), "settled": True})
        except (Refused, Unanswered):
            return

    def delete(name: str) -> None:
        pods.remove(name)
        daemon.gives.pop(name, None)
        made.delete(POD, f"uid-{name}")

    async def actor(number: int) -> None:
        nonlocal done
        while done < OPERATIONS:
            done += 1
            replica, what = chance.choice(replicas), chance.random()
            if what < 0.06 and (placed := [one for one in pods if made.pod_of(f"uid-{one}")["spec"].get("nodeName")]):
                made.wish(chance.choice(placed), chance.choice([10, 20, 30, 50, 70]), chance.choice([1, 4, 8]) * GIB)
            elif what < 0.42 and pods:
                if (name := chance.choice(pods)) not in busy:  # a node has one plugin at a time
                    busy.add(name)
                    await node(name)
                    busy.discard(name)
            elif what < 0.44 and pods:
                delete(chance.choice(pods))
            elif what < 0.75:
                if replica is replicas[0] or chance.random() < 0.5:  # the other is behind
                    replica.watch(None if chance.random() < 0.5 else chance.randrange(24))
                replica.service.resizes.kick()
            elif what < 0.78:
                for one in replicas:
                    one.now_ns += BIND_NS // 10
                await replica.service.sweep()
            elif what < 0.8:
                fresh = Replica(made, f"new{done}", listed=False)
                fresh.now_ns = max(one.now_ns for one in replicas)
                await fresh.begin()
                at = chance.randrange(2)
                old, replicas[at] = replicas[at], fresh
                made.queues[:] = [queue for queue in made.queues if queue is not old.queue]
            elif what < 0.82:  # as the collector does, some time after the pod
                for stored in [o for (k, _), o in made.objects.items() if k == RESIZE]:
                    if stored["metadata"]["name"] not in pods:
                        made.delete(RESIZE, stored["metadata"]["uid"])
            elif len(pods) < 6:
                name = f"p{done}"
                pod = made.put(POD, pod_object(name, gpu_request=chance.choice(["0.2", "0.3"]), gpu_memory="2Gi"))
                pods.append(name)
                await replica.bind(pod, chance.choice(["n1", "n2"]))
                if made.objects.get((POD, f"uid-{name}"), {"spec": {}})["spec"].get("nodeName"):
                    begin(made, f"uid-{name}")
            await asyncio.sleep(0)
            check()

    async def talk() -> None:
        nonlocal refused
        await asyncio.gather(*(actor(i) for i in range(8)))
        refused = sum("refused" in o.get("status", {}) for (k, _), o in made.objects.items() if k == RESIZE)
        made.fault_rate = 0
        for _ in range(3):
            for replica in replicas:
                await replica.service.resizes.settled()
                replica.watch()
                replica.now_ns += 3 * BIND_NS
                await replica.service.sweep()
            await answer(*replicas)

    run(talk)
    check()
    assert grown > 2
    assert shrunk > 2
    assert [len(replica.cluster.reservations) for replica in replicas] == [0, 0]
    fresh = Replica(made)
    assert not [one for one in fresh.cluster.unbooked() if fresh.cluster.pods.get(one.uid) is not None]
    for replica in replicas:
        replica.watch()
        replica.cluster.book.check()
        assert replica.cluster.picture()["holdings"] == fresh.cluster.picture()["holdings"]
