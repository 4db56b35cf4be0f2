"""What the containers of a pod with a ResourceClaim get of our cards: from the claim as the API server has it.

Pure. A claim is one tenant, whichever of its pods and containers use it: the sum of what was allocated to it of each
card, which must be the same on all of them. Its name follows from the claim's uid alone, so that whoever prepares or
unprepares it, after whatever restarts, means the same tenant. A claim may say more in its configuration:

    config: [{opaque: {driver: gemini.io, parameters: {limit: "0.8", class: latency}}}]
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemini import cdi
from gemini.kube import names, quantity
from gemini.kube.claim import Claim, configuration, named_results, uuid_name
from gemini.placement.model import WHOLE
from gemini.plugin import reply
from gemini.plugin.slots import Card
from gemini.units import BadValue

TENANT = re.compile(r"claim\.[A-Za-z0-9_.-]{1,47}-[0-9a-f]{8}")
_MOST_NAME = 47  # of namespace and claim in a tenant's name, which has 63 characters at most


class CannotPrepare(ValueError):
    """The kubelet is told no; the text is one line for its event, with the mend where there is one."""


@dataclass(frozen=True)
class Result:
    """One device of the claim, as the kubelet must hear of it."""

    request: str
    pool: str
    device: str
    share: str


@dataclass(frozen=True)
class Prepared:
    """Request and limit are percent of a card's time, memory bytes on each card (0: no limit)."""

    tenant: str
    cards: tuple[str, ...]  # uuids
    request: int
    limit: int
    memory: int
    card_memory: int  # of the smallest of its cards
    latency: bool
    results: tuple[Result, ...]

    def spec(self) -> dict[str, Any]:
        """What the daemon is told."""
        return {
            "name": self.tenant,
            "request": self.request / WHOLE,
            "limit": self.limit / WHOLE,
            "memory_bytes": self.memory,
            "latency": self.latency,
            "gpus": list(self.cards),
        }


def tenant_of(namespace: str, name: str, uid: str) -> str:
    return f"claim.{f'{namespace}.{name}'[:_MOST_NAME]}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def prepare(claim: Claim, cards: Mapping[str, Card], node: str) -> Prepared:
    """`cards`: those of the node by uuid. Raises CannotPrepare."""
    if claim.node != node:
        raise CannotPrepare(f"its devices are {claim.node}'s, and this is {node}")
    if not claim.promised:
        raise CannotPrepare("the extender has not promised its cards; see that gemini extender runs, with claims")
    if claim.admin:
        raise CannotPrepare("it has administrators' access, which is not served; ask for a part of a card")
    by_name = {uuid_name(card.uuid): card for card in cards.values()}
    held: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for share in claim.shares:
        if share.device not in by_name:
            raise CannotPrepare(f"{share.device} is no card of this node (any more); delete the pod and the claim")
        held[by_name[share.device].uuid][0] += share.core
        held[by_name[share.device].uuid][1] += share.memory
    amounts = {(core, memory) for core, memory in held.values()}
    if len(amounts) > 1:
        said = " and ".join(f"core {core} with memory {memory}" for core, memory in sorted(amounts))
        raise CannotPrepare(f"it has {said} on different cards; a claim is one share: make a claim of each")
    ((core, memory),) = amounts
    if not memory:  # for the daemon that means no limit
        raise CannotPrepare("it has memory 0 of its card; make it anew, and ask for a size")
    limit, latency = _configured(claim, core)
    return Prepared(
        tenant_of(claim.namespace, claim.name, claim.uid), tuple(held), core, limit, memory,
        min(cards[uuid].memory for uuid in held), latency,
        tuple(Result(request, claim.node, device, share) for request, device, share in named_results(claim)),
    )  # fmt: skip


def cdi_spec(prepared: Prepared, options: reply.Options, nodes: tuple[str, ...] = ()) -> str:
    """The CDI file that gives the claim's share to a container."""
    environment = reply.settings(prepared) | reply.environment(prepared, options)
    # Over what the image says, and "void" where CDI brings the cards: NVIDIA's own hook then does nothing.
    environment[names.ENV_VISIBLE_DEVICES] = "void" if options.gpu_cdi else ",".join(prepared.cards)
    edits = cdi.edits(environment, reply.mounts(prepared.tenant, options.paths), nodes)
    return cdi.spec({prepared.tenant: edits})


def cdi_names(prepared: Prepared, options: reply.Options) -> list[str]:
    """What the runtime is asked for. Every device of the claim brings all of it: a tenant holds all of its cards."""
    cards = [f"{options.gpu_cdi}={uuid}" for uuid in prepared.cards] if options.gpu_cdi else []
    return [f"{names.CDI_KIND}={prepared.tenant}", *cards]


def _configured(claim: Claim, core: int) -> tuple[int, bool]:
    """(limit, latency) as the claim's configuration says them, the class's first; later ones win."""
    limit, latency = WHOLE, False
    for parameters in configuration(claim):
        for key, value in parameters.items():
            if key == "limit":
                limit = _limit(value, core)
            elif key == "class":
                if value not in names.POLICY_CLASSES:
                    raise CannotPrepare(
                        f"class {value!r} is none of {', '.join(names.POLICY_CLASSES)}; write one of them"
                    )
                latency = value == "latency"
            elif key not in ("apiVersion", "kind"):
                raise CannotPrepare(f"its configuration says {key}, which is not known; there are limit and class")
    return limit, latency


def _limit(value: object, core: int) -> int:
    try:
        limit = quantity.parse_share(value)
    except BadValue as error:
        raise CannotPrepare(f"limit: {error}") from None
    if limit < max(core, 1):
        raise CannotPrepare(f"limit {value} is below the {core} percent that were allocated; raise it, or leave it out")
    return limit
