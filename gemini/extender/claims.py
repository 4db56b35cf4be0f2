"""ResourceClaims: kube-scheduler allocates them by itself; whether the cards have the room is answered here.

A claim that was allocated cards of ours waits (a binding condition, see gemini/kube/claim.py) until one replica has
answered. The way is that of a binding: reserve in the book, enter the promise in the node's lease, write one status
with the claim's resourceVersion. Where there is no room the answer is a refusal, and the scheduler gives the allocation
up and tries again, by slices that have changed meanwhile. What another replica has promised already is left to it until
its time is up. Whatever fails on the way gives back what was reserved; only where nobody knows whether the status was
written the reservation stays until the claim itself tells, or its time is up.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from gemini.extender.kinds import CLAIM
from gemini.extender.ledger import ROUNDS, Stale
from gemini.extender.promises import Promises
from gemini.extender.reserve import BIND_NS, SECOND
from gemini.extender.wishes import Wishes
from gemini.kube.answer import ApiFault, Refused
from gemini.kube.claim import PREFIX, Claim, answered, grants_of, read_claim
from gemini.placement.book import Overbooked
from gemini.placement.model import Node, Placement

CHANGED = (404, 409)  # statuses of a refusal: it is another by now, or gone
MOST_SAID = 300  # characters of the API server's words
ADMIN = "administrators' access (adminAccess) is not served: nothing would limit it; ask for a part of a card"
LONGEST_REST_NS = 60 * SECOND  # of a claim whose answer the API server refuses
log = logging.getLogger("gemini.extender")


class Claims:
    """Those of one replica. Everything runs on one event loop."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self.cluster = promises.cluster
        self._turns = Wishes(promises.clock_ns, paced=False)
        self._tasks: set[asyncio.Task[None]] = set()
        self._rests: dict[str, tuple[int, int]] = {}  # claims whose answer was refused: until when, and for how long

    def kick(self) -> None:
        """To be called after claims have changed: sees to each that waits for an answer, by turns of namespaces."""
        now_ns = self._promises.clock_ns()
        for uid in self.cluster.unanswered:
            claim = self.cluster.claims[uid]
            if self._rests.get(uid, (0, 0))[0] <= now_ns and self._is_known(claim):
                self._turns.add(claim.namespace, uid)
        self._begin()

    def _begin(self) -> None:
        while (uid := self._turns.next(self.cluster.unanswered)) is not None:
            task = asyncio.get_running_loop().create_task(self._answer(uid))
            self._tasks.add(task)
            task.add_done_callback(lambda task, uid=uid: self._done(task, uid))  # type: ignore[misc]

    def _done(self, task: asyncio.Task[None], uid: str) -> None:
        self._tasks.discard(task)
        self._turns.done(uid)
        self._begin()

    def _is_known(self, claim: Claim) -> bool:
        """Whether something is known of its node (yet)."""
        return claim.node in self.cluster.devices and claim.node in self.cluster.nodes

    async def settled(self) -> None:
        """Returns when nothing is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def sweep(self) -> None:
        """Gives back what nobody knows the fate of, once the API server has told it, and tries again what waits."""
        now = self._promises.clock_ns()
        for held in (*self.cluster.reservations.due(now), *self.cluster.reservations.due_adopted(now)):
            key, node = held.placement.pod, held.placement.node
            uid = key.removeprefix(PREFIX).partition("/")[0]
            if not key.startswith(PREFIX) or uid in self._turns:
                continue
            claim = self.cluster.claims.get(uid)
            if claim is not None and claim.key == key and not await self._seen(claim):
                continue  # no answer from the API server: it may be promised
            claim = self.cluster.claims.get(uid)
            if claim is not None and claim.key == key and claim.promised:
                continue  # it holds its cards by itself now
            if self.cluster.reservations.of(key) is held:
                self._promises.drop(held.placement)
            else:
                self.cluster.reservations.disown(key, node)
        self._rests = {uid: rest for uid, rest in self._rests.items() if uid in self.cluster.unanswered}
        self._turns.sweep()
        self.kick()

    # ---- one claim

    async def _answer(self, uid: str) -> None:
        try:
            claim = self.cluster.claims.get(uid)
            if claim is None or not claim.waits:
                return
            if not self._is_known(claim):
                return
            if claim.admin:
                await self._write(claim, ADMIN)
                return
            reported = self.cluster.devices[claim.node]
            await self._promises.look_for_others(claim.node)
            grants = grants_of(claim, reported.node)
            if grants is None:
                await self._write(claim, f"node {claim.node} has no such card any more")
                return
            if not all(grant.memory for grant in grants):
                await self._write(claim, "memory 0 is no share: nothing would limit it; ask for a size")
                return
            placement = Placement(claim.key, claim.node, grants)
            refusal = await self._promise(claim, placement)
            if refusal is not None:
                await self._write(claim, refusal, None if refusal else placement)
        except ApiFault as error:
            log.info("claim=%s error=%s", uid, error)  # the sweep tries again
        except Exception:  # one claim must not end the replica
            log.exception("claim=%s failed", uid)

    async def _promise(self, claim: Claim, placement: Placement) -> str | None:
        """Reserves, here and for all replicas. "": it is done; None: another replica sees to it, or there is nothing to
        do any more; else why there is no room."""
        promises, reservations = self._promises, self.cluster.reservations
        for _ in range(ROUNDS):
            if promises.settled(claim.key):
                return None
            held = reservations.of(claim.key)
            if held is not None and (promises.ledger is None or promises.ledger.entered(claim.node, placement)):
                reservations.extend(claim.key, promises.clock_ns() + BIND_NS)
                return ""
            mark = promises.ledger.mark(claim.node) if promises.ledger is not None else 0
            if held is not None:
                reservations.drop(claim.key)
                if promises.ledger is not None:
                    promises.adopt(claim.node, promises.ledger.others(claim.node))
            if any(one.placement.pod == claim.key for one in reservations.adopted()):
                return None
            node = self.cluster.book.node(claim.node)
            if node is None or (why := unfit(node, placement)):
                return why if node is not None else f"node {claim.node} has gone"
            try:
                reservations.put(placement, promises.clock_ns() + BIND_NS)
            except Overbooked as error:
                return str(error)
            if promises.ledger is None:
                return ""
            try:
                await promises.ledger.enter(claim.node, [placement], mark)
                return ""
            except Stale:
                continue
            except ApiFault:
                promises.drop(placement)
                raise
        promises.drop(placement)
        return None

    async def _write(self, claim: Claim, refusal: str, placement: Placement | None = None) -> None:
        """The answer. Raises ApiFault after giving back what can be given back."""
        known = self.cluster.claims.get(claim.uid)
        if known is None or known.key != claim.key or not known.waits:
            if placement is not None and (known is None or not known.promised):
                self._promises.drop(placement)
            return
        stamp = datetime.fromtimestamp(self._promises.wall_ns() // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            whole = await self._whole(known)
            if placement is not None and not self._promises.stands(placement):
                raise Refused(409, "it was promised too long ago")
            given = answered(whole, not refusal, refusal or "the cards are the claim's", stamp)
            written = await self._promises.kubernetes.answer_claim(given)
        except Refused as error:
            if error.status not in CHANGED:  # as long as it is what it is; each try costs several calls
                rest_ns = min(max(2 * self._rests.get(claim.uid, (0, 0))[1], SECOND), LONGEST_REST_NS)
                self._rests[claim.uid] = (self._promises.clock_ns() + rest_ns, rest_ns)
                log.warning("claim=%s/%s cannot be answered: %s", claim.namespace, claim.name, str(error)[:MOST_SAID])
            if await self._seen(known):
                now = self.cluster.claims.get(claim.uid)
                if placement is not None and (now is None or now.key != claim.key or not now.promised):
                    self._promises.drop(placement)
            return
        except ApiFault:
            await self._seen(known)
            raise  # the reservation stays: the server may yet do it
        self._promises.see_claims([written])
        if refusal:
            log.info("claim=%s/%s refused: %s", claim.namespace, claim.name, refusal)

    async def _whole(self, claim: Claim) -> Claim:
        """The claim with all that is to be written again, of which a part is kept here. Raises Refused where it is
        another by now, or has been answered."""
        whole = read_claim(await self._promises.kubernetes.claim(claim.namespace, claim.name))
        if whole is None or whole.key != claim.key or not whole.waits:
            raise Refused(409, "it has changed")
        return whole

    async def _seen(self, claim: Claim) -> bool:
        """Takes in the claim as it is; whether the API server told."""
        try:
            given = await self._promises.kubernetes.claim(claim.namespace, claim.name)
        except Refused as error:
            if error.status != 404:
                return False
            self._gone(claim.uid)
            return True
        except ApiFault:
            return False
        if (given.get("metadata") or {}).get("uid") != claim.uid:
            self._gone(claim.uid)
        else:
            self._promises.see_claims([given])
        return True

    def _gone(self, uid: str) -> None:
        known = self.cluster.claims.get(uid)
        if known is not None:
            self.cluster.apply(CLAIM, "DELETED", known.object)


def unfit(node: Node, placement: Placement) -> str:
    """Why a card of it may not be given to anybody; empty: all may."""
    wanted = {(grant.type, grant.minor) for grant in placement.grants}
    for device in node.devices:
        if (device.type, device.minor) in wanted and not (device.health and not device.cordoned):
            return f"card {device.minor} is {'cordoned' if device.health else 'out of service'}"
    return ""
