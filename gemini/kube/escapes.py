"""What lets a pod with a share go round the scheduler, the library or its card, and is refused at admission.

Pure. One table of ways, each with the name by which an operator may allow it (`gemini webhook --allow NAME`), and the
environment in which a container finds its card. Links on the node's disk are not followed, nobody sees them from here:
against those the namespace wants Pod Security `baseline`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gemini.kube import names
from gemini.kube.pod import PodSpec, body_of
from gemini.kube.quantity import shown
from gemini.kube.spelling import InvalidPod
from gemini.placement.model import GPU

# What an operator may allow, in the words of the pod's own fields.
ALLOWANCES = ("privileged", "hostPID", "hostIPC", "hostPath", "capabilities", "envFrom", "gpu-memory")
PRIVILEGED, HOST_PID, HOST_IPC, HOST_PATH, CAPABILITIES, ENV_FROM, MEMORY = ALLOWANCES
CONTAINERS = ("initContainers", "containers")
EPHEMERAL = "ephemeralContainers"
# With one of these a container reaches devices, processes or files of the node.
POWERS = frozenset(
    {"ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_RAWIO", "SYS_MODULE", "SYS_BOOT", "DAC_READ_SEARCH", "BPF", "MAC_ADMIN"}
)
# Folders of the node that lead to its cards, its daemon, its runtime or its kubelet; and what of them is harmless.
CLOSED = (
    "/dev", "/proc", "/sys", "/run/gemini", "/run/cdi", "/run/containerd", "/run/crio", "/run/docker",
    "/run/docker.sock", "/run/k3s", "/run/nvidia", "/run/systemd", "/run/dbus", "/etc/cdi", "/etc/containerd",
    "/etc/crio", "/etc/kubernetes", "/etc/nvidia-container-runtime", "/etc/systemd", "/var/lib/gemini",
    "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/rancher",
    "/var/lib/k0s",
)  # fmt: skip
OPEN = ("/dev/shm", "/dev/infiniband", "/dev/hugepages", "/dev/null", "/dev/net/tun", "/dev/fuse")
# Where the device plugin mounts, and where NVIDIA's runtime reads mounts as a list of cards.
TAKEN = (
    posixpath.dirname(names.LIBRARY_PATH),
    posixpath.dirname(names.SOCKET_PATH),
    names.PRELOAD_FILE,
    "/run/nvidia-container-devices",
)
RUNTIME_DEVICES = "cdi.k8s.io/"  # annotations by which some runtimes are told of devices
NO_CARD = "void"  # NVIDIA's runtime then adds nothing, whatever the image says
_NONE = (NO_CARD, "none")

Object = Mapping[str, Any]


def admission_fault(
    pod: object, spec: PodSpec, allowed: Collection[str] = (), by_cdi: bool = False
) -> InvalidPod | None:
    """What makes a well-formed sharepod inadmissible. `by_cdi`: cards come as CDI devices, not by the environment."""
    if not spec.wanted:
        return None
    return _admitted(pod, _unlimited(spec), sharing_containers(spec), allowed, by_cdi)


def placed_pod_fault(
    pod: object, sharing: Collection[str], allowed: Collection[str] = (), by_cdi: bool = False,
    told: Collection[str] = (),
) -> InvalidPod | None:  # fmt: skip
    """The same of a pod whose cards another scheduler chooses. `sharing`: its containers that we hold to their time.
    `told`: those of them in which the device plugin's word on the card counts more than any environment."""
    return _admitted(pod, (), sharing, allowed, by_cdi, told)


