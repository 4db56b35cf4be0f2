"""The daemon is brought to what is booked: in an order in which the object never says less than the daemon may give."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemini.kube.answer import ApiFault, Unanswered
from gemini.kube.resize import Amounts, Resize, read_resize
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.view import Refusal
from tests.gemini.plugin.pods import GIB, bound, cards
from tests.gemini.plugin.rig import Object, Rig, running
from tests.gemini.plugin.test_service import running_status

LARGE, SMALL = Amounts(80, 90, 8 * GIB), Amounts(30, 40, 2 * GIB)
RECORD = Amounts(50, 100, 4 * GIB)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with (
        tempfile.TemporaryDirectory(prefix="gemini-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        running(Path(folder), cards(1)) as made,
    ):
        yield made


def begin(rig: Rig, name: str = "p", **more: Any) -> str:
    """A pod whose container runs; its tenant's name."""
    pod = bound(name, rig.cards, [0], gpu_request="0.5", gpu_memory="4Gi", **more)
    rig.api.put(pod)
    rig.kubelet.admit(rig.now(name))
    return rig.check(name, *more.get("containers", ("main",))[:1])


def gives(rig: Rig, tenant: str) -> Amounts:
    spec = rig.daemon.specs[tenant]
    return Amounts(round(spec["request"] * 100), round(spec["limit"] * 100), spec["memory_bytes"])


def carry_out(rig: Rig) -> bool:
    rig.call(settle())
    return bool(rig.call(rig.service.resizing.carry_out()))


async def settle() -> None:
    """What was told of before is known now."""


def now(rig: Rig, name: str = "p") -> Resize:
    found = read_resize(rig.api.resizes[name])
    assert found is not None
    return found


def test_before_more_is_given_the_object_says_so_and_after_less_was(rig: Rig) -> None:
    tenant = begin(rig)
    rig.api.resize_to("p", LARGE)
    assert carry_out(rig)
    assert gives(rig, tenant) == LARGE
    most = {"request": 80, "limit": 100, "memory": 8 * GIB}
    assert [one["enforced"] for one in rig.api.written] == [most, LARGE.written()]
    assert [one["settled"] for one in rig.api.written] == [False, True]
    rig.api.written.clear()
    rig.api.resize_to("p", SMALL)
    assert carry_out(rig)
    assert gives(rig, tenant) == SMALL
    assert [(one["enforced"], one["settled"]) for one in rig.api.written] == [(SMALL.written(), True)]
    assert carry_out(rig)
    assert len(rig.api.written) == 1, "nothing is left to do"


def test_a_wish_alone_changes_nothing(rig: Rig) -> None:
    tenant = begin(rig)
    rig.api.resize_to("p", LARGE)
    del rig.api.resizes["p"]["status"]
    rig.stop_plugin()
    rig.start_plugin()
    assert carry_out(rig)
    assert gives(rig, tenant) == RECORD
    assert not rig.api.written


def test_less_memory_than_is_in_use_waits_with_nothing_done_and_says_how_much(rig: Rig) -> None:
    tenant = begin(rig)
    rig.daemon.in_use[tenant] = 3 * GIB
    rig.api.resize_to("p", SMALL)
    assert not carry_out(rig)
    assert not carry_out(rig)
    assert gives(rig, tenant) == RECORD
    assert now(rig).waits == f"tenant {tenant} has {3 * GIB} in use"
    assert (now(rig).enforced, now(rig).settled) == (RECORD, False)
    assert len(rig.api.written) == 1, "it is said once"
    rig.daemon.in_use[tenant] = GIB
    assert carry_out(rig)
    assert gives(rig, tenant) == SMALL
    assert (now(rig).waits, now(rig).settled) == ("", True)


