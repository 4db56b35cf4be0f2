"""Which tenants and clients the server has, and whose they are."""

from __future__ import annotations

import time

from scheduler_backend.endpoint import Client, Endpoint


class Roster:
    """Tenants by name, and their processes by number."""

    def __init__(self) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        self.clients: dict[int, Client] = {}

    def is_there(self, endpoint: Endpoint) -> bool:
        """Return whether it is still that of its tenant: one of the same name may have come since."""
        return self.endpoints.get(endpoint.name) is endpoint

    def may_complain(self, tenant: str) -> bool:
        """Spend one of the lines of the log that a tenant may fill; False: it has none left. One that is gone has."""
        endpoint = self.endpoints.get(tenant)
        return endpoint is None or endpoint.complaints.spend(time.monotonic_ns())

    def owners(self) -> dict[str, int | None]:
        """Return whose each tenant is; None: not one user's."""
        return {name: endpoint.owner for name, endpoint in self.endpoints.items()}

    def pids(self) -> dict[int, str]:
        """pid -> tenant of all processes that are known; never by what a client says of itself."""
        return {client.proven_pid: client.tenant for client in self.clients.values() if client.proven_pid}

    def descriptors_of(self, person: int | None) -> int:
        """Return how many of our descriptors the connections of a user's tenants take, about."""
        return sum(one.descriptors for one in self.endpoints.values() if one.person == person)