def _admitted(
    pod: object, unlimited: Iterable[tuple[str | None, InvalidPod]], sharing: Collection[str],
    allowed: Collection[str], by_cdi: bool, told: Collection[str] = (),
) -> InvalidPod | None:  # fmt: skip
    metadata, body = body_of(pod)
    annotations = metadata.get("annotations")
    for key in annotations if isinstance(annotations, dict) else ():
        if isinstance(key, str) and key.startswith(RUNTIME_DEVICES):
            problem = "names devices to the container runtime, which goes round the share; remove it"
            return InvalidPod(shown(key), problem)
    if body.get("nodeName"):
        mend = "remove it, the scheduler chooses the node and the card (use nodeSelector to narrow its choice)"
        return InvalidPod("spec.nodeName", f"{shown(body['nodeName'])} is preset; {mend}")
    for allowance, fault in (*unlimited, *_faults(body, sharing, by_cdi, told)):
        if allowance not in allowed:
            return fault
    return None


def ephemeral_fault(pod: object, old: object, allowed: Collection[str] = ()) -> InvalidPod | None:
    """The same of containers that are added to a pod that runs."""
    for path, container in added(pod, old):
        for allowance, fault in _container(path, container, shares=False, by_cdi=False):
            if allowance not in allowed:
                return fault
    return None


def added(pod: object, old: object) -> list[tuple[str, Object]]:
    """The ephemeral containers that are new, by their paths."""
    known = {one.get("name") for _, one in _listed(body_of(old)[1], EPHEMERAL)}
    return [(path, one) for path, one in _listed(body_of(pod)[1], EPHEMERAL) if one.get("name") not in known]


def sharing_containers(spec: PodSpec) -> frozenset[str]:
    """Containers that get a part of a card."""
    tenants = (t for t in spec.ask.tenants if any(want.type == GPU for want in t.wants))
    return frozenset(name for tenant in tenants for name in tenant.containers)


def wants_of_others(container: Object) -> bool:
    """Whether somebody else gives it cards: NVIDIA's own device plugin, or a claim."""
    resources = container.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    asked = (part for key in ("limits", "requests") if isinstance(part := resources.get(key), dict))
    return bool(resources.get("claims")) or any(key.startswith(f"{names.NVIDIA}/") for part in asked for key in part)


# ---- the ways


def _unlimited(spec: PodSpec) -> Iterator[tuple[str | None, InvalidPod]]:
    """A share that reserves no memory has no limit of it on the node, and could take what others were promised."""
    for tenant, share in zip(spec.ask.tenants, spec.shares, strict=True):
        field = names.SHARED_MEMORY if share.spelling == names.KUBESHARE else names.GPU_MEMORY
        if any(want.type == GPU and not want.memory and not want.ratio for want in tenant.wants):
            problem = "is not said, and a request of 0 reserves none, so nothing would limit it; write a size"
            yield MEMORY, InvalidPod(field, problem)


def _faults(
    body: Object, sharing: Collection[str], by_cdi: bool, told: Collection[str]
) -> Iterator[tuple[str | None, InvalidPod]]:
    """Each with the name by which it may be allowed; None: it may not."""
    for key, why in ((HOST_PID, "it sees the processes of all tenants"), (HOST_IPC, "it sees all tenants' memory")):
        if body.get(key) is True:
            mend = "remove it" + (", mount an emptyDir of medium Memory at /dev/shm" if key == HOST_IPC else "")
            yield key, InvalidPod(f"spec.{key}", f"true is not allowed with a share, {why}; {mend}")
    for path, volume in _listed(body, "volumes"):
        source = volume.get(HOST_PATH)
        on_host = source.get("path") if isinstance(source, dict) else None
        if isinstance(on_host, str) and (closed := leads_to(on_host)):
            why = f"{shown(on_host)} leads to {closed} of the node, which is not allowed with a share"
            yield HOST_PATH, InvalidPod(f"{path}.hostPath.path", f"{why}; mount what the pod needs of it alone")
    for key in CONTAINERS:
        for path, container in _listed(body, key):
            name = container.get("name")
            yield from _container(path, container, name in sharing, by_cdi, name in told)


