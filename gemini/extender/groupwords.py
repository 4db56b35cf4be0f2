"""What the pods of a group are told by way of the nodes that kube-scheduler asks about. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gemini.extender.podview import PodView
from gemini.extender.promises import Verdict
from gemini.extender.reserve import GroupKey
from gemini.kube import names
from gemini.kube.group import differing
from gemini.placement.model import NODE_LEVEL, Ask
from gemini.placement.reasons import Reason


def everywhere(asked: Sequence[str], reason: Reason, text: str) -> Verdict:
    return Verdict([], dict.fromkeys(asked, (reason.text, text)))


def busy(key: GroupKey, asked: Sequence[str]) -> Verdict:
    text = f"group {key[1]} is being placed by another replica; this pod is tried again"
    return everywhere(asked, Reason.GROUP_BUSY, text)


def in_turn(key: GroupKey, asked: Sequence[str]) -> Verdict:
    text = f"group {key[1]} waits for its turn: looking for room for groups of namespace {key[0]} took much of the"
    text += " extender's time; let fewer of its pods wait at once, as a queue (Kueue) does"
    return everywhere(asked, Reason.GROUP_RESTS, text)


def disagreement(pod: PodView, others: Sequence[PodView]) -> str | None:
    """What the pods of a group do not all say; None: they agree."""
    assert pod.spec is not None
    for other in others:
        if other.spec is not None and (words := differing(pod.spec.ask, other.spec.ask)) is not None:
            key, mine, theirs = words
            return f"{key}: {mine} differs from {theirs}, said by {other.name}; say the same"
    return None


def where(ask: Ask) -> str:
    """What a group is held to, where that is no single node."""
    if ask.required == NODE_LEVEL:
        return ""
    return "" if ask.required == names.LEVEL_CLUSTER else f" within one {ask.required} ({names.GROUP_REQUIRED})"
