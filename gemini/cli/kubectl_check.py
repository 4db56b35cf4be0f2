"""`kubectl gemini check`: whether a cluster keeps tenants' namespaces, and other plugins, from what goes round shares.

Each line says what is there, and the mend where something is wrong. Reads the API server, and asks it to create a pod
without creating it (dry run): so whatever refuses pods of that kind is believed, Pod Security or another policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gemini.cli.check import FAIL, OK, WARN, Line
from gemini.extender.podview import speaks
from gemini.kube import names
from gemini.kube.answer import ApiFault, Refused, is_unknown
from gemini.kube.client import Client

Object = dict[str, Any]
ENFORCE = "pod-security.kubernetes.io/enforce"
KEEPING = ("baseline", "restricted")
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = {
    "gemini-records": "who may edit a pod may write into its record which card it has",
    "gemini-endings": "who may delete a pod may do so by force, and its card is promised while its programs run",
    "gemini-resizes": "what is booked or enforced of a pod that was resized is written by whoever may write there",
    "gemini-queued": "who may edit a queued Job may have its pods ask for more than its queue counts",
    "gemini-node": "a node's credentials may change what is on other nodes",
}
HOOKS = {
    "mutatingwebhookconfigurations": (names.MUTATE_HOOK, "pods with a share get neither slots nor the library"),
    "validatingwebhookconfigurations": (names.VALIDATE_HOOK, "what goes round a share is admitted"),
}
INSTALL = "install the chart, or deploy/kustomize"


async def report(client: Client, namespace: str | None = None) -> list[Line]:
    """`namespace`: that one alone; None: all that have pods with shares or claims. Raises ApiFault."""
    policies = await _listed(client, f"{REGISTRATION}/validatingadmissionpolicies")
    bindings = await _listed(client, f"{REGISTRATION}/validatingadmissionpolicybindings")
    lines = list(of_policies(policies, bindings))
    for kind, (hook, otherwise) in HOOKS.items():
        lines += of_hook(await _listed(client, f"{REGISTRATION}/{kind}"), hook, otherwise)
    written = await _listed(client, "/api/v1/configmaps", fieldSelector="metadata.name=gemini-scheduler")
    texts = [str((one.get("data") or {}).get("scheduler.yaml", "")) for one in written]
    lines += of_mixed_nodes(texts, await _listed(client, "/api/v1/nodes") if texts else [])
    pods = (await client.all_of("Pod"))[0] if namespace is None else []
    labels = {str(_metadata(one).get("name")): _metadata(one).get("labels") or {} for one in await _namespaces(client)}
    tenants = sorted(sharing(pods)) if namespace is None else [namespace]
    if not tenants:
        lines.append((OK, "namespaces: none has a pod with a share; -n NAME looks at one all the same"))
    for name in tenants:
        lines.append(
            of_namespace(name, labels[name], await _refuses(client, name))
            if name in labels
            else (FAIL, f"namespace {name}: there is none of that name")
        )
    return lines


def sharing(pods: Iterable[Mapping[str, Any]]) -> set[str]:
    """The namespaces of pods that name a share or use a claim."""
    return {
        str(_metadata(pod).get("namespace"))
        for pod in pods
        if speaks(pod) or (pod.get("spec") or {}).get("resourceClaims")
    }


def of_policies(policies: Iterable[Object], bindings: Iterable[Object]) -> Iterator[Line]:
    there = {str(_metadata(one).get("name")): one.get("spec") or {} for one in policies}
    bound = {
        (one.get("spec") or {}).get("policyName")
        for one in bindings
        if "Deny" in ((one.get("spec") or {}).get("validationActions") or ())
    }
    for name, otherwise in POLICIES.items():
        if name not in there:
            yield FAIL, f"policy {name}: it is not there, so {otherwise}; {INSTALL}"
        elif name not in bound:
            yield FAIL, f"policy {name}: no binding of it denies, so {otherwise}; {INSTALL}"
        elif there[name].get("failurePolicy", "Fail") != "Fail":
            yield FAIL, f"policy {name}: failurePolicy is {there[name]['failurePolicy']}; make it Fail"
        else:
            yield OK, f"policy {name}: denies"


def of_hook(configurations: Iterable[Object], name: str, otherwise: str) -> Iterator[Line]:
    found = [hook for one in configurations for hook in one.get("webhooks") or () if hook.get("name") == name]
    if not found:
        yield FAIL, f"webhook {name}: it is not there, so {otherwise}; {INSTALL}"
    elif found[0].get("failurePolicy", "Fail") != "Fail":
        yield WARN, f"webhook {name}: while nobody answers, {otherwise}; make its failurePolicy Fail"
    elif found[0].get("namespaceSelector"):
        yield WARN, f"webhook {name}: it is asked about some namespaces only; in others {otherwise}"
    else:
        yield OK, f"webhook {name}: asked about each pod that names a share"


def of_mixed_nodes(texts: Iterable[str], nodes: Iterable[Object]) -> Iterator[Line]:
    """`texts`: configurations of the scheduler that asks the extender. Where it asks nothing about pods of NVIDIA's
    plugin no node may have its cards beside shares."""
    if all(names.NVIDIA_GPU in text for text in texts):
        return
    mixed = sorted(str(_metadata(node).get("name")) for node in nodes if _serves_both(node))
    for name in mixed:
        yield (
            FAIL,
            f"node {name}: offers {names.NVIDIA_GPU} beside shares, and the scheduler asks nothing about its pods, so"
            " one may have a card that is shared; scheduler.mixedNodes=true, or take one of the two off the node",
        )
    if not mixed:
        yield OK, f"nodes: none offers {names.NVIDIA_GPU} beside shares, and the scheduler asks about shares alone"


def _serves_both(node: Object) -> bool:
    offered = (node.get("status") or {}).get("capacity") or {}
    served = {name for name, amount in offered.items() if str(amount) != "0"}
    return bool(served & names.VENDOR_RESOURCES) and bool(served & {names.RESOURCE_CORE, names.ALIYUN_GPU_MEM})


def of_namespace(name: str, labels: Mapping[str, str], refuses: bool | None) -> Line:
    """`refuses`: whether a pod that mounts the node's folders is refused there; None: nobody could try."""
    level = labels.get(ENFORCE)
    mend = f"kubectl label --overwrite namespace {name} {ENFORCE}=baseline"
    if refuses is None:
        said = f"namespace {name}: enforces {f'Pod Security {level}' if level else 'no Pod Security level'}"
        if level in KEEPING:
            return OK, said
        return WARN, f"{said}, and you may not create pods there to see what is refused; {mend}"
    if refuses:
        how = f"Pod Security {level}" if level in KEEPING else "a policy of the cluster"
        return OK, f"namespace {name}: {how} refuses pods that mount the node's folders"
    why = "a pod without a share may mount the node's folders there, and so reach cards and others' sockets"
    return FAIL, f"namespace {name}: {why}; {mend}"


async def _refuses(client: Client, namespace: str) -> bool | None:
    volume = {"name": "node", "hostPath": {"path": "/run/gemini"}}
    container = {"name": "main", "image": "x", "volumeMounts": [{"name": "node", "mountPath": "/node"}]}
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "gemini-check-", "namespace": namespace},
        "spec": {"containers": [container], "volumes": [volume]},
    }  # fmt: skip
    try:
        await client.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod, {"dryRun": "All"})
    except Refused as error:
        unable = "cannot create resource" in str(error) or "exceeded quota" in str(error)
        return None if unable or error.status == 404 else True
    return False


async def _namespaces(client: Client) -> list[Object]:
    return await _listed(client, "/api/v1/namespaces")


async def _listed(client: Client, path: str, **query: str) -> list[Object]:
    try:
        found = (await client.get(path, **query)).get("items")
    except ApiFault as error:
        if is_unknown(error):
            return []
        raise
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _metadata(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return given.get("metadata") or {}
