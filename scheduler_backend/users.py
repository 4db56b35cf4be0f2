"""Several users of one daemon: who may do what, and how much of a card each may promise itself.

Root and the daemon's own user administer it. Whoever else is let in to the control socket (by its group) has tenants of
his own, which nobody else may change or end, within the bounds of the config file's [users] tables:

    [users.default]
    request = 0.5
    [users.ann]
    request = 0.8
    memory = "40GiB"
    [users."@students"]
    latency = false

The most particular table counts: that of the user (name or number), that of the first of his groups in the file, the
default one. A table is a whole: what it does not say is not bounded, but for the number of tenants (bounds.py).
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler_backend.bounds import MOST_TENANTS
from scheduler_backend.core.tenant import TenantSpec, share_text
from scheduler_backend.problem import Problem
from scheduler_backend.subids import person


class Forbidden(Problem):
    """That is not this user's to do."""


class Bounds(NamedTuple):
    """What one user may have. None: as much as there is."""

    request_ppm: int | None = None  # sum of requests on a card
    limit_ppm: int | None = None  # of a tenant
    memory_bytes: int | None = None  # sum of memory limits on a card
    tenants: int | None = None  # MOST_TENANTS
    latency: bool = True  # tenants of this class


def is_administrator(uid: int | None) -> bool:
    """May this user do everything? None: it is no user's word but our own."""
    return uid in (None, 0, os.geteuid())


def user_name(uid: int) -> str:
    """The user's name; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_id(name: str) -> int:
    """The number of a group; raises Problem."""
    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise Problem(f"there is no group {name!r} on this machine; groupadd --system {name} makes one") from None


def _in_group(uid: int, name: str) -> bool:
    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(int(name)) if name.isdecimal() else grp.getgrnam(name)
    except KeyError:
        return False
    return user.pw_gid == group.gr_gid or user.pw_name in group.gr_mem


@dataclass
class Users:
    """The bounds of this machine's users."""

    tables: Mapping[str, Bounds] = field(default_factory=dict)

    def bounds(self, uid: int) -> Bounds:
        """Those of one user."""
        for name in (user_name(uid), str(uid)):
            if name in self.tables:
                return self.tables[name]
        for name, bounds in self.tables.items():
            if name.startswith("@") and _in_group(uid, name[1:]):
                return bounds
        return self.tables.get("default", Bounds())

    def check(self, uid: int, spec: TenantSpec, others: Iterable[TenantSpec], card_bytes: Sequence[int]) -> None:
        """Raise Forbidden where this tenant takes its user past a bound. `others`: the tenants he has besides;
        `card_bytes`: the memory of each card."""
        if uid in (0, os.geteuid()):
            return
        uid = person(uid)
        bounds, mine, who = self.bounds(uid), list(others), f"user {user_name(uid)}"
        most = MOST_TENANTS if bounds.tenants is None else bounds.tenants
        if len(mine) >= most:
            raise Forbidden(f"{who} may have {_counted(most)} at a time; end one first, see gemini ps")
        if spec.latency and not bounds.latency:
            raise Forbidden(f"{who} may not have tenants of class latency; leave --class out")
        if bounds.limit_ppm is not None and spec.limit_ppm > bounds.limit_ppm:
            raise Forbidden(
                f"{who} may have a limit of {share_text(bounds.limit_ppm)}, not {share_text(spec.limit_ppm)}; "
                f"give --limit {share_text(bounds.limit_ppm)}"
            )
        for gpu in spec.gpus:
            there = [other for other in mine if gpu in other.gpus]
            self._check_request(who, bounds, spec, there, gpu)
            self._check_memory(who, bounds, spec, there, gpu, card_bytes[gpu])

    @staticmethod
    def _check_request(who: str, bounds: Bounds, spec: TenantSpec, there: list[TenantSpec], gpu: int) -> None:
        if bounds.request_ppm is None or not spec.request_ppm:
            return
        left = bounds.request_ppm - sum(other.request_ppm for other in there)
        if spec.request_ppm > left:
            raise Forbidden(
                f"request {share_text(spec.request_ppm)} on GPU {gpu}: {who} may be promised "
                f"{share_text(bounds.request_ppm)} of a card, of which {share_text(max(0, left))} is left; ask for less"
            )

    @staticmethod
    def _check_memory(
        who: str, bounds: Bounds, spec: TenantSpec, there: list[TenantSpec], gpu: int, card_bytes: int
    ) -> None:
        if bounds.memory_bytes is None:
            return
        left = bounds.memory_bytes - sum(other.memory_bytes or card_bytes for other in there)
        if (spec.memory_bytes or card_bytes or bounds.memory_bytes + 1) > left:
            size = f"memory {size_text(spec.memory_bytes)}" if spec.memory_bytes else "the whole card's memory"
            raise Forbidden(
                f"{size} on GPU {gpu}: {who} may have {size_text(bounds.memory_bytes)} of a card, of which "
                f"{size_text(max(0, left))} is left; give --memory"
            )


def _counted(count: int) -> str:
    return f"{count} tenant{'s' * (count != 1)}"


def size_text(size_bytes: int) -> str:
    """Bytes as one would write them for --memory."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if size_bytes >= 1 << power:
            return f"{size_bytes / (1 << power):.4g}{unit}"
    return str(size_bytes)
