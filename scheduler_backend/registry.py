"""Which tenants there are, and who asked for them. What of it is kept over a restart is keeper.py's.

A tenant lives as long as somebody wants it: a line of the config file, a registration without a pid (until it is
deleted), or processes that registered it for their lifetime (`gemini run`). Two of one name and equal spec share it,
and the last one that leaves or dies takes it along. Those of the config file and those that were added with `share` are
named shares: a Publisher makes them known outside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from scheduler_backend import descriptors, devices
from scheduler_backend.bounds import MOST_REGISTRANTS, MOST_REGISTRATIONS, USERS_PART
from scheduler_backend.config import TenantSettings
from scheduler_backend.core.tenant import InvalidSpec, TenantSpec, validate, validate_sum
from scheduler_backend.debts import Debts, Owing
from scheduler_backend.keeper import Keeper, Registration
from scheduler_backend.peers import Peer
from scheduler_backend.persist import Saved, StateDir
from scheduler_backend.problem import Problem
from scheduler_backend.publisher import Publisher, Share
from scheduler_backend.server import Server
from scheduler_backend.subids import person
from scheduler_backend.tenant_body import is_share, read_change, read_tenant, told
from scheduler_backend.users import Forbidden, Users, is_administrator, size_text, user_name

log = logging.getLogger("gemini.registry")


class Conflict(Problem):
    """It clashes with what is promised already."""


class Unknown(Problem):
    """There is no such tenant."""


class Registry:
    """The tenants of this node. The server carries them out."""

    def __init__(
        self, server: Server, state_dir: StateDir, reserved_epoch: int, publisher: Publisher | None = None
    ) -> None:
        self.server = server
        self.state_dir = state_dir
        self.registrations: dict[str, Registration] = {}
        self._keeper = Keeper(server, state_dir, reserved_epoch, self.registrations)
        self.publisher = publisher
        self.users = Users()
        self._loading = False
        self._ending = False  # somebody's process has ended, which a restart would see for itself
        self._known: list[tuple[str, int, int, int]] = []  # clients of before a restart, until the config is applied
        self._debts = Debts()
        self._published: list[Share] | None = None  # before the first word nothing is known of what is out there
        server.outside.registrants = self._registrants

    # --- the control API --------------------------------------------------------------------------------------------
    def register(self, body: Mapping[str, Any], peer_pid: int = 0, peer_uid: int | None = None) -> TenantSpec:
        """Make a tenant, or join one of equal spec. Raises Conflict, Problem.

        A tenant that somebody registers for the lifetime of a process is of that user, and of nobody else's; one that
        is registered for good is for whoever is given its folder. With `share` it is for good, and a named share.
        """
        share = is_share(body)
        if ("pid" not in body or not peer_pid) and not is_administrator(peer_uid):
            if "pid" in body:  # it would have no end either
                raise Forbidden("the daemon does not see your processes; start it where it does (its pid namespace)")
            raise Forbidden("shares that stay are the administrator's to make; gemini run makes one for a command")
        spec = read_tenant(body, self.server.gpus)
        existing = self.server.node.tenants.get(spec.name)
        if existing is not None:
            self._check_owner(spec.name, peer_uid, "choose another name")
        if existing is not None and existing != spec:
            differs = next(name for name in spec._fields if getattr(spec, name) != getattr(existing, name))
            raise Conflict(
                f"tenant {spec.name} exists with {told(existing, differs)}, not {told(spec, differs)}; "
                f"choose another name, or change it with gemini set"
            )
        owner = peer_uid if "pid" in body else None
        if existing is None:
            self._check_paid(owner)
            self._check_bounds(spec, owner)
            self._check_sum(spec)
        pid = peer_pid if "pid" in body else 0
        registered = self.registrations.get(spec.name, Registration()).peers
        if pid and pid not in registered:
            self._check_registrants(spec.name, len(registered), owner)
        peer = self._peer(pid, spec.name) if pid else None
        if pid and peer is None:  # a tenant that nobody would end
            raise Problem(
                f"tenant {spec.name}: process {pid}, for whose lifetime it was to be, has ended; start it anew"
            )
        if existing is None:
            try:
                self.server.start_tenant(spec, owner=owner)
            except Problem:
                if peer is not None:
                    peer.close()
                raise
        registration = self.registrations.setdefault(spec.name, Registration())
        if peer is not None:
            registration.peers[pid] = peer
        else:
            registration.lasting = True
            registration.share |= share
        self.save()
        return spec

    def change(self, name: str, body: Mapping[str, Any], peer_uid: int | None = None) -> TenantSpec:
        """New shares for a running tenant. With `holding` memory below what it uses is a Conflict; without, the tenant
        keeps what it has, and gets no more. Raises Unknown, Conflict, Forbidden, Problem."""
        old = self._existing(name)
        self._check_owner(name, peer_uid, "gemini ps shows yours")
        spec, holding = read_change(old, body, self.server.gpus)
        if not is_administrator(peer_uid):  # who may give more than is bounded, as he may change the bounds
            self._check_bounds(spec, self.server.endpoints[name].owner)
        self._check_sum(spec)
        if holding:
            self._check_holding(spec)
        if spec != old:
            self.server.change_tenant(spec)
        self.save()
        return spec

    def remove(self, name: str, peer_pid: int = 0, peer_uid: int | None = None) -> bool:
        """One who wanted it leaves; returns whether it was the last. Another word of its user removes it for all."""
        self._existing(name)
        self._check_owner(name, peer_uid, "gemini ps shows yours")
        registration = self.registrations[name]
        peer = registration.peers.pop(peer_pid, None)
        if peer is not None:
            peer.close()
            if registration.peers or registration.lasting or registration.configured:
                self.save()
                return False
        self._remove(name)
        return True

    # --- the config file --------------------------------------------------------------------------------------------
    def apply(self, tenants: tuple[TenantSettings, ...]) -> None:
        """Make the tenants of the config file so. Checked as a whole first; raises Problem and changes nothing."""
        find = self._find
        count = len(self.server.gpus)
        specs = {tenant.name: tenant.spec(find, count) for tenant in tenants}
        running = self.server.node.tenants
        gone = {
            name
            for name, registration in self.registrations.items()
            if registration.configured and name not in specs and not registration.lasting and not registration.peers
        }
        kept = [spec for name, spec in running.items() if name not in specs and name not in gone]
        try:
            for name, spec in specs.items():
                validate(spec, count)
                if name in running and (owner := self.server.endpoints[name].owner) is not None:
                    who = f"user {user_name(owner)}'s"
                    raise Problem(f"tenant {name} is {who} while it runs; end it first, or choose another name")
                if name in running and running[name].gpus != spec.gpus:
                    raise Problem(f"tenant {name}: its GPUs cannot change while it runs; end it first")
                validate_sum(spec, [*kept, *(other for other in specs.values() if other is not spec)])
        except InvalidSpec as error:
            raise Problem(f"config: {error}") from None
        for name in gone:
            self._remove(name)
        # Those that shrink first: between two changes the sum must not pass the whole either.
        for spec in sorted(
            specs.values(), key=lambda s: s.request_ppm - getattr(running.get(s.name), "request_ppm", 0)
        ):
            if spec.name not in running:
                self.server.start_tenant(spec, self._known_of(spec.name))
            elif running[spec.name] != spec:
                self.server.change_tenant(spec)
            largest = max(self.server.gpus[gpu].memory_bytes for gpu in spec.gpus)
            if spec.memory_bytes > largest > 0:
                log.warning(
                    "memory-above-card tenant=%s memory=%s card=%s",
                    spec.name,
                    size_text(spec.memory_bytes),
                    size_text(largest),
                )
            self.registrations.setdefault(spec.name, Registration()).configured = True
        for name, registration in self.registrations.items():
            if name not in specs:
                registration.configured = False
        self._known = []
        self._loading = False
        self.save()

    # --- restarts ---------------------------------------------------------------------------------------------------
    def restore(self, saved: Saved, configured: tuple[TenantSettings, ...] = ()) -> None:
        """Bring back the tenants of before; what no longer fits beside those of the config file is left out with a
        word: no user's tenant keeps the daemon from starting with what its administrator has written. `apply` of
        these must follow: only with them is the set whole that is kept and published. Raises Problem."""
        self._loading = True
        self._known = saved.clients
        count = len(self.server.gpus)
        fixed = {tenant.name: tenant.spec(self._find, count) for tenant in configured}
        for spec in saved.tenants:
            try:
                validate(spec, count)
                named = fixed.get(spec.name)
                if named is not None and (spec.name in saved.owners or named.gpus != spec.gpus):
                    raise Problem("the config file has a tenant of this name; start it with another --name")
                running = [one for one in self.server.node.tenants.values() if one.name not in fixed]
                others = [one for one in fixed.values() if one is not named]
                validate_sum(named or spec, [*running, *others])
                registration = Registration()
                pids = saved.pids.get(spec.name, {})
                for pid, started in pids.items():
                    peer = Peer.of_pid(pid, started)
                    if peer is not None:
                        self._watch(peer, spec.name)
                        registration.peers[pid] = peer
                if pids and not registration.peers:
                    continue  # all who wanted it are gone
                registration.lasting = not pids
                registration.share = spec.name in saved.shares
                self.server.start_tenant(spec, self._known_of(spec.name), saved.owners.get(spec.name))
                self.registrations[spec.name] = registration
            except ValueError as error:
                log.warning("tenant-not-restored tenant=%s reason=%s", spec.name, error)

    def _known_of(self, name: str) -> list[tuple[int, int, int]]:
        """The clients that a tenant had before a restart: the token is granted to nobody before they have spoken."""
        return [client[1:] for client in self._known if client[0] == name]

    def save(self) -> None:
        """Write state.json; where it cannot be, nothing counts as reserved by it. Tell of the shares there are."""
        if self._loading:
            return
        if self._ending:
            self.server.change_soon()
            return
        self._keeper.write()
        named = {
            name: "config" if registration.configured else "added"
            for name, registration in self.registrations.items()
            if registration.configured or registration.share
        }
        self.server.shares = named
        shares = self._shares(named)
        if self.publisher is not None and shares != self._published:
            self._published = shares
            self.publisher.publish(shares)

    def _shares(self, named: Collection[str]) -> list[Share]:
        count = len(self.server.gpus)
        return [
            Share(
                spec,
                self.server.endpoints[name].folder,
                tuple(self.server.gpus[gpu] for gpu in spec.gpus),
                len(spec.gpus) < count,
            )
            for name, spec in self.server.node.tenants.items()
            if name in named
        ]

    def let_go(self) -> None:
        """The daemon leaves for want of tenants: the cards are whoever's that comes, and no longer a past of ours."""
        self.state_dir.cards = []
        self.save()

    def keep_ahead(self) -> None:
        """Reserve more epochs before they run out, again where the last try failed; called now and then."""
        if self._keeper.runs_short():
            self.save()

    # --- users ------------------------------------------------------------------------------------------------------
    def _check_owner(self, name: str, uid: int | None, mend: str) -> None:
        """Raise Forbidden where this user may not touch that tenant."""
        owner = self.server.endpoints[name].owner
        if not is_administrator(uid) and owner != uid:
            whose = "the administrator's" if owner is None else f"user {user_name(owner)}'s"
            raise Forbidden(f"tenant {name} is {whose}; {mend}")

    def _check_bounds(self, spec: TenantSpec, owner: int | None) -> None:
        if owner is None:
            return
        whose = person(owner)
        others = [
            other
            for name, other in self.server.node.tenants.items()
            if name != spec.name and self.server.endpoints[name].person == whose
        ]
        self.users.check(owner, spec, others, [gpu.memory_bytes for gpu in self.server.gpus])

    def _check_paid(self, owner: int | None) -> None:
        """Raise Owing where this user has to wait."""
        if owner is None or is_administrator(owner):
            return
        left_s = self._debts.left_ns(person(owner), time.monotonic_ns()) / 1e9
        if left_s > 0:
            raise Owing(
                f"tenants of user {user_name(owner)} that have ended had more of a GPU than was theirs by then; "
                f"ask again in {left_s:.1f} s",
                left_s,
            )

    def _check_registrants(self, name: str, registered: int, owner: int | None) -> None:
        """Raise Conflict where there is no room for one more process that registers this tenant: each costs a
        descriptor as long as it lives, and its end a look at all."""
        if registered >= MOST_REGISTRANTS:
            raise Conflict(f"tenant {name} has {MOST_REGISTRANTS} of its processes already; choose another name")
        if owner is None or is_administrator(owner):
            return
        whose = person(owner)
        theirs = sum(
            len(registration.peers)
            for other, registration in self.registrations.items()
            if self.server.endpoints[other].person == whose
        )
        most = min(MOST_REGISTRATIONS, descriptors.limit() // USERS_PART - self.server.roster.descriptors_of(whose))
        if theirs >= most:
            raise Conflict(f"user {user_name(owner)} has registered tenants {theirs} times already; end some first")

    # --- parts ------------------------------------------------------------------------------------------------------
    def _registrants(self) -> dict[int, str]:
        """pid -> tenant that it registered for its lifetime."""
        return {pid: name for name, registration in self.registrations.items() for pid in registration.peers}

    def _find(self, wanted: object) -> int:
        return devices.find(self.server.gpus, wanted)

    def _check_sum(self, spec: TenantSpec) -> None:
        others = [other for other in self.server.node.tenants.values() if other.name != spec.name]
        try:
            validate_sum(spec, others)
        except InvalidSpec as error:
            raise Conflict(str(error)) from None

    def _check_holding(self, spec: TenantSpec) -> None:
        """Nothing runs between this and the change: what it has when the change is made is what is looked at. Its
        processes are asked for what of that they do not use."""
        used = max(self.server.node.accounts[spec.name, gpu].used_bytes for gpu in spec.gpus)
        if 0 < spec.memory_bytes < used:
            self.server.recall(spec.name, spec.memory_bytes)  # whoever tries again soon finds that gone
            raise Conflict(
                f"tenant {spec.name} has {size_text(used)} of a card in use or on credit, more than "
                f"{size_text(spec.memory_bytes)}; let it free some, or give it more"
            )

    def _existing(self, name: str) -> TenantSpec:
        spec = self.server.node.tenants.get(name)
        if spec is None:
            known = ", ".join(self.server.node.tenants) or "none"
            raise Unknown(f"there is no tenant {name!r}; the tenants are: {known}")
        return spec

    def _peer(self, pid: int, name: str) -> Peer | None:
        from scheduler_backend.peers import start_time

        if pid in self.registrations.get(name, Registration()).peers:
            return self.registrations[name].peers[pid]
        peer = Peer.of_pid(pid, start_time(pid))
        if peer is not None:
            self._watch(peer, name)
        return peer

    def _watch(self, peer: Peer, name: str) -> None:
        def ended() -> None:
            registration = self.registrations.get(name)
            if registration is None or registration.peers.get(peer.pid) is not peer:
                return
            self._ending = True  # a thousand may end in one turn of the loop, and to write it down takes a millisecond
            try:
                self._adopt(name, registration)
                self.remove(name, peer.pid)
            finally:
                self._ending = False

        peer.watch(self.server.loop, ended)

    def _adopt(self, name: str, registration: Registration) -> None:
        """Who registered it died, killed perhaps: its processes that live on keep the tenant for themselves."""
        from scheduler_backend.peers import start_time

        for client in self.server.endpoints[name].by_nonce.values():
            pid = client.peer.pid if client.peer is not None else client.proven_pid
            if pid and pid not in registration.peers:
                peer = Peer.of_pid(pid, start_time(pid))
                if peer is not None:
                    self._watch(peer, name)
                    registration.peers[pid] = peer

    def _remove(self, name: str) -> None:
        for peer in self.registrations.pop(name).peers.values():
            peer.close()
        owner = self.server.endpoints[name].person
        if owner is not None and not is_administrator(owner):
            self._debts.add(owner, self.server.debt_ns(name), time.monotonic_ns())
        self.server.stop_tenant(name)
        self.save()
