"""Resizes: whether a pod that runs may have the share that somebody wishes for it is answered here.

A wish that makes the pod count with more needs room on its cards. The way is that of a binding: reserve what it is more
in the book, enter that in the node's lease, write what is booked with the object's resourceVersion. A wish that is less
needs no room: it is booked at once, and given back when the node has written that it enforces it. Where there is no
room, or the growth would pass a quota, the answer says why, and what was booked before stays. Each wish is answered
once: another one has another generation.

Whatever fails on the way gives back what was reserved; only where nobody knows whether the answer was written the
reservation stays until the object itself tells, or its time is up. What another replica has reserved for the same wish
is left to it until its time is up.
"""

from __future__ import annotations

import asyncio
import logging

from gemini.extender.claims import unfit
from gemini.extender.kinds import RESIZE
from gemini.extender.ledger import ROUNDS, Stale
from gemini.extender.podview import PodView
from gemini.extender.promises import Promises
from gemini.extender.reserve import BIND_NS
from gemini.extender.wishes import Wishes
from gemini.kube import names
from gemini.kube.answer import ApiFault, Object, Refused
from gemini.kube.resize import MOST_TEXT, Resize, bounded, counted, growth, held, pod_of, resizable
from gemini.placement.book import Book, Overbooked
from gemini.placement.explain import format_bytes
from gemini.placement.model import GPU, Placement

log = logging.getLogger("gemini.extender")


