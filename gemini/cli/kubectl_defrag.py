"""`kubectl gemini defrag`: which evictions free a whole card, and those evictions.

What is evicted is the pure plan's matter (extender/defrag.py). Evictions go through the API server's Eviction, so
PodDisruptionBudgets hold: those of one card are tried without effect first, and none of them is done where one is
refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from gemini.extender.defrag import Freed, Plan
from gemini.extender.podview import PodView
from gemini.kube.answer import Refused
from gemini.kube.client import Client
from gemini.kube.paths import quote
from gemini.placement.model import GPU, Placement
from scheduler_backend.logs import printable

NAMED = 12  # cards that are not freed, with the reason


def lines(plan: Plan) -> Iterator[str]:
    """The plan as text."""
    for freed in plan.freed:
        yield f"{_card(freed)}: evict " + "; ".join(f"{_name(pod)} (to {_to(place)})" for pod, place in freed.moves)
    for card, why in list(plan.stays.items())[:NAMED]:
        yield printable(f"{card[0]} gpu/{card[1]}: stays, {why}")
    if len(plan.stays) > NAMED:
        yield f"{len(plan.stays) - NAMED} more stay"
    evictions = sum(len(freed.moves) for freed in plan.freed)
    yield f"{_many(len(plan.freed), 'card')} can be freed by {_many(evictions, 'eviction')}"


async def carried_out(client: Client, plan: Plan) -> AsyncIterator[tuple[bool, str]]:
    """Evicts, card by card; whether it could be done, and a line for each card. Raises ApiFault."""
    for freed in plan.freed:
        try:
            for dry in (True, False):
                for pod, _ in freed.moves:
                    await evict(client, pod, dry)
        except Refused as error:
            verb = "is left as it is" if dry else "is not free yet"
            yield False, printable(f"{_card(freed)}: {verb}, {_name(pod)}: {error}")
            continue
        yield True, f"{_card(freed)}: evicted " + ", ".join(_name(pod) for pod, _ in freed.moves)


async def evict(client: Client, pod: PodView, dry: bool) -> None:
    """Raises Refused (429: a budget forbids it; 404, 409: it is another pod by now)."""
    path = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}/eviction"
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}, **({"dryRun": ["All"]} if dry else {})}
    metadata = {"name": pod.name, "namespace": pod.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    await client.call("POST", path, body)


def _card(freed: Freed) -> str:
    return printable(f"{freed.card[0]} gpu/{freed.card[1]}")


def _name(pod: PodView) -> str:
    return printable(f"{pod.namespace}/{pod.name}")


def _to(place: Placement) -> str:
    return f"{place.node} gpu/{','.join(str(grant.minor) for grant in place.grants if grant.type == GPU)}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
