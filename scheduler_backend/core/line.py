"""The orders of one GPU as the machine has said them, in their row; for who carries them out."""

from __future__ import annotations

from scheduler_backend.core.events import Prepare, Unprepare


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