class Resizes:
    """Those of one replica. Everything runs on one event loop."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self.cluster = promises.cluster
        self._wishes = Wishes(promises.clock_ns)
        self._tasks: set[asyncio.Task[None]] = set()

    def kick(self) -> None:
        """To be called after Resizes have changed: sees to each whose wish waits for an answer, by turns."""
        for resize in self.cluster.unbooked():
            self._wishes.add(resize.namespace, resize.pod)
        self._begin()

    def _begin(self) -> None:
        while (pod := self._wishes.next(self.cluster.asking)) is not None:
            task = asyncio.get_running_loop().create_task(self._answer(pod))
            self._tasks.add(task)
            task.add_done_callback(lambda task, pod=pod: self._done(task, pod))  # type: ignore[misc]

    def _done(self, task: asyncio.Task[None], pod: str) -> None:
        self._tasks.discard(task)
        self._wishes.done(pod)
        self._begin()

    async def settled(self) -> None:
        """Returns when nothing is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def sweep(self) -> None:
        """Gives back what nobody knows the fate of, once the API server has told it, and tries again what waits."""
        now = self._promises.clock_ns()
        for due in (*self.cluster.reservations.due(now), *self.cluster.reservations.due_adopted(now)):
            key, node = due.placement.pod, due.placement.node
            name = pod_of(key)
            if name is None or name in self._wishes:
                continue
            resize = self.cluster.resizes.get(name)
            if resize is not None and resize.key == key and not await self._seen(resize):
                continue  # no answer from the API server: it may be booked
            self._left(name, key)
            if self.cluster.reservations.of(key) is due:
                self._promises.drop(due.placement)
            else:
                self.cluster.reservations.disown(key, node)
        self._wishes.sweep()
        self.kick()

    # ---- one wish

    async def _answer(self, name: str) -> None:
        try:
            resize = self.cluster.resizes.get(name)
            pod = None if resize is None else self._pod(resize)
            if resize is None or pod is None or not resize.waiting:
                return
            if refusal := _refusal(pod):
                await self._write(resize, refusal)
                return
            assert pod.node is not None
            assert pod.base is not None
            await self._promises.look_for_others(pod.node)
            if not _growth(pod, resize).grants:
                await self._write(resize)
                return
            quotas = await self._promises.kubernetes.quotas(pod.namespace)
            if by := counted(pod.object, pod.base, resize.wanted, quotas):
                mend = (
                    "create the pod anew with the larger share, which is counted then, or ask for no more than it has"
                )
                await self._write(resize, f"{by} counts what the pod's own resources name, and this is more; {mend}")
                return
            ranges = await self._promises.kubernetes.limit_ranges(pod.namespace)
            if by := bounded(pod.base, resize.wanted, self._sizes(pod.node), ranges):
                await self._write(resize, f"{by}; ask for no more")
                return
            refusal_or_none = await self._promise(resize)
            if refusal_or_none is not None:
                await self._write(resize, refusal_or_none)
        except ApiFault as error:
            log.info("resize pod=%s error=%s", name, error)  # the sweep tries again
        except Exception:  # one wish must not end the replica
            log.exception("resize pod=%s failed", name)

    async def _promise(self, resize: Resize) -> str | None:
        """Reserves what the wish is more, here and for all replicas. "": it is done; None: another replica sees to it,
        or there is nothing to do any more; else why there is no room."""
        promises, reservations, key = self._promises, self.cluster.reservations, resize.key
        for _ in range(ROUNDS):
            pod, known = self._pod(resize), self.cluster.resizes.get(resize.pod)
            if promises.settled(key) or pod is None or _refusal(pod) or known is None or known.key != key:
                if (left := reservations.of(key)) is not None:
                    promises.drop(left.placement)
                return None
            assert pod.node is not None
            more, ledger = _growth(pod, known), promises.ledger
            had = reservations.of(key)
            if had is not None and had.placement == more and (ledger is None or ledger.entered(pod.node, more)):
                reservations.extend(key, promises.clock_ns() + BIND_NS)
                return ""
            mark = ledger.mark(pod.node) if ledger is not None else 0
            if had is not None:
                reservations.drop(key)
                if ledger is not None:
                    promises.adopt(pod.node, ledger.others(pod.node))
            if any(one.placement.pod == key for one in reservations.adopted()):
                return None
            node = self.cluster.book.node(pod.node)
            if node is None or (why := unfit(node, more)):
                return why if node is not None else f"node {pod.node} has gone"
            if not more.grants:
                return ""
            try:
                reservations.put(more, promises.clock_ns() + BIND_NS)
            except Overbooked:
                return _no_room(self.cluster.book, pod, more)
            if ledger is None:
                return ""
            try:
                await ledger.enter(pod.node, [more], mark)
                return ""
            except Stale:
                continue
            except ApiFault:
                promises.drop(more)
                raise
        if (left := reservations.of(key)) is not None:
            promises.drop(left.placement)
        return None

    async def _write(self, resize: Resize, refusal: str = "") -> None:
        """The answer. Raises ApiFault after giving back what can be given back."""
        known, had = self.cluster.resizes.get(resize.pod), self.cluster.reservations.of(resize.key)
        pod = self._pod(resize)
        if known is None or known.key != resize.key or not known.waiting or pod is None:
            if had is not None:
                self._promises.drop(had.placement)
            return
        if had is not None and not self._promises.stands(had.placement):
            self._promises.drop(had.placement)  # it is tried again
            return
        status: Object = {
            "answered": known.generation,
            "refused": refusal[:MOST_TEXT] or None,
            "node": pod.node,
            "pod": pod.uid,
        }
        if known.stranger:
            status |= dict.fromkeys(("booked", "enforced", "settled", "waits"))
        if not refusal:
            status["booked"] = known.wanted.written()
        try:
            written = await self._promises.kubernetes.answer_resize(known.namespace, known.name, known.version, status)
        except Refused:
            if await self._seen(known) and had is not None and self.cluster.reservations.of(resize.key) is had:
                self._promises.drop(had.placement)  # it changed meanwhile, and is tried again
            return
        except ApiFault:
            if await self._seen(known) and had is not None:
                self._left(resize.pod, resize.key)
            raise  # the reservation stays: the server may yet do it
        self._promises.see_resizes([written])
        if had is not None:
            self._left(resize.pod, resize.key)
        what = f"refused: {refusal}" if refusal else f"booked {known.wanted.written()}"
        log.info("resize pod=%s/%s generation=%d %s", known.namespace, known.name, known.generation, what)

    def _pod(self, resize: Resize) -> PodView | None:
        """Its pod, where it is that one's: who writes objects may name any uid."""
        pod = self.cluster.pods.get(resize.uid)
        return pod if pod is not None and pod.full_name == resize.pod else None

    def _sizes(self, node: str) -> dict[int, int]:
        known = self.cluster.book.node(node)
        return {one.minor: one.memory for one in known.devices if one.type == GPU} if known is not None else {}

    def _left(self, name: str, key: str) -> None:
        """Where the wish was booked, the promise stands in what the pod holds now, and its entry goes. What the pod has
        at most stays in the lease: its Resize may go before it."""
        resize, ledger = self.cluster.resizes.get(name), self._promises.ledger
        pod = None if resize is None else self._pod(resize)
        if ledger is None or resize is None or pod is None or pod.node is None or resize.key != key or resize.waiting:
            return
        if not resize.refused and resize.booked is not None:
            ledger.grew(pod.node, name, resize.booked.most(resize.enforced or resize.booked))
        ledger.leave(pod.node, [key])
        ledger.flush(pod.node)

    async def _seen(self, resize: Resize) -> bool:
        """Takes in the object as it is; whether the API server told."""
        try:
            given = await self._promises.kubernetes.resize(resize.namespace, resize.name)
        except Refused as error:
            if error.status != 404:
                return False
            self.cluster.apply(RESIZE, "DELETED", resize.object)
            return True
        except ApiFault:
            return False
        if str((given.get("metadata") or {}).get("uid", "")) != resize.own:
            self.cluster.apply(RESIZE, "DELETED", resize.object)
        self._promises.see_resizes([given])
        return True


