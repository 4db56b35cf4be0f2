"""What the extender's verbs do, on one Cluster: filter, prioritize, bind, preempt, dry-run.

Does no I/O of its own: the API server is a `Kubernetes` given to it, the clocks are functions, HTTP is app.py's. Groups
(groups.py) and bindings (binder.py) stand on the same promises (promises.py).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np

from gemini.extender import codec
from gemini.extender.binder import Binder
from gemini.extender.claims import Claims
from gemini.extender.codec import BindRequest, FilterRequest, PreemptRequest, Victims
from gemini.extender.gather import PATIENCE_SECONDS
from gemini.extender.groups import Groups
from gemini.extender.groupwords import everywhere
from gemini.extender.onway import OnWay
from gemini.extender.podview import PodView
from gemini.extender.preempt import victims_beside, victims_on
from gemini.extender.preempt_group import victims_of_group
from gemini.extender.promises import Kubernetes, Promises, Verdict, shared_node, told
from gemini.extender.ration import Ration
from gemini.extender.reserve import AWAITED_NS
from gemini.extender.resizes import Resizes
from gemini.extender.shown import summary
from gemini.extender.state import Cluster
from gemini.kube import names
from gemini.kube.answer import ApiFault, Refused
from gemini.kube.device import template_node
from gemini.placement.allocate import Allocator, UnknownPolicy
from gemini.placement.book import Book
from gemini.placement.model import Ask
from gemini.placement.reasons import Reason
from gemini.placement.shape import Bools, Ints
from gemini.placement.written import Written

log = logging.getLogger("gemini.extender")
SHORTLIST = 100  # of nodes that will do kube-scheduler itself looks for no more than that in a small cluster
# Kube-scheduler asks about 500 nodes of 5,000, and 1,000 of 20,000; where it was told to ask about more, all are meant.
SAMPLE = 1_000
UNSEEN_NS = 60 * 10**9  # a watch is not that far behind
REMEMBERED = 10_000  # pods that were given a short answer and are not known to be bound
EXPLAINED = 256  # nodes times shares whose refusal is worked out card by card when a pod fits nowhere
# A pod of more shares takes as much longer: a tenth of a second and more. Such pods of a namespace have a part of the
# time, as its groups have.
FEW_SHARES = 16
TURN = "the pod waits for its turn: pods of namespace {} with many shares took much of the extender's time"
# For victims of one pod. A node takes milliseconds, of several cards or tenants tens of them; the scheduler asks about
# 100 or more, in another order each time, and waits 5 s for all calls of all pods.
PREEMPT_NS = 250 * 10**6


class Service:
    """One replica. `leases`: the namespace of the leases; None: there is no other replica. `shortlist`: where more
    nodes than that will do for a pod that prefers none for reasons of its own, filter answers with the one that the
    policies like best, without policies with so many; 0: always with all. `patience`: seconds for which a member's
    binding is held until those of its group have come."""

    def __init__(
        self,
        cluster: Cluster,
        kubernetes: Kubernetes,
        clock_ns: Callable[[], int],
        wall_ns: Callable[[], int],
        leases: str | None,
        replica: str = "alone",
        shortlist: int = SHORTLIST,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.cluster, self.shortlist = cluster, shortlist
        self.waiting: dict[str, str] = {}  # uid -> why it waits
        self._promises = promises = Promises(cluster, kubernetes, clock_ns, wall_ns, leases, replica)
        alone = lambda pod, asked: self._alone(pod, asked, everything=False, short=False)  # noqa: E731
        self._groups = Groups(promises, alone, patience)
        self._on_way = OnWay(cluster, clock_ns)
        # Pods by namespace and uid: those that preempt, and those of many shares.
        self._preemptors, self._large = Ration(lambda: self._clock_ns()), Ration(lambda: self._clock_ns())
        self._looks = 0  # at pods of either kind
        self._binder = Binder(promises, self._groups, self.waiting, self._on_way.arrived)
        self.claims = Claims(promises)
        self.resizes = Resizes(promises)
        self._kubernetes, self._clock_ns, self._wall_ns = kubernetes, clock_ns, wall_ns
        self._unseen: dict[str, int] = {}  # pods that wait, and that the watch has not seen, since when
        self._releases = 0  # as of when the scheduler was last woken
        self._wakes = True
        self._short: OrderedDict[str, None] = OrderedDict()  # uids of pods that were told of the best nodes alone

    async def inherit(self) -> None:
        """To be called before anything else is read: takes in what replicas that are there, or have ended, promised.
        Where that cannot be read, it is read node by node, as it is needed."""
        if self._promises.ledger is None:
            return
        try:
            self._groups.store.found(await self._promises.ledger.inherit())
        except ApiFault as error:
            log.warning("cannot list the leases of namespace %s: %s", self._promises.leases, error)

    async def bind(self, request: BindRequest) -> str:
        """The error for the scheduler; empty: bound."""
        error = await self._binder.bind(request)
        if not error:
            self._short.pop(request.uid, None)
        return error

    async def sweep(self) -> None:
        """To be called about once a second: gives back what nobody claimed in time."""
        await self._binder.sweep()
        try:
            await self._groups.sweep()
        except ApiFault as error:  # the next sweep tries again
            log.info("groups error=%s", error)
        await self.claims.sweep()
        await self.resizes.sweep()
        if any([one.due() for one in (self._preemptors, self._large)]):
            self.cluster.stir()
        self._promises.fence.sweep()
        self._forget()
        await self._wake()

    def _forget(self) -> None:
        """Pods that are gone wait no more. One that we were asked about before the watch has seen it is not gone."""
        unseen, self._unseen = self._unseen, {}
        for uid in [uid for uid in self.waiting if uid not in self.cluster.pods]:
            since = unseen.get(uid, self._clock_ns())
            if self.cluster.ended(uid) or self._clock_ns() - since > UNSEEN_NS:
                del self.waiting[uid]
            else:
                self._unseen[uid] = since

    async def _wake(self) -> None:
        """The scheduler asks again about a pod that we refused when something changes in the cluster. It may have seen
        that before we did, and asked too early; and of a Device it sees nothing. So when something was given back
        since, and somebody waits, it is told by a change of an object of ours that it watches."""
        now = self.cluster.releases
        if now == self._releases:
            return
        known = (self.cluster.pods.get(uid) for uid in self.waiting)
        if any(pod is None or pod.waits for pod in known):
            try:
                await self._kubernetes.wake(str(self._wall_ns()))
                self._wakes = True
            except Refused as error:  # our DeviceClass may come yet, or the right to change it
                if self._wakes:
                    log.warning("cannot wake the scheduler when there is room again: %s", error)
                self._wakes = False
            except ApiFault:
                return  # the next sweep tries again
        self._releases = now

    def view(self, given: dict[str, Any]) -> PodView:
        """The pod of a request, without parsing it again where it is the one that was watched."""
        metadata = given.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        known = self.cluster.pods.get(str(metadata.get("uid", "")))
        if known is not None:
            version = (known.object.get("metadata") or {}).get("resourceVersion")
            if version is not None and version == metadata.get("resourceVersion"):
                return known
        return self.cluster.view(given)

    async def filter(self, request: FilterRequest, effect: bool = True) -> Verdict:
        """`effect` False: reserves nothing, and says why for every node."""
        pod = self.view(request.pod)
        if effect:
            await self._on_way.wait(pod)
            pod = self.view(request.pod)
        verdict = self._filter(pod, request.names, effect)
        if verdict is None:
            verdict = await self._groups.place(pod, request.names, effect) or self._judge(pod, request.names, effect)
        return self._noted(pod, verdict) if effect else verdict

    def filter_at_once(self, request: FilterRequest) -> Verdict | None:
        """The same with effect, where nobody has to be asked; None: it has to be awaited."""
        pod = self.view(request.pod)
        if self._on_way.in_way_of(pod):
            return None
        verdict = self._filter(pod, request.names, effect=True)
        return None if verdict is None else self._noted(pod, verdict)

    def _noted(self, pod: PodView, verdict: Verdict) -> Verdict:
        if pod.uid:
            if verdict.passed:
                self.waiting.pop(pod.uid, None)
                self._on_way.send(pod, verdict.passed)
            else:
                self.waiting[pod.uid] = summary(verdict)
        return verdict

    async def dry_run(self, request: FilterRequest) -> Verdict:
        """Filter without effect. Nodes that are not known and come as whole objects are judged by their capacity."""
        verdict, pod, book = await self.filter(request, effect=False), self.view(request.pod), self.cluster.book
        fresh = [node for node in map(template_node, (request.nodes or {}).values()) if node is not None]
        fresh = [node for node in fresh if book.node(node.name) is None]
        if not fresh or pod.spec is None or pod.group is not None:
            return verdict
        imagined = Allocator(Book(fresh), self.cluster.allocator.policies)
        refusals = imagined.explain(pod.spec.ask)
        for node in fresh:
            verdict.failed.pop(node.name, None)
        able = {*verdict.passed, *(node.name for node in fresh if node.name not in refusals)}
        failed = verdict.failed | {name: (why.reason, told(why)) for name, why in refusals.items()}
        cards = verdict.cards | {name: why.devices for name, why in refusals.items()}
        return Verdict([name for name in request.names if name in able], failed, cards)

    def _filter(self, pod: PodView, asked: Sequence[str], effect: bool) -> Verdict | None:
        """None: the pod's group is to be placed first."""
        if pod.fault is not None:
            return Verdict([], dict.fromkeys(asked, (Reason.INVALID.text, pod.fault)))
        if pod.spec is None:
            return Verdict(list(asked), {})
        if pod.vendor:
            return self._for_vendor(asked)
        try:
            self.cluster.allocator.check(pod.spec.ask)
        except UnknownPolicy as error:
            return Verdict([], dict.fromkeys(asked, (Reason.INVALID.text, f"{names.GPU_POLICY}: {error}")))
        held = self.cluster.reservations.of(pod.uid)
        if held is not None and held.awaited and effect:  # it was not bound there, and is to be placed anew
            self.cluster.reservations.drop(pod.uid)
            held = None
        if pod.group is not None and (held is None or (effect and held.placement.node not in asked)):
            return None
        if effect and held is None and _shares(pod.spec.ask) > FEW_SHARES:
            return self._in_turn(pod, asked)
        return self._judge(pod, asked, effect)

    def _in_turn(self, pod: PodView, asked: Sequence[str]) -> Verdict:
        """What a pod of many shares is told, which takes long; or that it waits for its turn."""
        key = (pod.namespace, pod.uid)
        self._looks += 1
        if not self._large.may(key, self._looks):
            return everywhere(asked, Reason.RESTS, TURN.format(pod.namespace))
        began_ns = self._clock_ns()
        verdict = self._judge(pod, asked, True)
        took_ns = self._clock_ns() - began_ns
        if verdict.passed:
            self._large.placed(key, took_ns)
        else:
            self._large.refused(key, self._looks, took_ns)
        return verdict

    def _judge(self, pod: PodView, asked: Sequence[str], effect: bool) -> Verdict:
        held = self.cluster.reservations.of(pod.uid)
        if held is not None:
            node = held.placement.node
            why = (Reason.RESERVED.text, f"cards are held for the pod on {node}")
            return Verdict([n for n in asked if n == node], {n: why for n in asked if n != node})
        return self._alone(pod, asked, everything=not effect, short=effect and self._short_will_do(pod, asked))

    def _short_will_do(self, pod: PodView, asked: Sequence[str]) -> bool:
        """Whether some of many nodes are answer enough. Where they are one, kube-scheduler is done: it neither scores
        nodes nor asks for our scores, which is half of what an extender costs it. A pod that comes again unbound found
        something in its way that we do not see (another extender, a volume, a race for the last room), and is told of
        all nodes."""
        return bool(self.shortlist) and len(asked) <= SAMPLE and pod.uid not in self._short and not pod.prefers

    def _for_vendor(self, asked: Sequence[str]) -> Verdict:
        """The nodes for a pod that came past the webhook, and so is served by another device plugin: where nobody
        shares a card."""
        failed = {
            name: (Reason.SHARED.text, shared_node(sharers))
            for name in asked
            if (sharers := self.cluster.foreign.sharers(name))
        }
        return Verdict([name for name in asked if name not in failed], failed)

    def _alone(self, pod: PodView, asked: Sequence[str], everything: bool, short: bool) -> Verdict:
        if not self.cluster.nominated:  # as nearly always
            return self._judged(pod, asked, everything, short)
        with self._promises.fence.around(pod):
            return self._judged(pod, asked, everything, short)

    def _judged(self, pod: PodView, asked: Sequence[str], everything: bool, short: bool) -> Verdict:
        assert pod.spec is not None
        allocator = self.cluster.allocator
        standing = self.cluster.standings.of(pod.spec.ask)
        if short and (best := standing.short(asked, self.shortlist, self.cluster.discouraged)) is not None:
            self._short[pod.uid] = None
            if len(self._short) > REMEMBERED:
                self._short.popitem(last=False)
            if len(best) == 1 and pod.uid not in self.cluster.book.holdings:  # it is there where we know it as bound
                placement = standing.choose(pod.spec.ask, best[0])
                if placement is not None:
                    self.cluster.reservations.await_binding(placement, self._clock_ns() + AWAITED_NS)
            return Verdict(best, {})
        fits = standing.fits(asked)
        passed, left = _parted(asked, fits)
        failed: dict[str, tuple[str, str]] = {}
        cards: dict[str, dict[str, str]] = {}
        if passed and not everything:  # nobody reads them: reasons cost more than the search
            return Verdict(passed, failed, rest=left)
        book = self.cluster.book
        explained = [name for name in left if book.node(name) is not None]
        explained = explained if everything else explained[: max(1, EXPLAINED // _shares(pod.spec.ask))]
        for name, refusal in allocator.explain(pod.spec.ask, explained).items():
            failed[name] = (refusal.reason, told(refusal))
            cards[name] = refusal.devices
        for name in left:
            if name not in failed:
                known = book.node(name) is not None
                failed[name] = (
                    codec.NO_ROOM
                    if known
                    else (Reason.INSUFFICIENT_DEVICES.text, "the node reports no devices (it has no Device object)")
                )
        return Verdict(passed, failed, cards)

    def prioritize(self, request: FilterRequest) -> Ints:
        """For each node asked about its rank, 0 is best, -1 is none."""
        pod = self.view(request.pod)
        if pod.spec is None or pod.uid in self.cluster.reservations:
            return np.zeros(len(request.names), dtype=np.int64)
        return self.cluster.standings.of(pod.spec.ask).ranks(request.names)

    def preempt(self, request: PreemptRequest) -> dict[str, Victims]:
        """Node -> victims; nodes where evicting would not help are left out, and those that there was no time for: none
        where the pod's namespace has had its part of it. The pods of a namespace have their turns in that: of one that
        finds nobody the others would wait for ever."""
        pod = self.view(request.pod)
        if pod.spec is None:
            return dict(request.victims)
        key = (pod.namespace, pod.uid)
        self._looks += 1
        if not self._preemptors.may(key, self._looks):
            return {}
        began_ns = self._clock_ns()
        found = self._victims(pod, request, began_ns + PREEMPT_NS)
        took_ns = self._clock_ns() - began_ns
        if found:
            self._preemptors.placed(key, took_ns)
        else:
            self._preemptors.refused(key, self._looks, took_ns)
        return found

    def _victims(self, pod: PodView, request: PreemptRequest, until_ns: int) -> dict[str, Victims]:
        def over() -> bool:
            return self._clock_ns() >= until_ns

        if pod.group is not None and not pod.vendor:
            return victims_of_group(self.cluster, pod, request.victims, self._groups.may_go, over)
        found: dict[str, Victims] = {}
        for node, proposed in request.victims.items():
            if over():
                break
            victims = (victims_beside if pod.vendor else victims_on)(self.cluster, pod, node, proposed, over)
            if victims is not None:
                found[node] = victims
        return found


def _shares(ask: Ask) -> int:
    return sum(len(tenant.wants) for tenant in ask.tenants)


def _parted(names: Sequence[str], fits: Bools) -> tuple[Sequence[str], Sequence[str]]:
    """Those that fit, and the others."""
    if not isinstance(names, Written):
        return list(compress(names, fits.tolist())), list(compress(names, (~fits).tolist()))
    left, passed = names.parted(fits.view(np.int8), 2)
    return passed, left
