"""Why a pod is not placed: every reason once, and whether evicting pods could mend it.

Pure. The names are public: extender, `gemini place`, events and the metric gemini_extender_refused_total say them, and
docs/placement.md lists them (tests/gemini/placement/test_reasons.py compares).
"""

from __future__ import annotations

from enum import Enum


class Of(Enum):
    """What a reason speaks of."""

    ASK = "the ask itself"
    GROUP = "a group"
    NODE = "a node as a whole"
    CARD = "a card by itself"
    SET = "a set of cards that would each do"
    CLUSTER = "what else goes on in the cluster"


class Reason(Enum):
    """Those of cards stand from farthest to nearest: a node has that of the card that came nearest.

    `resolvable`: evicting pods could mend it. kube-scheduler does not try to preempt on a node where it could not.
    """

    text: str
    of: Of
    resolvable: bool

    def __init__(self, text: str, of: Of, resolvable: bool) -> None:
        self.text, self.of, self.resolvable = text, of, resolvable

    INVALID = "Invalid", Of.ASK, False
    GROUP_INCOMPLETE = "GroupIncomplete", Of.GROUP, True
    RELEASED = "Released", Of.GROUP, True
    GROUP_DOES_NOT_FIT = "GroupDoesNotFit", Of.GROUP, True
    GROUP_RESTS = "GroupRests", Of.GROUP, True
    GROUP_BUSY = "GroupBusy", Of.GROUP, True
    GROUP_PLACED = "GroupPlaced", Of.GROUP, True
    NO_NODES = "NoNodes", Of.NODE, True
    INSUFFICIENT_DEVICES = "InsufficientDevices", Of.NODE, False
    UNHEALTHY = "Unhealthy", Of.CARD, False
    CORDONED = "Cordoned", Of.CARD, False
    MODEL_MISMATCH = "ModelMismatch", Of.CARD, False
    UUID_MISMATCH = "UuidMismatch", Of.CARD, False
    IN_USE = "InUse", Of.CARD, True
    NO_FREE_SLOT = "NoFreeSlot", Of.CARD, True
    INSUFFICIENT_CORE = "InsufficientCore", Of.CARD, True
    INSUFFICIENT_MEMORY = "InsufficientMemory", Of.CARD, True
    MIXED_MODELS = "MixedModels", Of.SET, True
    TOPOLOGY_MISMATCH = "TopologyMismatch", Of.SET, True
    JOINT_UNAVAILABLE = "JointUnavailable", Of.SET, True
    PARTITION_UNAVAILABLE = "PartitionUnavailable", Of.SET, True
    NO_ROOM = "NoRoom", Of.CLUSTER, True
    RESERVED = "Reserved", Of.CLUSTER, True
    SHARED = "Shared", Of.CLUSTER, True
    RESTS = "Rests", Of.CLUSTER, False


BY_DISTANCE = tuple(reason for reason in Reason if reason.of is Of.CARD)  # from farthest to nearest
UNRESOLVABLE = frozenset(reason.text for reason in Reason if not reason.resolvable)