def _refusal(pod: PodView) -> str:
    """Why the pod cannot have another share while it runs, whatever the share; empty: it can."""
    if pod.node is None:
        return "the pod is on no node yet; wait until it runs, or create it anew with another share"
    if pod.gone or pod.terminating:
        return "the pod is ending; make another one"
    if pod.spec is None or pod.base is None or not pod.covered:
        return f"the pod has no share by {names.ALLOCATION}; only pods that Gemini placed can be resized"
    if not resizable(pod.base) or len(pod.spec.ask.tenants) > 1:
        return "the pod has several shares; only a pod with one share for its whole life can be resized"
    if pod.spec.shares[0].spelling == names.ALIYUN:
        return f"in the spelling {names.ALIYUN} time goes with memory; create the pod anew"
    if not pod.runs:  # its kubelet may give it the card of another that asks for the same, and the records change
        return "the pod does not run yet; wait until it does, or create it anew with another share"
    if pod.exchanges:
        return "the pod is exchanging its cards with another; try again in a moment"
    return ""


def _growth(pod: PodView, resize: Resize) -> Placement:
    """What the wish makes the pod count with beyond what it counts with now."""
    assert pod.base is not None
    assert pod.placement is not None
    return growth(resize.key, pod.placement, held(pod.base, resize.wanted, resize.enforced))


def _no_room(book: Book, pod: PodView, more: Placement) -> str:
    """The most that the pod's cards have for it."""
    assert pod.placement is not None
    node = book.node(more.node)
    used, most = book.used_on(more.node), []
    for grant in pod.placement.grants:
        card = (
            next((one for one in node.devices if (one.type, one.minor) == (GPU, grant.minor)), None) if node else None
        )
        if grant.type == GPU and card is not None and (GPU, grant.minor) in used:
            core, memory = used[GPU, grant.minor][:2]
            most.append((grant.core + max(0, card.core - core), grant.memory + max(0, card.memory - memory)))
    if not most:
        return f"no room: the pod's cards on {more.node} are not there any more; create the pod anew"
    core, memory = min(one[0] for one in most), min(one[1] for one in most)
    has = f"a request of {core / 100:g} and {format_bytes(memory)} at most"
    return f"no room: the pod's card on {more.node} has {has} for it; ask for no more, or make room there"
