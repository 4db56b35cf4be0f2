"""What the parts of one GPU's token machine have in common while an event is handled."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.policy import Policy


class Context:
    """Of one GPU. `now_ns` is the time of the event that was taken last."""

    def __init__(self, gpu: int, policy: Policy, epochs: Epochs, now_ns: int = 0) -> None:
        self.gpu = gpu
        self.policy = policy
        self.epochs = epochs  # numbers grants; it is the node's, for epochs never repeat
        self.now_ns = now_ns
        self.actions: list[ev.Action] = []

    def begin(self) -> list[ev.Action]:
        """Begin with an event; returns the list to which what is to be done is added, in order."""
        self.actions = []
        return self.actions

    def do(self, action: ev.Action) -> None:
        """Add this to what is to be done."""
        self.actions.append(action)


def earliest(one_ns: int, other_ns: int) -> int:
    """The earlier of two times of which 0 means never."""
    return min(one_ns, other_ns) if one_ns and other_ns else one_ns or other_ns
