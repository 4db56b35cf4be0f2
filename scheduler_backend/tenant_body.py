"""A tenant as the control API has it: JSON in, a promise out; raises Problem with the value.

Pure. Who may ask for it, and whether it fits beside what is promised already, is the registry's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler_backend import devices
from scheduler_backend.config import TenantSettings
from scheduler_backend.core.tenant import InvalidSpec, TenantSpec, share_text, validate
from scheduler_backend.devices import Gpu
from scheduler_backend.problem import Problem
from scheduler_backend.readers import parse_bytes, resolve

_KEYS = {"name", "request", "limit", "memory_bytes", "latency", "gpus", "pid", "class", "share"}
_CHANGED = ("request", "limit", "memory_bytes", "latency", "class")


def told(spec: TenantSpec, field_name: str) -> str:
    """A field of a promise as a person writes it."""
    value = getattr(spec, field_name)
    if field_name.endswith("_ppm"):
        return f"{field_name.removesuffix('_ppm')} {share_text(value)}"
    if field_name == "latency":
        return "class latency" if value else "class batch"
    return f"{field_name} {value}"


def is_share(body: Mapping[str, Any]) -> bool:
    """Whether it is to be a named share; raises Problem for a key that no tenant has."""
    for key in body:
        if key not in _KEYS:
            raise Problem(f"{key!r} is unknown; a tenant has {', '.join(sorted(_KEYS))}")
    share = body.get("share", False)
    if not isinstance(share, bool) or (share and "pid" in body):
        raise Problem(f"share {share!r} is not true or false, or stands beside a pid; a share lasts until removed")
    return share


def read_tenant(body: Mapping[str, Any], gpus: list[Gpu]) -> TenantSpec:
    """The promise that is asked for, on these GPUs of the node."""
    name = body.get("name")
    if not isinstance(name, str):
        raise Problem(f'name {name!r} is no name; give one such as "train"')
    service = body.get("class", "latency" if body.get("latency") else "batch")
    if service not in ("latency", "batch"):
        raise Problem(f"class {service!r} is unknown; there are latency, batch")
    asked = body.get("gpus") or []
    if not isinstance(asked, list):
        raise Problem(f"gpus {asked!r} is no list; give indices or UUIDs such as [0]")
    if len(asked) > len(gpus):  # before each is sought
        raise Problem(f"gpus has {len(asked)} entries; this node has {len(gpus)} GPUs")
    request_ppm, limit_ppm = resolve(body.get("request"), body.get("limit"), name)
    memory = parse_bytes(body.get("memory_bytes") or 0, "memory_bytes")
    settings = TenantSettings(name, request_ppm, limit_ppm, memory, service == "latency", tuple(asked))
    try:
        spec = settings.spec(lambda wanted: devices.find(gpus, wanted), len(gpus))
        validate(spec, len(gpus))
    except InvalidSpec as error:
        raise Problem(str(error)) from None
    return spec


def read_change(old: TenantSpec, body: Mapping[str, Any], gpus: list[Gpu]) -> tuple[TenantSpec, bool]:
    """The new promise, and whether it may have no less memory than is in use (`holding`)."""
    fields = dict(body)
    holding = fields.pop("holding", False)
    if not isinstance(holding, bool):
        raise Problem(f"holding {holding!r} is not true or false; true: no less memory than is in use")
    for key in fields:
        if key not in _CHANGED:
            raise Problem(f"{key!r} cannot be changed; a tenant's request, limit, memory_bytes and latency can")
    merged: dict[str, Any] = {
        "name": old.name,
        "request": fields.get("request", old.request_ppm / 1e6),
        "limit": fields.get("limit", old.limit_ppm / 1e6),
        "memory_bytes": fields.get("memory_bytes", old.memory_bytes),
        "latency": fields.get("latency", old.latency),
    }
    if "class" in fields:
        merged["class"] = fields["class"]
    return read_tenant(merged, gpus)._replace(gpus=old.gpus), holding
