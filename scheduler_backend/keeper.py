"""What the daemon keeps of its tenants over a restart, and why each is there: state.json is written from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler_backend.endpoint import Endpoint
from scheduler_backend.peers import Peer
from scheduler_backend.persist import EPOCH_BLOCK, Saved, StateDir, clients_text
from scheduler_backend.server import Server


@dataclass
class Registration:
    """Why a tenant is there."""

    lasting: bool = False  # until it is deleted, or gone from the config file
    configured: bool = False
    share: bool = False  # lasting, and made known by its name
    peers: dict[int, Peer] = field(default_factory=dict)  # processes that registered it for their lifetime


class Keeper:
    """Writes what there is whenever it is told to; where that fails, nothing counts as reserved by it."""

    def __init__(
        self, server: Server, state_dir: StateDir, reserved_epoch: int, registrations: Mapping[str, Registration]
    ) -> None:
        self.server = server
        self.state_dir = state_dir
        self.registrations = registrations
        self._reserved_epoch = reserved_epoch

    def write(self) -> None:
        """Write state.json, with epochs reserved ahead."""
        epoch, reserved = self.server.node.epochs.last, self._reserved_epoch
        if epoch + EPOCH_BLOCK // 2 > reserved:
            reserved = epoch + EPOCH_BLOCK
        clients = [_kept(endpoint) for endpoint in self.server.endpoints.values()]
        pids = {
            name: {pid: peer.start_time for pid, peer in registration.peers.items()}
            for name, registration in self.registrations.items()
            if registration.peers and not registration.lasting
        }
        tenants = [
            spec
            for name, spec in self.server.node.tenants.items()
            if name in self.registrations and (self.registrations[name].lasting or self.registrations[name].peers)
        ]
        owners = {name: one.owner for name, one in self.server.endpoints.items() if one.owner is not None}
        shares = [name for name, registration in self.registrations.items() if registration.share]
        saved = Saved(reserved, self.server.incarnation, tenants, pids, [], owners, shares)
        if self.state_dir.save(saved, clients):
            self._reserved_epoch = reserved

    def runs_short(self) -> bool:
        """Return whether more epochs have to be reserved soon, again where the last try failed."""
        return self.server.node.epochs.last + EPOCH_BLOCK // 2 > self._reserved_epoch


def _kept(endpoint: Endpoint) -> str:
    """A tenant's clients as state.json has them, made anew where one came or went."""
    if not endpoint.kept:
        endpoint.kept = clients_text(
            [
                (
                    client.tenant,
                    client.nonce,
                    client.peer.pid if client.peer else 0,
                    client.peer.start_time if client.peer else 0,
                )
                for client in endpoint.by_nonce.values()
            ]
        )
    return endpoint.kept
