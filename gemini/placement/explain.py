"""Why not: a reason for a node that cannot take a want, and a text for each of its cards that cannot.

Pure, and slow beside the scan: it runs only for those who ask. A card's reason is its first shortcoming in the order of
BY_DISTANCE (memory before core where memory was asked for by itself). A node's is the one of the card that came
nearest, or, where enough cards would do, what keeps them from being a set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from gemini.placement.model import GPU, NodeRefusal, Want
from gemini.placement.reasons import BY_DISTANCE, Reason
from gemini.placement.scan import Fit, bounded, in_scope, same_model
from gemini.placement.shape import CORE, MEMORY, SLOTS, UNBOUNDED, Bools


def format_bytes(count: int) -> str:
    """The shortest exact quantity: 4294967296 is 4Gi."""
    for power in range(6, 0, -1):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{'KMGTPE'[power - 1]}i"
    return str(count)


def node_refusal(
    seen: Fit | None,
    position: int,
    want: Want,
    unused: bool,
    switches: Bools | None,
    holders: Callable[[int], list[str]],
) -> NodeRefusal:
    """Why the row at `position` of a Fit cannot take a want; None for a node without such devices.

    `holders`: minor -> the pods that hold something of that card.
    """
    noun = "card" if want.type == GPU else f"{want.type} device"
    if seen is None or seen.block.shape.count < want.count:
        has = seen.block.shape.count if seen else 0
        return NodeRefusal(Reason.INSUFFICIENT_DEVICES.text, f"the node has {_count(has, noun)}, {want.count} asked")
    shape = seen.block.shape
    texts: dict[str, str] = {}
    nearest = -1
    for column, minor in enumerate(shape.minors):
        if not seen.fits[position, column]:
            reason, text = _card(seen, position, column, want, unused, holders)
            texts[str(minor) if want.type == GPU else f"{want.type}/{minor}"] = text
            nearest = max(nearest, BY_DISTANCE.index(reason))
    able = int(seen.fits[position].sum())
    if able < want.count:
        message = f"{able} of {_count(shape.count, noun)} can take the ask, {want.count} asked"
        return NodeRefusal(BY_DISTANCE[nearest].text, message, texts)
    why, message = _set(seen, position, want, switches)
    if why is Reason.JOINT_UNAVAILABLE and switches is not None:
        for column, minor in enumerate(shape.minors):
            if not switches[position, column] and seen.fits[position, column]:
                texts[str(minor)] = _switch(shape.pcies[column], want)
    return NodeRefusal(why.text, message, texts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _switch(switch: str | None, want: Want) -> str:
    if switch is None:
        return "joint: its PCIe switch is unknown"
    wanted = ", ".join(f"{kind} {core}%" for kind, core in want.joint)
    return f"joint: PCIe switch {switch} has not {wanted} free"


MOST_SHOWN = 3  # models


@lru_cache(maxsize=64)
def _asked(models: frozenset[str]) -> tuple[frozenset[str], str]:
    """Models as they are compared, and how they are told: a pod may name many, and each card that is none of them says
    so."""
    told = " or ".join(sorted(models)[:MOST_SHOWN])
    more = f" or {len(models) - MOST_SHOWN} others" if len(models) > MOST_SHOWN else ""
    return frozenset(map(same_model, models)), told + more


def _card(
    seen: Fit, row: int, column: int, want: Want, unused: bool, holders: Callable[[int], list[str]]
) -> tuple[Reason, str]:
    shape = seen.block.shape
    device = seen.block.devices[int(seen.rows[row])][column]
    if not device.health:
        return Reason.UNHEALTHY, "unhealthy"
    if device.cordoned:
        return Reason.CORDONED, "cordoned: takes no new tenant"
    if seen.allowed is not None and not np.broadcast_to(seen.allowed, seen.fits.shape)[row, column]:
        models, asked_models = _asked(want.models)
        if models and same_model(device.model) not in models:
            return Reason.MODEL_MISMATCH, f"model: {device.model or 'unknown'}, {asked_models} asked"
        if device.uuid in want.excluded:
            return Reason.UUID_MISMATCH, f"uuid: {device.uuid} is excluded"
        assert want.uuids, f"a card was left out by none of the rules that are told here: {want.constraints}"
        return Reason.UUID_MISMATCH, f"uuid: {device.uuid or 'unknown'} is not among those asked"
    if unused and not seen.nobody[row, column]:
        users = holders(device.minor)
        more = " and others" if len(users) > 3 else ""
        return Reason.IN_USE, f"in use by {', '.join(users[:3]) or 'the pod itself'}{more}"
    lacks = {}
    asked_for = bounded(seen.need, shape)[:, column]
    used = [int(seen.after[k, row, column] - asked_for[k]) for k in (CORE, MEMORY, SLOTS)]
    total = [int(shape.total[k, column]) for k in (CORE, MEMORY, SLOTS)]
    if seen.after[CORE, row, column] > total[CORE]:
        free, asked = max(0, total[CORE] - used[CORE]), int(seen.need[CORE, column])
        lacks[Reason.INSUFFICIENT_CORE] = f"core: {free} free of {total[CORE]}, {asked} asked"
    elif not seen.need[CORE, column] and seen.now[CORE, row, column] >= total[CORE]:
        lacks[Reason.INSUFFICIENT_CORE] = f"core: wholly promised ({total[CORE]} of {total[CORE]})"
    if seen.after[MEMORY, row, column] > total[MEMORY]:
        free, asked = max(0, total[MEMORY] - used[MEMORY]), int(seen.need[MEMORY, column])
        sizes = f"{format_bytes(free)} free of {format_bytes(total[MEMORY])}, {format_bytes(asked)} asked"
        lacks[Reason.INSUFFICIENT_MEMORY] = f"memory: {sizes}"
    if total[SLOTS] != UNBOUNDED and seen.after[SLOTS, row, column] > total[SLOTS]:
        lacks[Reason.NO_FREE_SLOT] = f"slots: all {total[SLOTS]} are taken"
    order = [Reason.INSUFFICIENT_CORE, Reason.INSUFFICIENT_MEMORY, Reason.NO_FREE_SLOT]
    if want.by_memory or not want.follows:  # memory was asked for by itself
        order[:2] = reversed(order[:2])
    reasons = [reason for reason in order if reason in lacks]
    return reasons[0], "; ".join(lacks[reason] for reason in reasons)


def _set(seen: Fit, position: int, want: Want, switches: Bools | None) -> tuple[Reason, str]:
    """Why cards that would each do make no set: the first rule that leaves none."""
    shape = seen.block.shape
    table = shape.sets(want.count)
    able = f"{int(seen.fits[position].sum())} cards could take the ask"
    if table is None:
        return Reason.TOPOLOGY_MISMATCH, f"{able}, but no set of {want.count} of them was found that obeys its rules"
    alive = seen.fits[position][table.members].all(axis=1)
    alive = alive & table.one_model
    if not alive.any():
        return Reason.MIXED_MODELS, f"{able}, but no {want.count} of them are of one model"
    scoped = in_scope(table, want.scope)
    if scoped is not None:
        alive = alive & scoped
        if not alive.any():
            joined = {
                "pcie": "on one known PCIe switch",
                "numa": "on one known NUMA node",
                "nvlink": "joined by NVLinks",
            }[want.scope or ""]
            which = "none of them is" if want.count == 1 else f"no {want.count} of them are"
            return Reason.TOPOLOGY_MISMATCH, f"{able}, but {which} {joined}"
    if switches is not None:
        alive = alive & switches[position][table.members].all(axis=1)
        if not alive.any():
            wanted = ", ".join(f"{kind} {core}%" for kind, core in want.joint)
            return (
                Reason.JOINT_UNAVAILABLE,
                f"{able}, but no set of {want.count} has {wanted} on each of its PCIe switches",
            )
    return Reason.PARTITION_UNAVAILABLE, f"{able}, but no free partition has {want.count} cards"
