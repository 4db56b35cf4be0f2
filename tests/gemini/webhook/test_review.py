"""Admission: what a sharepod becomes, what is refused, and that what was admitted still means the same."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.kube import names
from gemini.kube.pod import parse_pod
from gemini.kube.scope import SPELLINGS, Reading
from gemini.webhook.review import mutate, validate, validate_binding
from gemini.webhook.settings import Settings

BINDER = "system:serviceaccount:gemini:extender"
HERE = Settings(
    scheduler="gemini-scheduler", binders=frozenset({BINDER}), reading=Reading(frozenset(SPELLINGS))
)  # fmt: skip


def pod(*containers: dict[str, Any], init: Any = (), labels: Any = None, **annotations: str) -> dict[str, Any]:
    said = {f"gemini.io/{k.replace('_', '-')}": v for k, v in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": said, "labels": labels or {}},
        "spec": {"containers": list(containers), "initContainers": list(init), "schedulerName": "default-scheduler"},
    }


def box(name: str, **resources: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"limits": resources, "requests": resources}}


def of(name: str, key: str, amount: Any) -> dict[str, Any]:
    return box(name, **{key: amount})


def review(made: Any, operation: str = "CREATE", **more: Any) -> dict[str, Any]:
    return {"request": {"uid": "u1", "operation": operation, "kind": {"kind": "Pod"}, "object": made, **more}}


def patched(made: dict[str, Any], here: Settings = HERE) -> dict[str, Any]:
    return applied(made, mutate(review(made), here)["response"])


def applied(made: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The pod with the patch of an answer that let it in."""
    assert answer["allowed"], answer
    result: dict[str, Any] = copy.deepcopy(made)
    for operation in json.loads(base64.b64decode(answer.get("patch", "W10="))):
        assert operation["op"] == "add"
        at: Any = result
        *above, last = operation["path"].strip("/").split("/")
        for key in above:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last] = operation["value"]
    return result


PODS = [
    pod({"name": "a"}, gpu_request="0.5"),
    pod({"name": "a"}, {"name": "b"}, init=[{"name": "i"}], gpu_request="0.3", gpu_memory="4Gi"),
    pod({"name": "a"}, gpu_request="0", gpu_memory="1Gi"),
    pod({"name": "a"}, {"name": "b"}, **{"gpu_request.a": "0.2", "gpu_memory_ratio.b": "50"}),
    pod(of("a", "nvidia.com/gpu", "2"), {"name": "b"}),
    pod(of("a", "kubernetes.io/gpu", "50"), of("b", "koordinator.sh/gpu-memory-ratio", 30)),
    pod(of("a", "gemini.io/gpu-memory", "4Gi")),
    pod(of("a", "gemini.io/gpu-core", 300)),
    pod(
        box("a", **{"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": "8Gi"})
    ),
    pod(box("a", **{"koordinator.sh/gpu": 100, "koordinator.sh/rdma": 50, "cpu": "2"}), gpu_model="A100"),
    pod(box("a", **{"nvidia.com/gpu": 1, "koordinator.sh/rdma": 10}), joint="rdma"),
    pod({"name": "a"}, labels={"sharedgpu/gpu_request": "0.4", "sharedgpu/gpu_limit": "0.8"}),
    pod(of("a", "aliyun.com/gpu-mem", "1024")),
    pod(of("a", "koordinator.sh/gpu", 20), init=[of("i", "nvidia.com/gpu", 1)]),
    pod(of("a", "koordinator.sh/fpga", 100)),
]


@pytest.mark.parametrize("made", PODS)
def test_an_admitted_pod_means_what_it_meant(made: dict[str, Any]) -> None:
    after = patched(made)
    assert parse_pod(after).ask == parse_pod(made).ask
    assert validate(review(after), HERE)["response"]["allowed"]
    assert after["spec"]["schedulerName"] == "gemini-scheduler"


@pytest.mark.parametrize("made", PODS)
def test_every_container_with_a_share_asks_a_slot_save_in_gpushares_spelling(made: dict[str, Any]) -> None:
    spec, after = parse_pod(made), patched(made)
    sharing = {c for t in spec.ask.tenants for c in t.containers if t.wants[0].type == "gpu"}
    for container in after["spec"]["containers"] + after["spec"]["initContainers"]:
        limits = container.get("resources", {}).get("limits", {})
        gpushare = names.ALIYUN_GPU_MEM in limits
        assert (int(limits.get(names.RESOURCE_CORE, 0)) >= 1) == (container["name"] in sharing and not gpushare)
        assert not any(key.startswith(("nvidia.com/gpu", "kubernetes.io/gpu", "koordinator.sh/")) for key in limits)
        assert container.get("resources", {}).get("requests", {}) == limits


