"""Admission beside other webhooks: they add containers before us and after, and admission is run again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.kube import names
from gemini.kube.pod import parse_pod
from gemini.webhook.review import mutate, validate
from tests.gemini.webhook.test_review import HERE, box, patched, pod, review

Hook = Callable[[dict[str, Any]], dict[str, Any]]


def injector(
    name: str, *, init: str = "", first: bool = False, native: bool = False, mounted: bool = False
) -> Hook:  # fmt: skip
    """A webhook that adds a container once, as meshes and agents do; `native`: as an init container that goes on;
    `mounted`: it puts a folder into every container besides."""

    def add(made: dict[str, Any]) -> dict[str, Any]:
        spec = made["spec"]
        if any(one["name"] == name for one in [*spec["containers"], *spec.get("initContainers", ())]):
            return made
        result = copy.deepcopy(made)
        sidecar = {"name": name, "image": "mesh", "resources": {"requests": {"cpu": "10m"}}}
        if native:
            result["spec"].setdefault("initContainers", []).insert(0, {**sidecar, "restartPolicy": "Always"})
        else:
            result["spec"]["containers"].insert(0 if first else len(spec["containers"]), sidecar)
        if init:
            result["spec"].setdefault("initContainers", []).insert(0, {"name": init, "image": "mesh"})
        if mounted:
            for one in [*result["spec"]["containers"], *result["spec"].get("initContainers", ())]:
                one.setdefault("volumeMounts", []).append({"name": name, "mountPath": f"/{name}"})
        return result

    return add


WAYS = {  # in which well-known injectors add their containers; one of each, or none, is in a cluster
    "istio-proxy": [
        injector("istio-proxy", init="istio-init"),
        injector("istio-proxy", init="istio-init", first=True),
        injector("istio-proxy", init="istio-init", native=True),
    ],
    "linkerd-proxy": [
        injector("linkerd-proxy", init="linkerd-init", first=True),
        injector("linkerd-proxy", init="linkerd-init", native=True),
    ],
    "vault-agent": [
        injector("vault-agent", init="vault-agent-init", mounted=True),
        injector("vault-agent", init="vault-agent-init", mounted=True, first=True),
        injector("vault-agent", native=True, mounted=True),
    ],
    "daprd": [injector("daprd")],
}
STRANGER = injector("watcher", first=True)
PODS = [
    pod({"name": "a"}, gpu_request="0.5"),
    pod({"name": "a"}, {"name": "b"}, init=[{"name": "i"}], gpu_request="0.3", gpu_memory="4Gi"),
    pod({"name": "a"}, {"name": "b"}, gpu_request="0.5", gpu_count="2"),
    pod({"name": "a"}, gpu_request="0", gpu_memory="1Gi"),
    pod({"name": "a"}, {"name": "b"}, **{"gpu_request.a": "0.2", "gpu_memory_ratio.b": "50"}),
    pod({"name": "a"}, {"name": "b"}, gpu_request="0.2", **{"gpu_request.b": "0.4"}),
    pod(box("a", **{"koordinator.sh/gpu": 20}), {"name": "b"}),
    pod(box("a", **{"gemini.io/gpu-core": 30})),
    pod({"name": "a"}, {"name": "b"}, labels={"sharedgpu/gpu_request": "0.4", "sharedgpu/gpu_limit": "0.8"}),
]


def ours(made: dict[str, Any]) -> dict[str, Any]:
    return patched(made, HERE)


def admit(made: dict[str, Any], hooks: list[Hook]) -> tuple[dict[str, Any], list[Hook]]:
    """As the API server calls mutating webhooks whose reinvocationPolicy is IfNeeded: each once, and those again behind
    which another has changed the pod. With those that were called again."""
    called: set[Hook] = set()
    again: set[Hook] = set()
    second: list[Hook] = []
    for every in (True, False):
        for hook in hooks:
            if every or hook in again:
                second += [] if every else [hook]
                after = hook(made)
                if after != made:
                    again |= called
                    called.clear()
                called.add(hook)
                made = after
    return made, second


def own(made: dict[str, Any], names_of: list[str]) -> Any:
    """What is said of the pod and of those containers of it, but for what others mount there."""
    parts = [*made["spec"]["containers"], *made["spec"].get("initContainers", ())]
    kept = {one["name"]: {**one, "volumeMounts": None} for one in parts if one["name"] in names_of}
    return kept, made["metadata"], {**made["spec"], "containers": None, "initContainers": None}


def asks(made: dict[str, Any]) -> Any:
    return [(t.containers, t.role, t.wants) for t in parse_pod(made).ask.tenants]


@st.composite
def orders(draw: st.DrawFn) -> tuple[list[Hook], set[str]]:
    """Ours, and one way each of some injectors, in any order."""
    chosen = draw(st.sets(st.sampled_from(sorted(WAYS)), min_size=1))
    hooks = [draw(st.sampled_from(WAYS[name])) for name in sorted(chosen)]
    return draw(st.permutations([*hooks, ours])), chosen


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PODS), orders())
def test_the_order_of_webhooks_makes_no_difference_to_a_share(made: Any, order: tuple[list[Hook], set[str]]) -> None:
    hooks, chosen = order
    names_of = [one["name"] for part in ("containers", "initContainers") for one in made["spec"].get(part, ())]
    first_pass: list[Any] = []

    def noting(pod: dict[str, Any]) -> dict[str, Any]:
        first_pass.append(own(after := ours(pod), names_of))
        return after

    after, second = admit(made, [noting if hook is ours else hook for hook in hooks])
    assert (noting in second) == (hooks[-1] is not ours)  # each of the others adds something, once
    assert first_pass == [first_pass[0]] * len(first_pass)
    assert own(after, names_of) == first_pass[0]
    assert asks(after) == asks(ours(made))
    assert validate(review(after), HERE)["response"]["allowed"]
    for hook in hooks:
        assert hook(after) == after
    every = [*after["spec"]["containers"], *after["spec"]["initContainers"]]
    added = [one for one in every if one.get("image") == "mesh"]
    assert chosen <= {one["name"] for one in added}
    for container in added:
        amounts = container.get("resources", {}).get("requests", {})
        assert not any(key.startswith("gemini.io/") for key in amounts)
        assert {v["name"] for v in container["env"]} == {names.ENV_VISIBLE_DEVICES}


@pytest.mark.parametrize("made", PODS)
def test_a_stranger_that_is_added_after_us_has_no_slot_and_the_share_stays(made: dict[str, Any]) -> None:
    after, _ = admit(made, [ours, STRANGER])
    assert asks(after) == asks(ours(made))
    assert validate(review(after), HERE)["response"]["allowed"]
    assert ours(after) == after


def test_a_container_that_another_webhook_takes_away_leaves_its_slot_to_the_others() -> None:
    once = ours(pod({"name": "a"}, {"name": "b"}, gpu_request="0.5"))
    amounts = [one["resources"]["limits"][names.RESOURCE_CORE] for one in once["spec"]["containers"]]
    assert amounts == ["49", "1"]
    del once["spec"]["containers"][1]
    again = ours(once)
    assert again["spec"]["containers"][0]["resources"]["limits"][names.RESOURCE_CORE] == "50"
    assert validate(review(again), HERE)["response"]["allowed"]


def test_what_somebody_wrote_beside_annotations_is_refused_as_ever() -> None:
    made = pod(box("a", **{"gemini.io/gpu-core": 30}), {"name": "b"}, gpu_request="0.5")
    assert not mutate(review(made), HERE)["response"]["allowed"]


# ---- a LimitRange's defaults


def ranged(made: dict[str, Any], keys: str = "cpu, gemini.io/gpu-core") -> dict[str, Any]:
    """As the API server fills in defaults, and writes down where."""
    result, told = copy.deepcopy(made), []
    for part, word in (("initContainers", "init container"), ("containers", "container")):
        for container in result["spec"].get(part, ()):
            for section in ("requests", "limits"):
                amounts = container.setdefault("resources", {}).setdefault(section, {})
                missing = [key for key in keys.split(", ") if key not in amounts]
                amounts.update(dict.fromkeys(missing, "10"))
                if missing:
                    told.append(f"{', '.join(missing)} {section[:-1]} for {word} {container['name']}")
    if told:
        result["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = f"LimitRanger plugin set: {'; '.join(told)}"
    return result


@pytest.mark.parametrize(
    "made", [one for one in PODS if "gemini.io/gpu-core" not in str(one) and "koord" not in str(one)]
)
def test_defaults_of_a_limit_range_do_not_change_what_a_pod_says_in_annotations(made: dict[str, Any]) -> None:
    after = ours(ranged(made))
    assert asks(after) == asks(ours(made))
    assert validate(review(after), HERE)["response"]["allowed"]
    assert ours(after) == after
    again, _ = admit(made, [ranged, WAYS["istio-proxy"][0], ours])
    assert asks(again) == asks(ours(made))
    assert validate(review(again), HERE)["response"]["allowed"]


def test_defaults_of_a_limit_range_are_the_share_of_a_pod_that_says_none() -> None:
    after = ours(ranged(pod({"name": "a"})))
    (tenant,) = parse_pod(after).ask.tenants
    assert tenant.wants[0].core == 10
    assert ours(after) == after
