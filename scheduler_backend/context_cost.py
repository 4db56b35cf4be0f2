"""What the contexts of a tenant take of a card's memory, which is not asked for by any allocation."""

from __future__ import annotations

from libhook.core import lib
from scheduler_backend.devices import Gpu, used_by
from scheduler_backend.endpoint import Client

MOST_LOOKS = 64  # at a card for what a tenant's context takes: where it cannot say, it is not asked for ever


class ContextCost:
    """Of all tenants and cards. Measured with a tenant's first context, which is all that it can spoil."""

    def __init__(self, gpus: list[Gpu]) -> None:
        self.gpus = gpus
        self.bytes: dict[tuple[str, int], int] = {}  # what a context of a tenant takes of a card
        self.looks: dict[tuple[str, int], int] = {}  # how often the card was asked for it

    def of(self, client: Client, gpu: int, held: int) -> int:
        """Return what a context of its tenant takes of this card, 0: unknown; so much it held without one.

        Before a client has made one it asks what is known: that it was looked for in vain is said, too.
        """
        account = client.tenant, gpu
        known, looks = self.bytes.get(account, 0), self.looks.get(account, 0)
        if held == lib.WIRE_CONTEXT_KNOWN:
            return known or (lib.WIRE_CONTEXT_KNOWN if looks else 0)
        if not known and looks < MOST_LOOKS:
            self.looks[account] = looks + 1
            known = self.bytes[account] = max(0, used_by(self.gpus[gpu], client.proven_pid) - held)
        return known

    def forget(self, tenant: str) -> None:
        """Drop what is known of a tenant that is gone, or was never asked for."""
        for gpu in range(len(self.gpus)):
            self.bytes.pop((tenant, gpu), None)
            self.looks.pop((tenant, gpu), None)