def test_a_container_that_starts_again_has_what_is_enforced_not_what_its_record_says(rig: Rig) -> None:
    tenant = begin(rig)
    rig.api.resize_to("p", SMALL)
    carry_out(rig)
    rig.daemon.specs.clear()  # the daemon lost its state, and the plugin begins anew
    rig.api.put({**rig.now("p"), "status": running_status("main")})
    rig.stop_plugin()
    rig.start_plugin()
    rig.kubelet.start_container("uid-p", "main")
    assert gives(rig, tenant) == SMALL
    rig.daemon.specs.clear()
    rig.call(rig.service.tenancy.tidy())
    assert gives(rig, tenant) == SMALL


def test_what_is_booked_while_no_container_runs_holds_when_one_starts(rig: Rig) -> None:
    rig.api.put(bound("p", rig.cards, [0], gpu_request="0.5", gpu_memory="4Gi"))
    rig.kubelet.admit(rig.now("p"), start=False)
    rig.api.resize_to("p", LARGE)
    assert carry_out(rig)
    assert now(rig).settled
    rig.kubelet.start_container("uid-p", "main")
    assert [gives(rig, name) for name in rig.daemon.specs] == [LARGE]


def test_a_daemon_that_has_other_amounts_than_are_enforced_is_given_those(rig: Rig) -> None:
    tenant = begin(rig)
    rig.api.resize_to("p", SMALL)
    carry_out(rig)
    rig.daemon.specs[tenant] |= {"request": 0.5, "limit": 1.0}
    rig.call(rig.service.tenancy.tidy())
    assert gives(rig, tenant) == SMALL
    rig.api.drop_resize("p")  # by an administrator, for it goes with its pod
    rig.call(settle())
    rig.call(rig.service.tenancy.tidy())
    assert gives(rig, tenant) == RECORD


