"""Another share for pods that run, on the real control plane: who writes what; that book, node and card agree."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.bed import until_shares
from gemini.cli.main import main
from gemini.kube import names
from gemini.kube.resize import Amounts, Resize, read_resize
from libhook.observer import Timeline
from tests.e2e.api import Api, ApiError, Object, condition
from tests.e2e.conftest import ROOT
from tests.e2e.pki import write_kubeconfig
from tests.e2e.plane import Plane
from tests.e2e.process import until
from tests.e2e.resizing import loads, staged
from tests.e2e.test_extender import CORE, GIB, gemini, nodes_with_cards, sharepod
from tests.e2e.test_extender import crd as crd
from tests.e2e.test_plugin import role as role

pytestmark = pytest.mark.timeout(900)
POLICY = ROOT / "deploy/kustomize/cluster/validatingadmissionpolicy-resizes.yaml"
SYSTEM, EDITOR = "gemini", "editor"
RESIZES = "/apis/gemini.io/v1alpha1/namespaces/{}/resizes"
WISH = Amounts(30, 60, 4 * GIB)


@pytest.fixture
def guarded(plane: Plane, namespace: str, crd: None) -> Iterator[None]:
    """The policy, the accounts that it names, and an editor of the namespace."""
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    for account in ("gemini-node", "gemini-extender"):
        plane.api.post(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": account}})
        grant = ("create", "clusterrolebinding", f"resizes-{account}", "--clusterrole=cluster-admin")
        plane.kubectl(*grant, f"--serviceaccount={SYSTEM}:{account}")  # with all rights: the policy alone keeps them
    plane.kubectl("apply", "-f", str(POLICY))
    plane.kubectl("create", "rolebinding", EDITOR, "-n", namespace, "--clusterrole=edit", f"--user={EDITOR}")
    try:
        yield
    finally:
        plane.kubectl("delete", "-f", str(POLICY))
        for account in ("gemini-node", "gemini-extender"):
            plane.kubectl("delete", "clusterrolebinding", f"resizes-{account}")
        plane.api.delete(f"/api/v1/namespaces/{SYSTEM}")
        plane.api.wait_gone(f"/api/v1/namespaces/{SYSTEM}")


@pytest.fixture
def own_nodes(plane: Plane) -> Iterator[list[str]]:
    """Two: the pod's, and another."""
    with plane.nodes(2, prefix="own") as found:
        yield found


def held(card: Object) -> tuple[int, int]:
    return card["used_core"], card["used_memory"]


def resize(pod: Object, wish: Amounts) -> Object:
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": names.DEVICE_API_VERSION, "kind": names.RESIZE_KIND, "spec": wish.written(),
        "metadata": {"name": meta["name"], "ownerReferences": [owner]},
    }  # fmt: skip


