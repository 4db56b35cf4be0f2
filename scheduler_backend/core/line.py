"""For who carries out what the machine has prepared: the orders of one GPU in their row, and how those are told to it
that were carried out meanwhile.

Between two events orders may be carried out without the machine. It hears of them before the next event, as events that
came first (`told`), and says what follows; of that, what was done when the order was carried out is not done again
(`left_of`). The daemon and the simulated node tell it by the same rule, which is this one.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler_backend.core.events import Action, Carried, Event, Grant, Page, Prepare, TokenReturned, Unprepare
from scheduler_backend.core.quota import of_several


class CarriedOut(NamedTuple):
    """An order that was carried out, and of which the machine has not heard."""

    at_ns: int
    order: Prepare
    said: TokenReturned | None  # the Return of its holder, where that came with the word of the drain


class Line:
    """The first may be carried out as soon as its holder has drained, each other once the one before it was."""

    __slots__ = ("orders",)

    def __init__(self) -> None:
        self.orders: list[Prepare] = []

    def put(self, order: Prepare) -> bool:
        """Take what the machine says; whether its epoch is new. What does not stand behind it any more is off."""
        place = 0
        if order.after:
            place = 1 + next(i for i, known in enumerate(self.orders) if known.epoch == order.after)
        new = place >= len(self.orders) or self.orders[place].epoch != order.epoch
        self.orders[place:] = [order] if new else [order, *self.orders[place + 1 :]]
        return new

    def drop(self, action: Unprepare) -> None:
        """These orders are off."""
        for place, order in enumerate(self.orders):
            if action.epoch in (0, order.epoch):
                del self.orders[place:]
                return

    def carried(self, at_ns: int) -> Prepare:
        """The first was carried out then; returns it. The next comes first now."""
        first = self.orders.pop(0)
        if self.orders:
            following = self.orders[0]
            self.orders[0] = following._replace(after=0, wanting_from_ns=at_ns + following.wanting_from_ns)
        return first


def grant_of(order: Prepare, client: int) -> Grant:
    """What one of its clients has once it was carried out."""
    quota_ns, cap_ns = order.quota_ns, order.cap_ns
    if order.contended:
        quota_ns, cap_ns = of_several(
            quota_ns, cap_ns, len(order.clients) + order.more, len(order.brief) - (client in order.brief)
        )
    return Grant(client, order.gpu, order.epoch, quota_ns, order.lease_ns, cap_ns, order.contended, False, order.shared)


def _at(done: CarriedOut) -> int:
    return done.at_ns


def told(carried: list[CarriedOut], following: Event | None, gangs: bool) -> list[tuple[Event, int, bool]]:
    """What the machine is to hear, in the order of its time, as (event, when that was, more).

    more: another order of its GPU was carried out behind it. When is 0 for a Return behind which there is none: that is
    heard now. `following` is the event that comes after all of these, if one does. gangs: are there tenants with
    several GPUs? Then what is next is decided after each event, with all machines in view, and never put off
    (Carried.followed).
    """
    if len(carried) > 1:
        carried = sorted(carried, key=_at)
    events: list[tuple[Event, int, bool]] = []
    for place, (at_ns, order, said) in enumerate(carried):
        gpu = order.gpu
        more = any(later.order.gpu == gpu for later in carried[place + 1 :])
        behind = following if said is None else said
        returned = isinstance(behind, TokenReturned) and behind.gpu == gpu and not gangs
        events.append((Carried(gpu, order.holder_epoch, order.epoch, more or returned), at_ns, more))
        if said is not None:
            events.append((said._replace(followed=more), at_ns if more else 0, more))
    return events


def left_of(actions: list[Action], more: bool) -> list[Action]:
    """What is to be done of a Carried's actions: its page was shown with the order, and may show more since. Where more
    was carried out on this GPU behind it, its grant is over, and nobody is told of that.
    """
    return [action for action in actions if not isinstance(action, Page) and not (more and isinstance(action, Grant))]