def _container(
    path: str, container: Object, shares: bool, by_cdi: bool, told: bool = False
) -> Iterator[tuple[str | None, InvalidPod]]:
    security = container.get("securityContext")
    security = security if isinstance(security, dict) else {}
    if security.get("privileged") is True:
        mend = "remove it, a privileged container sees every card of the node"
        yield PRIVILEGED, InvalidPod(f"{path}.securityContext.privileged", f"true is not allowed with a share; {mend}")
    capabilities = security.get("capabilities")
    given = capabilities.get("add") if isinstance(capabilities, dict) else None
    for power in given if isinstance(given, list) else ():
        if str(power).upper().removeprefix("CAP_") in POWERS:
            problem = f"{shown(power)} is not allowed with a share, it reaches beyond the container; remove it"
            yield CAPABILITIES, InvalidPod(f"{path}.securityContext.capabilities.add", problem)
    for at, mount in _listed(container, "volumeMounts"):
        inside = mount.get("mountPath")
        if isinstance(inside, str) and (taken := next((t for t in TAKEN if _within(_plain(inside), t)), None)):
            problem = f"{shown(inside)} is where the share comes from ({taken}); mount it elsewhere"
            yield None, InvalidPod(f"{path}.{at}.mountPath", problem)
    yield from _environment(path, container, shares, by_cdi, told)


def _environment(
    path: str, container: Object, shares: bool, by_cdi: bool, told: bool
) -> Iterator[tuple[str | None, InvalidPod]]:
    own = container.get("env")
    for variable in own if isinstance(own, list) else ():
        if not isinstance(variable, dict):
            continue
        name, where = variable.get("name"), f"{path}.env[{shown(variable.get('name'))}]"
        value = shown(variable.get("value", "(from elsewhere)"))
        chosen = variable.get("value") not in _NONE or (shares and not by_cdi)
        if name == names.ENV_VISIBLE_DEVICES and chosen and not told:
            mend = "the device plugin sets it to the pod's card" if shares else "this container has no share"
            yield None, InvalidPod(where, f"{value} goes round the share; remove it, {mend}")
        if name == names.ENV_PRELOAD and shares and variable.get("valueFrom") is not None:
            mend = "write its value, the library is put before it"
            yield None, InvalidPod(where, f"valueFrom cannot be put behind Gemini's library; {mend}")
    if shares and not by_cdi and not told:
        for at, source in _listed(container, ENV_FROM):
            if may_name_cards(source):
                problem = f"may set {names.ENV_VISIBLE_DEVICES}, which goes round the share"
                mend = "give it a prefix, or name its keys under env with valueFrom"
                yield ENV_FROM, InvalidPod(f"{path}.{at}", f"{problem}; {mend}")


def may_name_cards(source: Object) -> bool:
    """Whether an entry of envFrom could set the variable by which a container finds its card."""
    prefix = source.get("prefix") or ""
    return not isinstance(prefix, str) or names.ENV_VISIBLE_DEVICES.startswith(prefix)


def leads_to(path: str) -> str | None:
    """Which of CLOSED is in, above or below a folder of the node."""
    plain = _plain(path)
    if any(_within(plain, harmless) for harmless in OPEN):
        return None
    return next((closed for closed in CLOSED if _within(plain, closed) or _within(closed, plain)), None)


def _plain(path: str) -> str:
    """/run by one name, and no folder said in a roundabout way."""
    plain = posixpath.normpath("/" + path.lstrip("/"))
    return plain.removeprefix("/var") if _within(plain, "/var/run") else plain


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _listed(holder: Object, key: str) -> list[tuple[str, Object]]:
    """Objects of a list by their paths; of the pod's own lists from its top."""
    entries = holder.get(key)
    top = "spec." if key in (*CONTAINERS, EPHEMERAL, "volumes") else ""
    listed = enumerate(entries if isinstance(entries, list) else ())
    return [(f"{top}{key}[{i}]", entry) for i, entry in listed if isinstance(entry, dict)]