def test_each_writes_its_own_part_of_a_resize_and_nothing_else(
    plane: Plane, namespace: str, guarded: None, own_nodes: list[str]
) -> None:
    pods, path = f"/api/v1/namespaces/{namespace}/pods", RESIZES.format(namespace)
    editor = Api(plane.server, plane.authority.client_context(EDITOR, ()))
    own, other = own_nodes
    spec = {"nodeName": own, "containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0}
    pod = plane.api.post(pods, {"metadata": {"name": "p"}, "spec": spec})

    def by(account: str, node: str | None, status: Object, *more: str) -> str:
        bound = () if node is None else ("--bound-object-kind=Node", f"--bound-object-name={node}")
        token = plane.kubectl("-n", SYSTEM, "create", "token", f"gemini-{account}", *bound).stdout.strip()
        config = plane.folder / f"resizes-{account}.kubeconfig"
        write_kubeconfig(config, plane.server, plane.authority.certificate, {"token": token})
        words = (
            "patch",
            "resize",
            "p",
            "--subresource=status",
            "--type=merge",
            "-p",
            json.dumps({"status": status}),
            *more,
        )
        return plane.kubectl("--kubeconfig", str(config), "-n", namespace, *words, check=False).stderr

    amounts = WISH.written()
    booked = {"pod": pod["metadata"]["uid"], "node": own, "answered": 1, "booked": amounts}
    enforced = {"enforced": amounts, "settled": True}
    editor.post(path, resize(pod, WISH))  # by the roles that Kubernetes' own edit and view take up
    for bad, why in (
        ({"limit": 20}, "the limit is below the request; raise the one"),
        ({"memory": 12}, "should be greater than or"),
    ):
        with pytest.raises(ApiError, match=why):
            editor.patch(f"{path}/p", {"spec": bad})
    with pytest.raises(ApiError, match="cannot patch resource"):
        editor.patch(f"{path}/p/status", {"status": booked})
    again = ("--dry-run=server",)  # what was written before the policy is known would be no change any more
    until(lambda: "by Gemini's extender alone" in by("node", own, booked, *again), "the API server knows the policy")
    with pytest.raises(ApiError, match="by Gemini's extender alone"):
        plane.api.patch(f"{path}/p/status", {"status": booked})
    assert "by the pod's own node alone" in by("extender", None, {**booked, **enforced})
    assert by("extender", None, booked) == ""
    assert "by the pod's own node alone" in by("extender", None, enforced)
    assert "by the pod's own node alone" in by("node", None, enforced)
    assert "by the pod's own node alone" in by("node", other, enforced)
    assert by("node", own, enforced) == ""
    with pytest.raises(ApiError, match="stays with its pod"):
        editor.patch(f"{path}/p", {"metadata": {"ownerReferences": None}})
    plane.kubectl("create", "role", EDITOR, "-n", namespace, "--verb=delete", "--resource=resizes.gemini.io")
    plane.kubectl("create", "rolebinding", "more", "-n", namespace, f"--role={EDITOR}", f"--user={EDITOR}")
    until(lambda: "cannot delete" not in _refused(lambda: editor.delete(f"{path}/p")), "the role")
    with pytest.raises(ApiError, match="goes with its pod"):
        editor.delete(f"{path}/p")
    plane.api.delete(f"{pods}/p", 0)
    plane.api.wait_gone(f"{path}/p")  # by Kubernetes' own collector


def test_a_resize_is_small_and_one_pods(plane: Plane, namespace: str, guarded: None, own_nodes: list[str]) -> None:
    """Each replica of the extender, and each node's plugin, hears of all of the cluster."""
    path, editor = RESIZES.format(namespace), Api(plane.server, plane.authority.client_context(EDITOR, ()))
    pod = {"metadata": {"name": "p", "uid": "0b1c2d3e-0000-4000-8000-000000000000"}}
    made = resize(pod, WISH)
    owner = made["metadata"]["ownerReferences"][0]

    def told(**metadata: object) -> str:
        body = {**made, "metadata": {**made["metadata"], **metadata}}
        return _refused(lambda: editor.call("POST", path, body, {"dryRun": "All"}))

    until(lambda: "one pod's" in told(ownerReferences=[]), "the API server knows the policy")
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "x"}
    for owners in ([owner, other], [other], [{**owner, "name": "q"}], [{**owner, "uid": "x" * 65}]):
        assert "one pod's" in told(ownerReferences=owners), owners
    for much in (
        {"labels": {f"k{i}": "" for i in range(17)}},
        {"annotations": {f"k{i}": "" for i in range(17)}},
        {"annotations": {"k": "x" * 2049}},
        {"finalizers": [f"a.b/{i}" for i in range(5)]},
    ):
        assert "at most 16 labels, 16 annotations of 2,048 characters" in told(**much), much
    few = {"labels": {f"k{i}": "" for i in range(16)}, "annotations": {f"k{i}": "x" * 2048 for i in range(16)}}
    assert told(**few) == ""
    with plane.nodes(1) as (node,):
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0}
        there = plane.api.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "p"}, "spec": spec})
        editor.post(path, resize(there, WISH))
        for part in ("pod", "node", "refused", "waits"):
            with pytest.raises(ApiError, match=rf"status\.{part}: Too long"):
                plane.api.patch(f"{path}/p/status", {"status": {part: "x" * 1_001}})
        with pytest.raises(ApiError, match="at most 16 labels"):
            editor.patch(f"{path}/p", {"metadata": few | {"labels": {f"k{i}": "" for i in range(17)}}})
        done = ""
        for manager in range(9):
            applied = {**resize(there, WISH), "spec": {"request": 30, "limit": 60, "memory": (4 + manager) * GIB}}
            words = ("apply", "--server-side", "--force-conflicts", f"--field-manager=m{manager}", "-f", "-")
            config = ("--kubeconfig", str(plane.kubeconfig(EDITOR)), "-n", namespace)
            done += plane.kubectl(*config, *words, text=json.dumps(applied), check=False).stderr
        assert "8 field managers" in done


