"""A container was given other cards than its pod's record names: two pods exchange theirs, or the start is refused.

What is to be written, and in which order, repair.py says; here it is carried out, and told where it cannot be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence

from gemini.kube.answer import ApiFault, Refused
from gemini.kube.checkpoint import Entry
from gemini.plugin import repair, reply
from gemini.plugin.claims import Claim, PodClaims
from gemini.plugin.view import Refusal, View

ROUNDS = 3
log = logging.getLogger("gemini.plugin")


class Exchanges:
    """`choosing`: held while cards change hands, by whoever chooses cards too."""

    def __init__(self, view: View, choosing: asyncio.Lock, counts: Counter[tuple[str, str]]) -> None:
        self._view, self._choosing, self._counts = view, choosing, counts

    async def verified(self, pod: PodClaims, entry: Entry, given: reply.Given) -> tuple[PodClaims, Claim]:
        """The pod and its claim, in step with what the container was given. Raises Refusal."""
        why = ""
        for _ in range(ROUNDS):
            claim = pod.claim(entry.container)
            if claim is None:
                raise Refusal(f"container {entry.container} of pod {pod.name} was promised nothing")
            if set(claim.cards) == set(given.cards):
                said = reply.settings(claim)
                differs = [key for key in reply.SETTINGS if said.get(key) != given.settings.get(key)]
                if not differs:
                    return pod, claim
                why = f"was given {differs[0]} {given.settings.get(differs[0])}, the record says {said.get(differs[0])}"
                break
            why = await self._exchange(pod, given.cards)
            pod = self._view.pods.get(pod.uid, pod)
            if why:
                break
        self._counts["repair", "impossible"] += 1
        message = f"container {entry.container} {why or 'is exchanged with another pod; that is tried again'}"
        log.error("start pod=%s/%s %s", pod.namespace, pod.name, message)
        with contextlib.suppress(ApiFault):
            await self._view.kubernetes.say(pod.object, "GeminiMismatch", message)
            owners = pod.object["metadata"].get("ownerReferences") or []
            if why and any(owner.get("controller") for owner in owners):
                await self._view.kubernetes.end_pod(pod.namespace, pod.name, pod.uid)
        raise Refusal(f"{message}; delete the pod and create it anew")

    async def _exchange(self, pod: PodClaims, given: Sequence[str]) -> str:
        """Carries out the repair. What stands in its way; empty where it was done, or is worth another look."""
        async with self._choosing:
            try:
                await self._view.read()
                for other in list(self._view.pods.values()):
                    if other.uid == pod.uid or other.fault or not repair.begun(other):
                        continue
                    if cards := self._view.given(other):
                        await self._carry_out(self._resume(other, cards))
                pod = self._view.pods.get(pod.uid, pod)
                if not repair.begun(pod) and self._view.settled(pod):
                    return ""  # meanwhile another's exchange, which had this one for its partner, has mended it
                if repair.begun(pod):
                    plan = self._resume(pod, given)
                else:
                    plan = repair.plan(pod, given, self._view.unsettled())
                if plan.reason:
                    return plan.reason
                await self._carry_out(plan)
            except ApiFault as error:
                if isinstance(error, Refused) and error.status in (404, 409, 422):  # one of them is gone
                    return ""
                raise Refusal(f"the exchange of cards with another pod was not written: {error}") from None
        return ""

    async def _carry_out(self, plan: repair.Plan) -> None:
        """Raises ApiFault; then the exchange goes on at the next try."""
        if not plan.steps:
            return
        for step in plan.steps:
            pod = step.pod
            written = await self._view.kubernetes.annotate(pod.namespace, pod.name, pod.uid, step.annotations)
            self._view.put_pod(written)
        self._counts["repair", "exchanged"] += 1
        log.info("exchanged pods=%s", ",".join(sorted({f"{s.pod.namespace}/{s.pod.name}" for s in plan.steps})))

    def _resume(self, pod: PodClaims, given: Sequence[str]) -> repair.Plan:
        partner = self._view.pods.get(repair.begun(pod) or "")
        return repair.resume(pod, given, partner, self._view.unsettled())
