"""The hand-overs that may be carried out without asking the machine: which are told, and which of them stand.

ahead.py says after each event what the next hand-overs would be. What was told already stands where it is the same
grant, for each change of it costs a message; all that stood behind another stands no more.
"""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.ahead import same_grant
from scheduler_backend.core.moves import Epochs


class HandoverPlan:
    """Of one GPU. Each order that is told has an epoch of its own, from the node's count."""

    def __init__(self, gpu: int, epochs: Epochs) -> None:
        self.gpu = gpu
        self.epochs = epochs
        self.prepared: ev.Prepare | None = None  # the hand-over that may be carried out without asking
        self.behind: list[ev.Prepare] = []  # those that may be after it

    def put(self, order: ev.Prepare | None, actions: list[ev.Action]) -> ev.Prepare | None:
        """Take what is next now, its epoch still 0, None: nothing is certain; adds what is to be told of that to the
        actions, and returns the order as it stands.
        """
        known = self.prepared
        if order is None:
            if known is not None:
                self.prepared = None
                self.behind = []
                actions.append(ev.Unprepare(self.gpu))
            return None
        if known is not None and same_grant(known, order):
            order = known._replace(not_before_ns=order.not_before_ns, wanting_from_ns=order.wanting_from_ns)
        else:
            order = order._replace(epoch=self.epochs.take())
            self.behind = []
        if order != known:
            self.prepared = order
            actions.append(order)
        return order

    def put_behind(self, order: ev.Prepare, orders: list[ev.Prepare], actions: list[ev.Action]) -> None:
        """Take what is next after `order`, as put() returned it, each behind the one before."""
        known = self.behind
        self.behind = behind = []
        for place, following in enumerate(orders):
            following = following._replace(after=order.epoch, holder_epoch=order.epoch)
            if place < len(known) and same_grant(known[place], following):
                following = known[place]._replace(wanting_from_ns=following.wanting_from_ns)
            else:
                known = known[:place]  # what stood behind another stands no more
                following = following._replace(epoch=self.epochs.take())
            if place >= len(known) or following != known[place]:
                actions.append(following)
            behind.append(following)
            order = following
        if len(behind) < len(known):
            actions.append(ev.Unprepare(self.gpu, known[len(behind)].epoch))

    def carry_out(self, event: ev.Carried, now_ns: int) -> ev.Prepare:
        """Take the first out, for it was carried out now, and return it; the next one is first then. Raises
        LocalProtocolError where another one or none was prepared.
        """
        order = self.prepared
        if order is None or (order.epoch, order.holder_epoch) != (event.epoch, event.holder_epoch):
            raise ev.LocalProtocolError(f"{event} was carried out, {order} was prepared")
        self.prepared = None
        if self.behind:
            following = self.behind.pop(0)
            self.prepared = following._replace(after=0, wanting_from_ns=now_ns + following.wanting_from_ns)
        return order
