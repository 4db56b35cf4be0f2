"""kubectl gemini check: what is missing is named with its mend. On a real API server: tests/e2e/test_records.py."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.cli.check import FAIL, OK, WARN
from gemini.cli.kubectl_check import ENFORCE, of_hook, of_mixed_nodes, of_namespace, of_policies, sharing
from tests.gemini.extender.world import pod_object

Object = dict[str, Any]
NAMES = ("gemini-records", "gemini-endings", "gemini-resizes", "gemini-queued", "gemini-node")


def policy(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"failurePolicy": "Fail", **spec}}


def binding(name: str, *actions: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": list(actions)}}


@pytest.mark.parametrize(
    ("policies", "bindings", "told"),
    [
        ([policy(n) for n in NAMES], [binding(n, "Deny") for n in NAMES], [OK] * len(NAMES)),
        ([], [], [FAIL] * len(NAMES)),
        (
            [policy(n) for n in NAMES],
            [binding("gemini-records", "Audit"), binding("gemini-node", "Deny")],
            [FAIL, FAIL, FAIL, FAIL, OK],
        ),
        (
            [policy("gemini-records", failurePolicy="Ignore"), *(policy(n) for n in NAMES[1:])],
            [binding(n, "Warn", "Deny") for n in NAMES],
            [FAIL, OK, OK, OK, OK],
        ),
    ],
)
def test_a_policy_has_to_be_there_bound_and_to_deny(
    policies: list[Object], bindings: list[Object], told: list[str]
) -> None:
    assert [verdict for verdict, _ in of_policies(policies, bindings)] == told


@pytest.mark.parametrize(
    ("hooks", "told"),
    [
        ([], FAIL),
        ([{"name": "other"}], FAIL),
        ([{"name": "h", "failurePolicy": "Fail"}], OK),
        ([{"name": "h", "failurePolicy": "Ignore"}], WARN),
        ([{"name": "h", "namespaceSelector": {"matchLabels": {"a": "b"}}}], WARN),
    ],
)
def test_a_webhook_has_to_be_asked_about_all_pods(hooks: list[Object], told: str) -> None:
    ((verdict, text),) = of_hook([{"metadata": {}, "webhooks": hooks}], "h", "all is let in")
    assert verdict == told
    assert ("all is let in" in text) is (told != OK)


@pytest.mark.parametrize(
    ("level", "refuses", "told", "says"),
    [
        (None, False, FAIL, "kubectl label --overwrite namespace ns pod-security.kubernetes.io/enforce=baseline"),
        ("privileged", False, FAIL, "enforce=baseline"),
        ("baseline", True, OK, "Pod Security baseline refuses"),
        (None, True, OK, "a policy of the cluster refuses"),
        ("restricted", None, OK, "enforces Pod Security restricted"),
        (None, None, WARN, "you may not create pods there"),
        ("baseline", False, FAIL, "may mount the node's folders"),  # an exemption
    ],
)
def test_a_namespace_is_judged_by_what_it_refuses(
    level: str | None, refuses: bool | None, told: str, says: str
) -> None:
    verdict, text = of_namespace("ns", {ENFORCE: level} if level else {}, refuses)
    assert (verdict, says in text) == (told, True), text


@pytest.mark.parametrize(
    ("asked", "capacities", "told"),
    [
        ("nvidia.com/gpu", [{"nvidia.com/gpu": "8", "gemini.io/gpu-core": "800"}], []),
        ("", [{"nvidia.com/gpu": "8"}, {"gemini.io/gpu-core": "800"}], [OK]),
        ("", [{"nvidia.com/gpu": "0", "gemini.io/gpu-core": "800"}, {}], [OK]),
        ("", [{"nvidia.com/gpu": "8", "gemini.io/gpu-core": "800"}, {"nvidia.com/gpu": "8"}], [FAIL]),
        ("", [{"nvidia.com/gpu.shared": "8", "aliyun.com/gpu-mem": "80"}] * 2, [FAIL, FAIL]),
    ],
)
def test_a_scheduler_that_asks_about_shares_alone_has_no_node_that_has_both(
    asked: str, capacities: list[dict[str, str]], told: list[str]
) -> None:
    text = f"managedResources: [{{name: gemini.io/gpu-core}}, {{name: {asked or 'aliyun.com/gpu-mem'}}}]"
    nodes = [{"metadata": {"name": f"n{i}"}, "status": {"capacity": each}} for i, each in enumerate(capacities)]
    found = list(of_mixed_nodes([text], nodes))
    assert [verdict for verdict, _ in found] == told
    assert all(
        f"node n{i}: offers nvidia.com/gpu" in text for i, (verdict, text) in enumerate(found) if verdict == FAIL
    )
    assert list(of_mixed_nodes([], nodes)) == []


def test_namespaces_of_tenants_are_those_with_shares_or_claims() -> None:
    shared, plain, claims = pod_object("a", gpu_request="0.5"), pod_object("b"), pod_object("c")
    for i, one in enumerate((shared, plain, claims)):
        one["metadata"]["namespace"] = f"ns{i}"
    claims["spec"]["resourceClaims"] = [{"name": "card", "resourceClaimName": "x"}]
    assert sharing([shared, plain, claims]) == {"ns0", "ns2"}
