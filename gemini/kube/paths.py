"""Where the API server has what the cluster parts read and write. Pure; whatever is in a name, it stays one part."""

from __future__ import annotations

from urllib.parse import quote as quoted

from gemini.kube import names

PATHS = {  # kind -> collection of all namespaces
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Device": f"/apis/{names.DEVICE_API_VERSION}/devices",
    "Resize": f"/apis/{names.DEVICE_API_VERSION}/resizes",
    "ResourceClaim": f"/apis/{names.RESOURCE_API_VERSION}/resourceclaims",
    "ResourceSlice": f"/apis/{names.RESOURCE_API_VERSION}/resourceslices",
    "ResourceQuota": "/api/v1/resourcequotas",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
}


def quote(name: str) -> str:
    """A name as a part of a path, whatever is in it."""
    return quoted(name, safe="")


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"


def resize_path(namespace: str, name: str = "") -> str:
    path = f"/apis/{names.DEVICE_API_VERSION}/namespaces/{quote(namespace)}/resizes"
    return f"{path}/{quote(name)}" if name else path


def claim_path(namespace: str, name: str) -> str:
    return f"/apis/{names.RESOURCE_API_VERSION}/namespaces/{quote(namespace)}/resourceclaims/{quote(name)}"


def lease_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
