"""KAI's real scheduler on a plane: its admission, grouper, scheduler and binder, and a queue that gives all there is.

The program in its reservation pods is a stand-in. KAI's own asks NVML which card it was given and writes that into its
pod's annotation; containers here reach no API server, so `say_cards` writes what NVIDIA's device plugin gave.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from gemini.kube import names
from tests.e2e.api import Object, condition
from tests.e2e.checkouts import Checkout
from tests.e2e.image import IMAGE
from tests.e2e.plane import ADMINS, HOST, Plane
from tests.e2e.process import free_port

NAME, QUEUE = "kai-scheduler", "all"
RESERVATIONS = names.KAI_RESERVATIONS[0]
KEEPERS = f"/api/v1/namespaces/{RESERVATIONS}/pods"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
NO_BOUND = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
SAID = "run.ai/reserve_for_gpu_index"
HOOKED = {"mutating": "/mutate--v1-pod", "validating": "/validate--v1-pod"}


@contextlib.contextmanager
def kai(plane: Plane, checkout: Checkout) -> Iterator[None]:
    """All that places a pod of a queue; the namespace of KEEPERS is there."""
    for file in sorted((checkout.source / "deployments/kai-scheduler/crds").glob("*.yaml")):
        plane.kubectl("create", "-f", str(file))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    account = {"metadata": {"name": RESERVATIONS}}
    plane.api.post(f"/api/v1/namespaces/{RESERVATIONS}/serviceaccounts", account)
    spec: Object = {"resources": dict.fromkeys(("cpu", "gpu", "memory"), NO_BOUND)}
    kind = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue"}
    for name, parent in (("root", {}), (QUEUE, {"parentQueue": "root"})):
        plane.api.post(QUEUES, {**kind, "metadata": {"name": name}, "spec": {**spec, **parent}})
    with contextlib.ExitStack() as stack:
        hooks = _run(stack, plane, checkout, "admission", "--gpu-sharing-enabled", "--gpu-pod-runtime-class-name=")
        _run(stack, plane, checkout, "podgrouper")
        _run(
            stack, plane, checkout, "binder", f"--resource-reservation-pod-image={IMAGE}",
            "--resource-reservation-allocation-timeout=300",
        )  # fmt: skip
        _run(stack, plane, checkout, "scheduler")
        for name, path in HOOKED.items():
            hook = plane.webhook(f"kai-{name}", f"https://{HOST}:{hooks}{path}", validating=name == "validating")
            stack.enter_context(hook)
        yield


def _run(stack: contextlib.ExitStack, plane: Plane, checkout: Checkout, part: str, *options: str) -> int:
    """Started, and answers; the port of its webhooks."""
    told, hooks, pair = free_port(), free_port(), plane.authority.issue(f"kai-{part}", hosts=(HOST,))
    folder = plane.folder / f"kai-{part}"
    certificates = folder / "k8s-webhook-server/serving-certs"  # where its library looks, in the folder for what passes
    certificates.mkdir(parents=True)
    shutil.copy(pair.certificate, certificates / "tls.crt")
    shutil.copy(pair.key, certificates / "tls.key")
    where = [f"--metrics-bind-address={HOST}:{told}", f"--health-probe-bind-address={HOST}:{free_port()}"]
    if part == "admission":
        where.append(f"--webhook-addr={hooks}")
    if part == "scheduler":
        where = [f"--listen-address={HOST}:{told}", f"--plugin-server-port={free_port()}"]
    environment = {"KUBECONFIG": str(plane.kubeconfig(f"kai-{part}", ADMINS)), "TMPDIR": str(folder)}
    stack.enter_context(
        plane.running(
            f"kai-{part}", [checkout.programs / part, *where, *options], environment, f"http://{HOST}:{told}/metrics"
        )
    )
    return hooks


def say_cards(plane: Plane) -> Object:
    """The pod that keeps a card, once it has said which: as KAI's program in it would."""
    (keeper,) = plane.api.wait(
        KEEPERS, lambda found: [one for one in found if condition("Ready")(one)], "a pod that keeps a card", 300
    )  # fmt: skip
    name = keeper["metadata"]["name"]
    card = plane.kubectl("-n", RESERVATIONS, "exec", name, "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").stdout
    said: Object = plane.api.patch(f"{KEEPERS}/{name}", {"metadata": {"annotations": {SAID: card.strip()}}})
    return said