@pytest.mark.parametrize("behind", [False, True])
def test_a_pod_that_is_deleted_is_given_no_more_back_where_its_resize_goes_before_it(rig: Rig, behind: bool) -> None:
    """Kubernetes' own collector deletes it so where the pod is deleted in the foreground. What the pod had given back
    by then is promised to others, and its programs go on for as long as the pod says. `behind`: the watch of pods."""
    tenant = begin(rig)
    rig.api.resize_to("p", SMALL)
    assert carry_out(rig)
    pod = rig.now("p")
    rig.api.deaf = behind
    rig.api.put({**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-26T00:00:00Z"}})
    rig.api.deaf = False
    rig.api.drop_resize("p")
    rig.call(settle())
    rig.api.down = behind
    rig.call(rig.service.tenancy.tidy())
    assert gives(rig, tenant) == SMALL
    rig.api.down = False
    rig.call(rig.service.tenancy.tidy())
    assert gives(rig, tenant) == SMALL
    rig.stop_plugin()
    rig.start_plugin()
    rig.call(rig.service.tenancy.tidy())
    assert gives(rig, tenant) == SMALL


def test_a_pod_of_which_the_daemon_refuses_its_amounts_keeps_no_other_from_its_own(rig: Rig) -> None:
    """Such as one that gave back what others were promised since; an administrator has deleted its Resize."""
    tenants = {name: begin(rig, name) for name in ("stuck", "other")}
    for name in tenants:
        rig.api.resize_to(name, SMALL)
    assert carry_out(rig)
    rig.daemon.specs["fills"] = {**rig.daemon.specs[tenants["stuck"]], "name": "fills", "request": 0.4}
    rig.daemon.specs[tenants["other"]]["request"] = 0.25
    rig.api.drop_resize("stuck")
    rig.call(settle())
    with pytest.raises(DaemonFault, match="above 1"):
        rig.call(rig.service.tenancy.tidy())
    assert gives(rig, tenants["other"]) == SMALL


def test_all_containers_of_a_pod_are_one_tenant_that_changes_once(rig: Rig) -> None:
    tenant = begin(rig, containers=("main", "side"))
    rig.api.resize_to("p", LARGE)
    assert carry_out(rig)
    assert {name: gives(rig, name) for name in rig.daemon.specs} == {tenant: LARGE}


def test_a_resize_of_another_namespace_that_names_the_pod_is_none_of_its(rig: Rig) -> None:
    tenant = begin(rig)
    stored = rig.api.resize_to("p", LARGE)
    rig.api.drop_resize("p")
    other: Object = {**stored, "metadata": {**stored["metadata"], "namespace": "evil"}}
    rig.api.seen("Resize", "ADDED", other)
    assert carry_out(rig)
    assert gives(rig, tenant) == RECORD


def test_resizes_of_other_nodes_pods_are_not_kept(rig: Rig) -> None:
    """Each node hears of all of the cluster, of which an editor makes as many as he likes."""
    begin(rig)
    rig.api.resize_to("p", LARGE)
    carry_out(rig)
    for name in ("elsewhere", "unanswered"):
        rig.api.resize_to(name, LARGE, **({"node": "m"} if name == "elsewhere" else {"pod": "of another", "node": "n"}))
    rig.call(settle())
    assert [one.name for one in rig.view.resizes.values()] == ["p"]
    rig.stop_plugin()
    rig.start_plugin()
    assert [one.name for one in rig.view.resizes.values()] == ["p"]


def test_a_pod_of_which_nothing_can_be_written_keeps_no_other_from_its_share(rig: Rig) -> None:
    """Such as one whose Resize is as large as the API server takes, so that the node's word does not fit in."""
    tenants = {name: begin(rig, name) for name in ("stuck", "other")}
    real = rig.api.answer_resize

    async def too_large(namespace: str, name: str, version: str, status: Object) -> Object:
        if name == "stuck":
            raise Unanswered("500: etcdserver: request is too large")
        return await real(namespace, name, version, status)

    rig.api.answer_resize = too_large  # type: ignore[method-assign]
    for name in tenants:
        rig.api.resize_to(name, SMALL)
    with pytest.raises(Unanswered, match="too large"):
        carry_out(rig)
    assert now(rig, "other").settled
    assert gives(rig, tenants["other"]) == SMALL


@pytest.mark.parametrize("seed", range(4))
def test_whoever_ends_between_two_steps_the_object_never_says_less_than_the_daemon_gives(rig: Rig, seed: int) -> None:
    """Writes that are lost or not answered for, a daemon that is down, a plugin that is killed, and amounts that are
    booked anew at any time: what the daemon gives is never more than what the pod counts with."""
    tenant = begin(rig)
    chance = rig.api.random = random.Random(seed)
    booked, changes = RECORD, 0
    for _ in range(200):
        what = chance.random()
        if what < 0.3:
            booked = Amounts(*chance.choice([(10, 10), (30, 50), (50, 100), (80, 90), (100, 100)]),
                             chance.choice([1, 2, 4, 8]) * GIB)  # fmt: skip
            rig.api.deaf = chance.random() < 0.3
            rig.api.resize_to("p", booked)
            rig.api.deaf = False
        elif what < 0.35:
            rig.stop_plugin()
            rig.start_plugin()
        else:
            before = gives(rig, tenant)
            rig.api.lost, rig.daemon.down = chance.choice([0, 0.3]), chance.random() < 0.2
            try:
                carry_out(rig)
                rig.call(rig.service.tenancy.tidy())
            except (ApiFault, DaemonFault, Refusal):
                pass
            rig.api.lost, rig.daemon.down = 0, False
            changes += gives(rig, tenant) != before
        if "p" in rig.api.resizes:
            seen = now(rig)
            counts = (seen.booked or RECORD).most(seen.enforced or RECORD)
            assert gives(rig, tenant).within(counts), (gives(rig, tenant), seen)
            assert gives(rig, tenant).within(seen.enforced or RECORD)
    rig.api.seen("Resize", "MODIFIED", rig.api.resizes["p"])  # a watch tells at last
    for _ in range(3):
        carry_out(rig)
    assert gives(rig, tenant) == booked == now(rig).enforced
    assert now(rig).settled
    assert changes > 10