@pytest.mark.parametrize("made", PODS)
def test_admission_twice_is_admission_once(made: dict[str, Any]) -> None:
    once = patched(made)
    assert patched(once) == once


def test_B3_nvidia_gpu_becomes_core_and_memory_of_our_domain_and_cpu_stays() -> None:
    limits = patched(pod(box("a", **{"nvidia.com/gpu": "2", "cpu": "4", "memory": "8Gi"})))["spec"]["containers"][0]
    assert limits["resources"]["limits"] == {
        "cpu": "4",
        "memory": "8Gi",
        "gemini.io/gpu-core": "200",
        "gemini.io/gpu-memory-ratio": "200",
    }


@pytest.mark.parametrize(("said", "unit"), [({}, "GiB"), ({"gpushare_unit": "MiB"}, "MiB")])
def test_a_gpushare_pod_is_told_the_unit_of_the_cluster_unless_it_says_one(said: dict[str, str], unit: str) -> None:
    made = patched(pod(of("a", "aliyun.com/gpu-mem", 8), **said), replace(HERE, gpushare_unit="GiB"))
    assert made["metadata"]["annotations"]["gemini.io/gpushare-unit"] == unit
    (tenant,) = parse_pod(made).ask.tenants
    assert tenant.wants[0].memory == 8 * {"MiB": 2**20, "GiB": 2**30}[unit]


def test_the_library_goes_before_what_the_container_preloads_itself() -> None:
    made = pod(
        {"name": "a", "env": [{"name": "LD_PRELOAD", "value": "/x.so"}, {"name": "A", "value": "1"}]}, gpu_request="0.5"
    )
    assert patched(made)["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "LD_PRELOAD", "value": f"{names.LIBRARY_PATH}:/x.so"},
        {"name": "GEMINI_SOCKET", "value": f"ipc://{names.SOCKET_PATH}"},
    ]


def test_what_another_webhook_put_around_our_library_stays_behind_it() -> None:
    """Admission is run again after it (reinvocation)."""
    ours = names.LIBRARY_PATH
    both = ["/y.so", "/x.so"]
    for found, kept in ((f"{ours}:/x.so", ["/x.so"]), (f"/y.so:{ours}:/x.so", both), ("/y.so /x.so", both)):
        made = patched(pod({"name": "a", "env": [{"name": "LD_PRELOAD", "value": found}]}, gpu_request="0.5"))
        env = {v["name"]: v["value"] for v in made["spec"]["containers"][0]["env"]}
        assert env["LD_PRELOAD"].split(":") == [ours, *kept]
        assert patched(made) == made


def environment(made: dict[str, Any], name: str) -> dict[str, str]:
    spec = made["spec"]
    boxes = [*spec["containers"], *spec.get("initContainers", ()), *spec.get("ephemeralContainers", ())]
    return {v["name"]: v["value"] for v in next(one for one in boxes if one["name"] == name).get("env", ())}


def test_a_container_of_a_sharepod_without_a_share_has_no_card_whatever_its_image_says() -> None:
    made = patched(pod({"name": "a"}, {"name": "b"}, init=[{"name": "i"}], **{"gpu_request.a": "0.5"}))
    assert [environment(made, name).get("NVIDIA_VISIBLE_DEVICES") for name in "abi"] == [None, "void", "void"]
    assert patched(made) == made
    assert validate(review(made), HERE)["response"]["allowed"]


def test_a_container_that_others_give_cards_to_keeps_them() -> None:
    mig = of("b", "nvidia.com/mig-1g.10gb", 1)
    claims = {"name": "c", "resources": {"claims": [{"name": "x"}]}}
    made = patched(pod({"name": "a"}, mig, claims, **{"gpu_request.a": "0.5"}))
    assert [environment(made, name) for name in "bc"] == [{}, {}]


