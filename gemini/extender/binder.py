"""Binding: from a node that the scheduler chose to one write in the API server.

A pod's cards are chosen when it is bound, not when it is filtered: what filter says may be old by then, and a pod that
finds no room any more is an error to the scheduler, which tries again. The way of a binding: reserve in the book, enter
the promise in the node's lease (ledger.py), write one Binding with the pod's uid and the annotations. Whatever fails on
the way gives back what was reserved; only where nobody knows whether the Binding was written the reservation stays
until the pod itself tells, or its time is up. Binding again what is bound already is no error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gemini.extender.codec import BindRequest
from gemini.extender.groups import Groups
from gemini.extender.ledger import ROUNDS, Stale
from gemini.extender.podview import PodView
from gemini.extender.promises import NO_POD, Promises, shared_node, told
from gemini.extender.reserve import BIND_NS, GroupKey
from gemini.kube.allocation import annotations_of
from gemini.kube.answer import ApiFault, Refused, Unanswered
from gemini.placement.book import Overbooked
from gemini.placement.model import Placement

log = logging.getLogger("gemini.extender")


class Refusal(Exception):
    """A binding that is not made; the text goes to the scheduler."""


class Binder:
    """`waiting` is told why a pod could not be bound: uid -> text. `arrived` is told of each pod as soon as its cards
    are held, or are not going to be."""

    def __init__(
        self, promises: Promises, groups: Groups, waiting: dict[str, str], arrived: Callable[[str], None]
    ) -> None:
        self._promises, self._groups, self.waiting, self._arrived = promises, groups, waiting, arrived
        self.cluster = promises.cluster
        self._binding: dict[str, tuple[str, asyncio.Task[str]]] = {}

    async def bind(self, request: BindRequest) -> str:
        """The error for the scheduler; empty: bound."""
        under_way = self._binding.get(request.uid)
        if under_way is None:
            task = asyncio.get_running_loop().create_task(self._bind(request))
            self._binding[request.uid] = (request.node, task)
            task.add_done_callback(lambda _: self._binding.pop(request.uid, None))
        elif under_way[0] != request.node:
            return f"the pod is being bound to {under_way[0]}"
        else:
            task = under_way[1]
        # The scheduler may lose patience and go; what was begun is brought to its end.
        return await asyncio.shield(task)

    async def _bind(self, request: BindRequest) -> str:
        try:
            pod = await self._pod(request)
            if pod.node is not None:
                if pod.node == request.node and (pod.spec is None or pod.vendor or pod.recorded is not None):
                    return ""
                raise Refusal(f"the pod is bound to {pod.node} already")
            if pod.spec is None or (
                pod.vendor and self.cluster.book.node(request.node) is None
            ):  # no card of ours there
                await self._promises.kubernetes.bind(request.namespace, request.name, request.uid, request.node, {})
                return ""
            if pod.group is not None and pod.uid not in self.cluster.reservations:
                await self._groups.join(pod)
            placement = await self._promise(pod, request.node)
            if pod.group is not None and not pod.vendor:
                await self._together(pod, placement)
                if not self._promises.stands(placement):
                    placement = await self._renewed(pod, request.node)
            await self._write(pod, placement)
        except Refusal as error:
            self.waiting[request.uid] = str(error)
            return str(error)
        except ApiFault as error:
            return str(error)
        finally:
            self._arrived(request.uid)
        self.waiting.pop(request.uid, None)
        return ""

    async def _pod(self, request: BindRequest) -> PodView:
        pod = self.cluster.pods.get(request.uid)
        if pod is None:
            given = await self._promises.kubernetes.pod(request.namespace, request.name)
            self._promises.see([given])
            pod = self.cluster.pods.get(request.uid)
            if pod is None:
                raise Refusal(f"pod {request.namespace}/{request.name} has another uid than {request.uid}")
        if pod.fault is not None and pod.node is None:
            raise Refusal(pod.fault)
        if pod.gone or (pod.terminating and pod.node is None):
            raise Refusal("the pod is being deleted")
        return pod

    async def _together(self, pod: PodView, placement: Placement) -> None:
        """Waits until the other members of the pod's group have cards and are to be bound too."""
        if said := await self._groups.gather(pod, placement):
            self._promises.drop(placement)
            raise Refusal(said)
        self.cluster.reservations.own(pod.uid)

    async def _renewed(self, pod: PodView, node: str) -> Placement:
        """Promises a member's cards anew: while it waited for the others this replica may have taken the promise back,
        for the group as a whole, and then found that another one stands by it."""
        if pod.uid not in self.cluster.reservations:
            await self._groups.join(pod)
        return await self._promise(pod, node)

    async def _promise(self, pod: PodView, node: str) -> Placement:
        """Reserves cards for the pod on the node, here and for all replicas."""
        reservations = self.cluster.reservations
        await self._promises.look_for_others(node)
        held = reservations.of(pod.uid)
        if held is not None and self.cluster.foreign.taken(held.placement):
            self._promises.drop(held.placement)
            raise Refusal("another device plugin gave out the cards that were held; the pod is tried again")
        if held is not None and held.awaited and held.placement.node != node:  # the scheduler may do as it likes
            reservations.drop(pod.uid)
            held = None
        if held is not None and held.placement.node != node:
            raise Refusal(f"cards are held for the pod on {held.placement.node}")
        if held is None and pod.group is not None:
            raise Refusal(f"group {pod.group[1]} is not placed (any more); it is tried again")
        if held is not None:
            reservations.extend(pod.uid, self._promises.clock_ns() + BIND_NS)
        for _ in range(ROUNDS):
            if self._promises.ledger is None:
                return self._reserve(pod, node)
            held = reservations.of(pod.uid)
            if held is not None and self._promises.ledger.entered(node, held.placement):
                return held.placement
            mark = self._promises.ledger.mark(node)
            if held is not None and not self._stands(held.placement):  # chosen from an older book
                self._again(pod, held.placement, node)
            placement = self._reserve(pod, node)
            self._arrived(pod.uid)
            try:
                await self._promises.ledger.enter(node, [placement], mark)
                return placement
            except Stale:
                if self._promises.settled(pod.uid):
                    raise Refusal("the pod was bound by another replica, or is gone") from None
            except ApiFault:
                self._promises.drop(placement)
                raise
        self._promises.drop(placement)
        raise Refusal(f"other replicas keep promising cards of {node}; the pod is tried again")

    def _stands(self, placement: Placement) -> bool:
        """Whether what was chosen before is as good as chosen now: the book, as it is now, has room for all that is in
        it, this included, and no preemptor waits for some of that."""
        return not self.cluster.nominated and self.cluster.book.bears(placement)

    def _again(self, pod: PodView, placement: Placement, node: str) -> None:
        """Gives the pod's promise back; a group's cards are the pod's all the same, if they are free still."""
        assert self._promises.ledger is not None
        reservations, until_ns = self.cluster.reservations, self._promises.clock_ns() + BIND_NS
        reservations.drop(pod.uid)
        theirs = self._promises.ledger.others(node)
        self._promises.adopt(node, theirs)  # what was ours too may be theirs alone now
        if pod.group is None:
            return
        if placement in theirs:  # they chose it for the group, and so did we
            reservations.take_over(placement, until_ns, pod.group)
            return
        try:
            reservations.put(placement, until_ns, pod.group)
        except Overbooked as error:
            raise Refusal(f"the group's cards were taken meanwhile: {error}") from None

    def _reserve(self, pod: PodView, node: str) -> Placement:
        held = self.cluster.reservations.of(pod.uid)
        if held is not None:
            return held.placement
        assert pod.spec is not None
        if pod.vendor:
            return self._reserve_for_vendor(pod, node)
        with self._promises.fence.around(pod):
            placement = self.cluster.allocator.choose(pod.spec.ask, [node])
            if placement is None:
                why = self.cluster.allocator.explain(pod.spec.ask, [node]).get(node)
                raise Refusal(f"{why.reason}: {told(why)}" if why else f"node {node} reports no devices")
        self.cluster.reservations.put(placement, self._promises.clock_ns() + BIND_NS)
        return placement

    def _reserve_for_vendor(self, pod: PodView, node: str) -> Placement:
        """Which card the pod gets its kubelet and another device plugin will say: until then it may be any that they
        have left. So nobody may share one."""
        if sharers := self.cluster.foreign.sharers(node):
            raise Refusal(shared_node(sharers))
        placement = Placement(pod.uid, node, self.cluster.foreign.open_cards(node))
        try:
            self.cluster.reservations.put(placement, self._promises.clock_ns() + BIND_NS)
        except Overbooked as error:
            raise Refusal(str(error)) from None
        return placement

    async def _write(self, pod: PodView, placement: Placement) -> None:
        """The Binding. Raises after giving back what can be given back."""
        node = self.cluster.book.node(placement.node)
        if node is None or pod.spec is None:
            self._promises.drop(placement)
            raise Refusal(f"node {placement.node} has gone")
        if not {(one.type, one.minor) for one in placement.grants} <= {(one.type, one.minor) for one in node.devices}:
            self._promises.drop(placement)
            raise Refusal(f"a card of node {node.name} has gone meanwhile; the pod is tried again")
        if not self._promises.stands(placement):
            self._promises.drop(placement)
            raise Refusal(f"what was promised on {node.name} is too old to bind by; the pod is tried again")
        annotations = {} if pod.vendor else annotations_of(placement, pod.spec, node, self._promises.wall_ns())
        try:
            await self._promises.kubernetes.bind(pod.namespace, pod.name, pod.uid, placement.node, annotations)
        except Refused as error:
            if error.status == 409 and await self._promises.bound(pod, placement.node):
                return
            self._promises.drop(placement)
            raise
        except Unanswered:
            if await self._promises.bound(pod, placement.node):
                return
            raise  # the reservation stays: the server may yet do it

    # ---- time

    async def sweep(self) -> None:
        """Gives back reservations whose time is up; a binding nobody answered for is looked up first."""
        groups: set[GroupKey] = set()
        for held in self.cluster.reservations.due(self._promises.clock_ns()):
            uid = held.placement.pod
            if uid in self._binding or uid.startswith(NO_POD):
                continue
            if held.group is not None:
                groups.add(held.group)
                continue
            pod = self.cluster.pods.get(uid)
            if pod is not None and not held.awaited and not await self._promises.unbound(pod):
                continue
            if self.cluster.reservations.of(uid) is held:
                self._promises.drop(held.placement)
        self._promises.forget_gone()
        for held in self.cluster.reservations.due_adopted(self._promises.clock_ns()):
            if held.placement.pod.startswith(NO_POD):
                continue
            pod = self.cluster.pods.get(held.placement.pod)
            if pod is None or await self._promises.unbound(pod):
                self.cluster.reservations.disown(held.placement.pod, held.placement.node)
        for key in groups:
            log.info("group namespace=%s name=%s time-out: cards given back", *key)
            try:
                await self._groups.give_back(key)
            except ApiFault as error:  # its time is up for the others too
                log.info("group namespace=%s name=%s error=%s", *key, error)
