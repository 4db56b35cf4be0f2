"""What an attack is, and what it gets to know of the place that it attacks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

TENANT = "code in a tenant's container"
LOCAL = "another user of the machine"
NETWORK = "a pod or machine that reaches the metrics port"
OWNER = "the user whose daemon it is, by mistake"
WHO = (TENANT, LOCAL, NETWORK, OWNER)

Steps = Iterator[str | None]  # None: it goes on. A text: this was promised never to happen, and just did


@dataclass(frozen=True)
class Place:
    """What the attacker is told: its tenant's socket, and what somebody on the machine could find out."""

    socket: str  # of the hostile tenant
    tenant: str
    victim: str  # another tenant's socket
    uuid: str  # of the card, in hexadecimal
    memory_bytes: int  # its limit
    limit: float  # of the card's time
    state_dir: str
    config: str
    metrics_port: int
    daemon: int  # pid
    sim: str
    env: dict[str, str]  # of a process of the hostile tenant
    scratch: str  # a folder of the attacker's, removed afterwards

    @property
    def card(self) -> bytes:
        return bytes.fromhex(self.uuid)

    @property
    def page(self) -> str:
        return f"{self.socket}.page"

    @property
    def control(self) -> str:
        return f"{self.state_dir}/control.sock"

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class Attack(NamedTuple):
    """One row of the table. Its name and what it does are its function's."""

    name: str
    who: str
    what: str
    function: Callable[[Place], Steps]
    descriptors: int  # that the daemon may have meanwhile; 0: as it has
    root: bool  # it needs root, to be somebody else
    finding: int  # of the hostile reading that it reproduces; 0: of none


def attack(
    who: str, *, descriptors: int = 0, root: bool = False, finding: int = 0
) -> Callable[[Callable[[Place], Steps]], Attack]:
    """A row of the table from a function, whose docstring is one line."""

    def row(function: Callable[[Place], Steps]) -> Attack:
        name = function.__name__.strip("_").replace("_", "-")
        return Attack(name, who, " ".join((function.__doc__ or "").split()), function, descriptors, root, finding)

    return row


def may_play(one: Attack) -> bool:
    return not one.root or os.geteuid() == 0