def test_where_cards_come_by_cdi_the_environment_names_none_and_envFrom_is_admitted_with_a_warning() -> None:
    given = pod({"name": "a", "envFrom": [{"configMapRef": {"name": "c"}}]}, gpu_request="0.5")
    here = replace(HERE, by_cdi=True)
    answer = mutate(review(given), here)["response"]
    assert answer["warnings"] == ["spec.containers[0].envFrom: LD_PRELOAD from it is not used; write it under env"]
    made = patched(given, here)
    assert environment(made, "a")["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert patched(made, here) == made
    assert not mutate(review(given), HERE)["response"]["allowed"]
    assert mutate(review(given), replace(HERE, allowed=frozenset({"envFrom"})))["response"]["allowed"]


def debugged(old: dict[str, Any], container: dict[str, Any]) -> dict[str, Any]:
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [container]
    return review(new, "UPDATE", oldObject=old, subResource="ephemeralcontainers")


def test_a_container_that_is_added_to_a_sharepod_has_no_card_and_may_not_take_one() -> None:
    old = pod({"name": "a"}, gpu_request="0.5", allocation="{}", assigned="true")
    asked = debugged(old, {"name": "debug", "image": "cuda"})
    answer = mutate(asked, HERE)["response"]
    (operation,) = json.loads(base64.b64decode(answer["patch"]))
    void = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert operation == {"op": "add", "path": "/spec/ephemeralContainers/0/env", "value": void}
    assert validate(debugged(old, {"name": "debug", "env": void}), HERE)["response"]["allowed"]
    thief = {"name": "debug", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    for judge in (mutate, validate):
        refused = judge(debugged(old, thief), HERE)["response"]
        assert refused["status"]["message"].startswith(
            "spec.ephemeralContainers[0].env[NVIDIA_VISIBLE_DEVICES]: all goes"
        )
        assert judge(debugged(pod({"name": "a"}), thief), HERE)["response"] == {"uid": "u1", "allowed": True}


def test_no_sharepod_is_gone_before_its_kubelet_has_ended_it() -> None:
    """An eviction of a pod whose own grace period is 0 freed its card at once; the policy about endings sees none."""
    given_pod = pod(box("main"), gpu_request="0.5")
    given_pod["spec"]["terminationGracePeriodSeconds"] = 0
    assert patched(given_pod)["spec"]["terminationGracePeriodSeconds"] == 1
    assert "terminationGracePeriodSeconds: is 1 now" in mutate(review(given_pod), HERE)["response"]["warnings"][0]
    assert "terminationGracePeriodSeconds" not in patched(pod(box("main"), gpu_request="0.5"))["spec"]
    plain = pod(box("main"))
    plain["spec"]["terminationGracePeriodSeconds"] = 0
    assert "patch" not in mutate(review(plain), HERE)["response"]


def test_no_pod_with_a_claim_is_gone_before_its_kubelet_has_ended_it() -> None:
    """The same of claims. Whose devices they are the pod does not say."""
    claims = pod({"name": "a"})
    claims["spec"] |= {
        "resourceClaims": [{"name": "card", "resourceClaimName": "c"}],
        "terminationGracePeriodSeconds": 0,
    }
    assert patched(claims)["spec"] == {**claims["spec"], "terminationGracePeriodSeconds": 1}
    assert "terminationGracePeriodSeconds: is 1 now" in mutate(review(claims), HERE)["response"]["warnings"][0]
    claims["spec"]["terminationGracePeriodSeconds"] = 30
    assert mutate(review(claims), HERE)["response"] == {"uid": "u1", "allowed": True}


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_nor_is_one_that_gets_its_claim_for_a_resource_that_names_the_class(where: str) -> None:
    """kube-scheduler makes the claim of such a pod, which names none (on by default from Kubernetes 1.36 on)."""
    limits = {"deviceclass.resource.kubernetes.io/gemini.io": "1"}
    given_pod = pod({"name": "a"})
    given_pod["spec"] |= {where: [{"name": "b", "resources": {"limits": limits}}], "terminationGracePeriodSeconds": 0}
    assert patched(given_pod)["spec"] == {**given_pod["spec"], "terminationGracePeriodSeconds": 1}
    given_pod["spec"][where] = [{"name": "b", "resources": {"limits": {"example.com/card": "1"}}}]
    assert mutate(review(given_pod), HERE)["response"] == {"uid": "u1", "allowed": True}


def test_pods_without_a_share_and_other_objects_pass_untouched() -> None:
    for made in (pod({"name": "a"}), {"kind": "Deployment", "spec": {}}):
        for answer in (mutate(review(made), HERE), validate(review(made), HERE)):
            assert answer["response"] == {"uid": "u1", "allowed": True}


def with_spec(**spec: Any) -> dict[str, Any]:
    made = pod({"name": "a"}, gpu_request="0.5")
    made["spec"].update(spec)
    return made


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (pod({"name": "a"}, gpu_request="1.5"), "gemini.io/gpu-request: 1.5 is above 1; "),
        (pod({"name": "a"}, gpu_requst="0.5"), "gemini.io/gpu-requst: is no annotation"),
        (pod({"name": "a"}, gpu_request="0.5", gpu_policy="best"), "gemini.io/gpu-policy: best is no policy"),
        (
            pod({"name": "a"}, gpu_request="0.5", allocation="{}"),
            "gemini.io/allocation: {} is written by the scheduler",
        ),
        (with_spec(nodeName="n1"), "spec.nodeName: n1 is preset"),
        (with_spec(schedulerName="volcano"), "spec.schedulerName: volcano knows nothing of shares"),
        (with_spec(containers=[{"name": "a", "securityContext": {"privileged": True}}]), "spec.containers[0].security"),
        (with_spec(containers=[{"name": "a", "env": [{"name": "NVIDIA_VISIBLE_DEVICES"}]}]), "spec.containers[0].env"),
        ("pod", "request.object: pod is not an object"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_field_value_and_mend(made: Any, problem: str) -> None:
    for answer in (mutate(review(made), HERE), validate(review(made), HERE)):
        assert not answer["response"]["allowed"]
        assert answer["response"]["status"]["message"].startswith(problem)
        assert ";" in answer["response"]["status"]["message"]


def test_a_sharepod_for_which_another_webhook_chose_the_default_scheduler_is_refused() -> None:
    """Where sharepods have a scheduler of ours the default one asks no extender: the pod would wait for ever."""
    made = patched(pod({"name": "a"}, gpu_request="0.5"))
    assert validate(review(made), HERE)["response"]["allowed"]
    made["spec"]["schedulerName"] = "default-scheduler"
    told = validate(review(made), HERE)["response"]["status"]["message"]
    assert told.startswith(
        "spec.schedulerName: default-scheduler knows nothing of shares; remove it, or use gemini-sch"
    )
    assert validate(review(made), replace(HERE, scheduler=None))["response"]["allowed"]


def test_the_share_of_a_pod_that_exists_cannot_change() -> None:
    old, new = pod({"name": "a"}, gpu_request="0.5"), pod({"name": "a"}, gpu_request="0.9")
    refused = validate(review(new, "UPDATE", oldObject=old), HERE)["response"]
    assert refused["status"]["message"].startswith("gemini.io/gpu-request: 0.9 instead of 0.5")
    bound = pod({"name": "a"}, gpu_request="0.5", assigned="true", allocation="{}")
    assert validate(review(bound, "UPDATE", oldObject=old), HERE)["response"]["allowed"]


def test_B23_only_our_own_scheduler_binds_sharepods() -> None:
    binding = {"kind": "Binding", "metadata": {"uid": "u-p"}}
    theirs = review(binding, userInfo={"username": "mallory"})
    ours = review(binding, userInfo={"username": "system:serviceaccount:gemini:extender"})
    shared, plain, bad = pod({"name": "a"}, gpu_request="0.5"), pod({"name": "a"}), pod({"name": "a"}, gpu_what="1")
    for one in (shared, plain, bad):
        one["metadata"]["uid"] = "u-p"
    refused = validate_binding(theirs, shared, HERE)["response"]
    assert (refused["allowed"], refused["status"]["code"]) == (False, 403)
    assert validate_binding(theirs, plain, HERE)["response"]["allowed"]
    assert validate_binding(theirs, None, HERE)["response"]["allowed"]
    assert validate_binding(ours, shared, HERE)["response"]["allowed"]
    assert not validate_binding(theirs, bad, HERE)["response"]["allowed"]


@pytest.mark.parametrize("metadata", [{}, {"uid": ""}, {"uid": 5}, {"uid": "another"}])
def test_who_does_not_know_a_pods_uid_is_told_nothing_of_it(metadata: dict[str, Any]) -> None:
    asked = review({"kind": "Binding", "metadata": metadata}, userInfo={"username": "mallory"})
    shared, plain = pod({"name": "a"}, gpu_request="0.5"), pod({"name": "a"})
    for one in (shared, plain):
        one["metadata"]["uid"] = "u-p"
    answers = [validate_binding(asked, one, HERE) for one in (shared, plain, None)]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("given_review", [None, [], {}, {"request": 5}, {"request": {"operation": "CREATE"}}])
def test_what_is_no_review_is_refused(given_review: Any) -> None:
    for answer in (mutate(given_review, HERE), validate(given_review, HERE)):
        assert answer["kind"] == "AdmissionReview"
        assert not answer["response"]["allowed"]


LEAVES: Any = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.sampled_from(["Pod", "a", "1"])
)
JSON: Any = st.recursive(
    LEAVES, lambda i: st.lists(i, max_size=2) | st.dictionaries(st.text(max_size=4), i, max_size=2)
)


def paths(value: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [so_far, *(path for key, inner in items for path in paths(inner, (*so_far, key)))]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_json_makes_it_raise(data: st.DataObject) -> None:
    mutated = copy.deepcopy(review(data.draw(st.sampled_from(PODS))))
    *above, last = data.draw(st.sampled_from([p for p in paths(mutated) if p]))
    at: Any = mutated
    for key in above:
        at = at[key]
    at[last] = data.draw(JSON)
    for answer in (mutate(mutated, HERE), validate(mutated, HERE), validate_binding(mutated, mutated, HERE)):
        assert isinstance(answer["response"]["allowed"], bool)
