"""A new tenant for the lifetime of this process: its name, its cards, what to say at its start, its environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gemini.cli import cards
from gemini.cli.control import ask
from gemini.cli.node import Node, tenant_environment
from gemini.cli.problem import Problem
from gemini.cli.starting import beyond_cards, register
from gemini.cli.table import percent


def share_of(node: Node, name: str) -> dict[str, Any]:
    """What the tenant of that name has, which another program of it joins; empty: there is none."""
    try:
        tenants = ask(node, "GET", "/state")["tenants"]
    except Problem:  # said when it is registered
        return {}
    for tenant in tenants:
        if tenant["name"] == name:
            return {
                "request": tenant["request"],
                "limit": tenant["limit"],
                "memory_bytes": tenant["memory_limit_bytes"],
                "latency": tenant["class"] == "latency",
            }
    return {}


def own_name(program: str) -> str:
    """The name of a tenant that was given none: its program's and our pid, as far as a name may hold them."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{os.path.basename(program)}-{os.getpid()}")
    return name[-63:].lstrip("-._")


def placed(node: Node, spec: dict[str, Any], words: Sequence[str], count: int | None) -> tuple[Any, bool]:
    """The tenant, registered for the lifetime of this process on the cards that are meant (`words` of --gpu) or have
    room (`count`: so many), and whether those are some of several."""
    request, memory_bytes = spec["request"], spec["memory_bytes"]
    spec["pid"] = os.getpid()
    for last in (False, False, True):  # somebody else may take the room between our look and our word
        state = cards.devices_and_tenants(node)
        uuids = cards.choose(
            state, spec["name"], words, count, request, memory_bytes, os.environ.get("CUDA_VISIBLE_DEVICES")
        )
        spec["gpus"] = uuids
        try:
            return register(node, spec), len(state["devices"]) > 1
        except Problem as problem:
            if words and list(words) != ["any"] and "does not fit" in str(problem):
                hint = cards.elsewhere(state, uuids, request, memory_bytes)
                raise Problem(f"{problem}{hint}") from None
            if last or "does not fit" not in str(problem):
                raise
    raise AssertionError("unreachable")


def notes(node: Node, spec: Mapping[str, Any], uuids: Sequence[str]) -> list[str]:
    """What to tell at the start, a line each."""
    note = beyond_cards(node, spec["memory_bytes"], uuids)
    if note is None and spec["memory_bytes"]:
        note = overbooked(node, uuids)
    effort = best_effort(node, spec["name"]) if not spec["request"] else None
    return [line for line in (note, effort) if line is not None]


def environment(node: Node, spec: Mapping[str, Any], tenant: Mapping[str, Any], some: bool) -> dict[str, str]:
    """Additions to the environment of its processes; `some`: they see its cards and no others."""
    visible = [str(gpu) for gpu in tenant.get("gpus", [])] if some else []
    shares = (spec["request"], spec["limit"])
    return tenant_environment(node, tenant["socket"], shares, spec["memory_bytes"], visible)


def overbooked(node: Node, uuids: Sequence[str]) -> str | None:
    """cards.overbooked, of the daemon that answers."""
    try:
        return cards.overbooked(ask(node, "GET", "/state"), uuids)
    except Problem:
        return None


def best_effort(node: Node, name: str) -> str | None:
    """One line on what a tenant without a request gets beside others that have one; None: there are none."""
    try:
        tenants = {tenant["name"]: tenant for tenant in ask(node, "GET", "/state")["tenants"]}
    except Problem:
        return None
    ours = tenants.get(name)
    if ours is None:
        return None
    if not any(t["request"] and set(t["gpus"]) & set(ours["gpus"]) for t in tenants.values()):
        return None
    if not ours["entitled"]:
        return (
            f"{name} has no --request, and the others are promised all of the GPU: it runs while they have nothing to "
            "do; gemini ps shows them"
        )
    return f"{name} has no --request: it gets {percent(ours['entitled'])} of the GPU while all others are busy"