def test_a_pod_that_is_deleted_in_the_foreground_counts_with_what_it_was_given(
    plane: Plane, namespace: str, crd: None
) -> None:
    """Kubernetes' own collector deletes its Resize at once, and the pod's programs go on as long as the pod says."""
    path, wishes = f"/api/v1/namespaces/{namespace}/pods", RESIZES.format(namespace)
    with nodes_with_cards(plane, 1, 1, capacity={CORE: "1000"}), gemini(plane) as url:

        def used() -> tuple[int, int]:
            with urllib.request.urlopen(f"{url}/state", timeout=60) as answer:
                (card,) = json.loads(answer.read())["nodes"][0]["devices"]
            return held(card)

        plane.api.post(path, sharepod("p", gpu_request="0.1", gpu_memory="8Gi"))
        pod = plane.api.wait_one(f"{path}/p", condition("Ready"))
        owners = resize(pod, Amounts(90, 100, 70 * GIB))
        owners["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True
        plane.api.post(wishes, owners)
        plane.api.wait_one(f"{wishes}/p", lambda one: "booked" in (one.get("status") or {}))
        until(lambda: used() == (90, 70 * GIB), "the book counts more")
        plane.api.patch(f"{path}/p", {"metadata": {"finalizers": ["a.test/its-programs-go-on"]}})
        foreground = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        plane.api.call("DELETE", f"{path}/p", foreground)
        plane.api.wait_gone(f"{wishes}/p")
        plane.api.post(path, sharepod("q", gpu_request="0.2", gpu_memory="1Gi"))
        pending = plane.api.wait_one(f"{path}/q", lambda one: "InsufficientCore" in json.dumps(one.get("status") or {}))
        assert "nodeName" not in pending["spec"]
        assert used() == (90, 70 * GIB)
        plane.api.patch(f"{path}/p", {"metadata": {"finalizers": None}})
        plane.api.wait_one(f"{path}/q", condition("Ready"))


def _refused(do: Callable[[], object]) -> str:
    try:
        do()
    except ApiError as error:
        return str(error)
    return ""


def test_a_wish_is_answered_in_one_line_and_booked_where_there_is_room(
    plane: Plane, namespace: str, crd: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a node that enforces: more counts at once, less when the node has written so."""
    path, wishes = f"/api/v1/namespaces/{namespace}/pods", RESIZES.format(namespace)
    with nodes_with_cards(plane, 1, 1, capacity={CORE: "1000"}) as (node,), gemini(plane) as url:

        def used() -> tuple[int, int]:
            with urllib.request.urlopen(f"{url}/state", timeout=60) as answer:
                (card,) = json.loads(answer.read())["nodes"][0]["devices"]
            return held(card)

        for name, request in (("p", "0.3"), ("q", "0.4")):
            plane.api.post(path, sharepod(name, gpu_request=request, gpu_memory="8Gi"))
            plane.api.wait_one(f"{path}/{name}", condition("Ready"))

        def wish(*words: str) -> str:
            done = main(["kubectl", "resize", *words, "-n", namespace, "--kubeconfig", str(plane.admin)])
            out, err = capsys.readouterr()
            assert (done == 0) == (err == ""), (done, out, err)
            return out + err

        assert "no room: the pod's card on" in wish("p", "--request", "0.7")
        assert "a request of 0.6 and 72Gi at most" in wish("p", "--request", "0.7")
        assert wish("nobody", "--request", "0.7") == (
            f"gemini: there is no pod {namespace}/nobody; kubectl get pods --all-namespaces has them\n"
        )
        assert "finer than one percent" in wish("p", "--request", "0.333")
        assert "resize changes nothing" in wish("p")
        quota = f"/api/v1/namespaces/{namespace}/resourcequotas"
        plane.api.post(quota, {"metadata": {"name": "q"}, "spec": {"hard": {f"requests.{CORE}": "70"}}})
        assert f"the ResourceQuota q (requests.{CORE}) counts" in wish("p", "--request", "0.5")
        plane.api.delete(f"{quota}/q")
        given = plane.api.get(f"{wishes}/p")
        plane.api.patch(f"{wishes}/p", {"spec": {"request": 60, "memory": 72 * GIB}})
        plane.api.wait_one(f"{wishes}/p", lambda one: "booked" in (one.get("status") or {}))
        assert given["metadata"]["ownerReferences"][0]["name"] == "p"
        until(lambda: used() == (100, 80 * GIB), "the book counts more")
        plane.api.patch(f"{wishes}/p", {"spec": {"request": 10, "memory": 4 * GIB}})
        answered = plane.api.wait_one(f"{wishes}/p", lambda one: one["status"]["booked"]["request"] == 10)
        until(lambda: used() == (70, 76 * GIB - 60 * GIB), "the record counts until the node has written")
        plane.api.patch(f"{wishes}/p/status", {"status": {"enforced": answered["status"]["booked"], "settled": True}})
        until(lambda: used() == (50, 12 * GIB), "less counts once it is enforced")
        assert node in json.dumps(answered)


# ---- under load, with kills

RESIZINGS, EVERY = 200, 9  # of which each so-manieth has a kill in its midst
KILLED = ("serve", "extender", "device-plugin")
SHARES = ((10, 30), (20, 20), (30, 100), (40, 60), (50, 50), (70, 100))


@pytest.mark.usefixtures("role")
def test_two_hundred_resizes_under_load_with_kills_leave_book_node_and_card_in_step(
    plane: Plane, namespace: str, crd: None, machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wishes = RESIZES.format(namespace)
    chance, wrong = random.Random(27), list[str]()
    share = {"gpu_request": "0.3", "gpu_limit": "0.5", "gpu_memory": "20Gi"}
    with (
        ThreadPoolExecutor(1) as killers,  # what it starts ends with the thread that started it
        staged(plane, namespace, machine, tmp_path, {"a": share, "b": share}) as (url, stage, card),
        loads(stage, ["a", "b"]) as pids,
    ):
        ended = threading.Event()

        def objects() -> dict[str, Resize]:
            found = (read_resize(one) for one in plane.api.get(wishes)["items"])
            return {one.name: one for one in found if one is not None}

        def watch() -> None:
            """The daemon is looked at before the objects: they only grow ahead of it, and shrink behind it."""
            record = Amounts(30, 50, 20 * GIB)
            while not ended.wait(0.01):
                before = objects()
                gives, after = stage.tenants(), objects()
                if sum(one.request for one in gives.values()) > 100:
                    wrong.append(f"more than the card: {gives}")
                for name, amounts in gives.items():
                    seen = [one[name] for one in (before, after) if name in one]
                    most = Amounts(0, 0, 0)
                    for one in seen:
                        most = most.most((one.booked or record).most(one.enforced or record))
                    if not amounts.within(most.most(record) if len(seen) < 2 else most):
                        wrong.append(f"{name} is given {amounts}, counted {most}")

        watching = threading.Thread(target=watch)
        watching.start()
        refused = done = 0
        try:
            for number in range(RESIZINGS):
                name, (request, limit) = chance.choice("ab"), chance.choice(SHARES)
                memory = chance.choice([8, 16, 24, 40])
                killer = None
                if number % EVERY == EVERY - 1:
                    killer = killers.submit(stage.kill, KILLED[number // EVERY % 3], chance.random() / 10)
                words = ["--request", f"{request}%", "--limit", f"{limit}%", "--memory", f"{memory}Gi"]
                config = ["-n", namespace, "--kubeconfig", str(plane.admin)]
                status = main(["kubectl", "resize", name, *words, *config])
                out, err = capsys.readouterr()
                if killer is not None:
                    killer.result()
                done += status == 0
                refused += "no room" in err
                assert status == 0 or "no room" in err, (number, out, err)
        finally:
            ended.set()
            watching.join()
        assert not wrong, wrong[:5]
        assert len(stage.kills) == RESIZINGS // EVERY
        assert refused > RESIZINGS // 20
        assert done > RESIZINGS // 2

        def agree() -> bool:
            seen, gives = objects(), stage.tenants()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/state", timeout=60) as answer:
                (book,) = (one for one in json.loads(answer.read())["nodes"] if one["name"] == stage.node.name)
                total = held(book["devices"][0])
                counted = tuple(sum(getattr(one.booked, key) for one in seen.values()) for key in ("request", "memory"))
                same = all(one.settled and one.booked == one.enforced == gives.get(n) for n, one in seen.items())
                return same and total == counted
            return False

        until(agree, "object, book and daemon say the same")
        assert_within_limits(card, pids, stage.tenants())


def assert_within_limits(card: Timeline, pids: dict[str, int], given: dict[str, Amounts]) -> None:
    """By the device's own timeline: both are always busy."""
    promised = {name: one.request / 100 for name, one in given.items()}

    def look() -> dict[str, float]:
        began, before = card.busy(0)
        time.sleep(2)
        ended, after = card.busy(0)
        found = {name: (after[pid] - before.get(pid, 0)) / (ended - began) for name, pid in pids.items()}
        for name, share in found.items():
            assert share <= given[name].limit / 100 + 0.03, (name, found, given)
        return found

    wanted = {name: min(given[name].limit / 100, share / sum(promised.values())) for name, share in promised.items()}
    spare = 1 - sum(wanted.values())
    for name in wanted:  # what one may not take is the other's, up to its limit
        wanted[name] = min(given[name].limit / 100, wanted[name] + spare)
    total = sum(wanted.values())
    until_shares(look, {name: part / total for name, part in wanted.items()}, 0.05, least=0.1, seconds=60)
