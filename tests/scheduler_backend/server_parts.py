"""The parts of the server without the server: each is given those that it needs, and a test calls it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from scheduler_backend.context_cost import ContextCost
from scheduler_backend.core import events as ev
from scheduler_backend.core.node import Node
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.doors import Doors
from scheduler_backend.endpoint import Client, Endpoint
from scheduler_backend.handover import Handovers
from scheduler_backend.intake import Intake
from scheduler_backend.outbox import Outbox
from scheduler_backend.presence import Presence
from scheduler_backend.roster import Roster
from scheduler_backend.tally import Tallies
from scheduler_backend.trace import Recorder
from tests.scheduler_backend.rig import PATIENCE_S
from tests.scheduler_backend.serve import GPUS


class ServerParts:
    """In one event loop, of which they have descriptors and timers until close()."""

    def __init__(self, folder: Path) -> None:
        self.loop, self.folder = asyncio.get_running_loop(), folder
        self.recorder = Recorder(None, {})
        self.node = self.recorder.node = Node(len(GPUS), Policy(), 1, time.monotonic_ns())
        self.roster = Roster()
        self.tally = Tallies(len(GPUS), Policy().window_ns, self.roster.may_complain)
        self.contexts = ContextCost(GPUS)
        self.outbox = Outbox(self.loop, self.node, self.roster, self.tally, 1)
        self.handovers = Handovers(self.loop, self.node, self.recorder, self.roster, self.tally, self.outbox)
        self.presence = Presence(self.loop, GPUS, self.roster, self.tally, self.outbox, self.handovers)
        self.intake = Intake(
            self.loop, self.roster, self.tally, self.contexts, self.outbox, self.handovers, self.presence
        )
        self.doors = Doors(self.loop, self.roster)

    def tenant(self, name: str, gpus: tuple[int, ...] = (0,), owner: int | None = None) -> Endpoint:
        """A tenant that nobody reads yet."""
        endpoint = Endpoint(name, len(self.roster.endpoints) + 1, self.folder / name, 1, owner)
        self.roster.endpoints[name] = endpoint
        spec = TenantSpec(name, 100_000, gpus=gpus)
        self.tally.add(spec)
        self.intake.join(endpoint)
        self.handovers.handle(ev.TenantAdded(spec))
        return endpoint

    def client(self, endpoint: Endpoint, number: int = 1) -> Client:
        """A process of it without a connection, which the node knows."""
        client = Client(number, endpoint.name, nonce=100 + number)
        client.gpus, client.devices = {0: 0}, {0: 0}
        endpoint.by_nonce[client.nonce] = self.roster.clients[number] = client
        self.handovers.handle(ev.ClientJoined(endpoint.name, number, (0,)))
        return client

    def close(self) -> None:
        self.presence.close()
        self.handovers.end()
        for endpoint in self.roster.endpoints.values():
            self.intake.end(endpoint)
            endpoint.close()
        self.handovers.close()


@contextlib.asynccontextmanager
async def server_parts(folder: Path) -> AsyncIterator[ServerParts]:
    """The parts, as long as they are wanted."""
    parts = ServerParts(folder)
    try:
        yield parts
    finally:
        parts.close()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until this is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)
