"""All GPUs of a node: one token machine each, one memory account per tenant and GPU, and who is who.

Routes events to the machines and merges what they want. A tenant has a seat at each of its GPUs; a client belongs to
one tenant for good. Tenants with several GPUs are gangs (gang.py): they are decided after each event, with all machines
in view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler_backend.core import events as ev
from scheduler_backend.core.gang import Gangs
from scheduler_backend.core.ledger import Account
from scheduler_backend.core.machine import TokenMachine
from scheduler_backend.core.moves import Epochs
from scheduler_backend.core.policy import Policy
from scheduler_backend.core.tenant import TenantSpec


class Node:
    """The whole pure daemon: `handle(event, now_ns) -> actions`."""

    def __init__(self, gpu_count: int, policy: Policy, last_epoch: int = 0, now_ns: int = 0) -> None:
        self.policy = policy
        self.epochs = Epochs(last_epoch)
        self.machines = [TokenMachine(gpu, policy, self.epochs, now_ns) for gpu in range(gpu_count)]
        self.tenants: dict[str, TenantSpec] = {}
        self.accounts: dict[tuple[str, int], Account] = {}
        self.clients: dict[int, tuple[str, tuple[int, ...]]] = {}  # client -> tenant, the GPUs it sees
        self.gangs = Gangs(list(self.machines), self._direct)
        self._directed: list[ev.Action] = []
        self._wakes = [0] * gpu_count
        self._refusing: dict[tuple[str, int], int] = {}  # accounts where a refusal waits -> when it is due
        self._wake_ns = 0
        self._now_ns = now_ns

    def handle(self, event: ev.Event, now_ns: int) -> list[ev.Action]:
        """Take one event; returns what to do, in order. Raises RemoteProtocolError: the client's fault."""
        kind = type(event)
        if kind in ev.MEMORY:
            return self._said_when(self._memory(event, max(now_ns, self._now_ns)))  # type: ignore[arg-type]
        now_ns = self._now_ns = max(now_ns, self._now_ns)
        if kind is ev.TokenReturned or kind is ev.TokenAsked or kind is ev.TokenRenewed or kind is ev.Used:
            gpu = self._gpu_of(event)  # type: ignore[arg-type]
            if kind is ev.TokenAsked or (kind is ev.TokenReturned and event.want_more):  # type: ignore[union-attr]
                self.gangs.asked(self.clients[event.client][0], gpu)  # type: ignore[union-attr]
            actions = self._to_machine(gpu, event, now_ns)
        elif isinstance(event, ev.Carried | ev.Weighed):
            actions = self._to_machine(event.gpu, event, now_ns)
        elif kind is ev.Tick:
            actions = self._tick(event, now_ns)
        elif isinstance(event, ev.ClientJoined):
            actions = self._join(event, now_ns)
        elif isinstance(event, ev.ClientDied):
            actions = self._die(event, now_ns)
        elif isinstance(event, ev.TenantAdded | ev.TenantChanged):
            actions = self._promise(event, now_ns)
        elif isinstance(event, ev.LessWanted):
            actions = self._recall(event.tenant, event.memory_bytes, now_ns)
        elif isinstance(event, ev.TenantRemoved):
            actions = self._remove(event, now_ns)
        else:
            actions = self._to_machines(range(len(self.machines)), event, now_ns)
        if self.gangs.gangs:
            self.gangs.settle(now_ns)
        if self._directed:
            actions += self._directed
            self._directed = []
        return self._said_when(actions)

    def _memory(self, event: ev.MemoryAsked | ev.MemoryReleased, now_ns: int) -> list[ev.Action]:
        """No machine hears of it, and none's time passes: a prepared hand-over may be carried out meanwhile."""
        key = self._account_of(event)
        account = self.accounts[key]
        if isinstance(event, ev.MemoryAsked):
            return self._noted(key, account.ask(event, now_ns))
        return self._noted(key, account.release(event, now_ns))

    def _said_when(self, actions: list[ev.Action]) -> list[ev.Action]:
        """The actions, and when to come back where that has changed."""
        wake_ns = self._next_wake()
        if wake_ns != self._wake_ns:
            self._wake_ns = wake_ns
            actions.append(ev.WakeAt(wake_ns))
        return actions

    def _next_wake(self) -> int:
        wakes = [wake_ns for wake_ns in self._wakes if wake_ns]
        wakes += self._refusing.values()
        return min(wakes, default=0)

    def _noted(self, key: tuple[str, int], actions: list[ev.Action]) -> list[ev.Action]:
        """Remember whether a refusal waits in this account; passes the actions on."""
        account = self.accounts.get(key)
        if account is not None and account.wake_ns:
            self._refusing[key] = account.wake_ns
        else:
            self._refusing.pop(key, None)
        return actions

    def _to_machine(self, gpu: int, event: ev.Event, now_ns: int) -> list[ev.Action]:
        return self._without_wake(gpu, self.machines[gpu].handle(event, now_ns))

    def _without_wake(self, gpu: int, actions: list[ev.Action]) -> list[ev.Action]:
        wake = actions.pop()
        assert isinstance(wake, ev.WakeAt)
        self._wakes[gpu] = wake.at_ns
        return actions

    def _direct(self, gpu: int, do: Callable[[], None]) -> None:
        """Act in one machine for a gang."""
        self._directed += self._without_wake(gpu, self.machines[gpu].direct(do, self._now_ns))

    def _to_machines(self, gpus: Sequence[int], event: ev.Event, now_ns: int) -> list[ev.Action]:
        return [action for gpu in gpus for action in self._to_machine(gpu, event, now_ns)]

    def _gpu_of(
        self, event: ev.TokenAsked | ev.TokenReturned | ev.TokenRenewed | ev.Used | ev.MemoryAsked | ev.MemoryReleased
    ) -> int:
        known = self.clients.get(event.client)
        if known is None or event.gpu not in known[1]:
            raise ev.RemoteProtocolError(f"client {event.client} has no share of GPU {event.gpu}")
        return event.gpu

    def _account_of(self, event: ev.MemoryAsked | ev.MemoryReleased) -> tuple[str, int]:
        gpu = self._gpu_of(event)
        return self.clients[event.client][0], gpu

    def _tick(self, event: ev.Event, now_ns: int) -> list[ev.Action]:
        due = [gpu for gpu, wake_ns in enumerate(self._wakes) if wake_ns and wake_ns <= now_ns]
        actions = self._to_machines(due, event, now_ns)
        for key, wake_ns in list(self._refusing.items()):
            if wake_ns <= now_ns:
                actions += self._noted(key, self.accounts[key].settle(now_ns))
        return actions

    def _join(self, event: ev.ClientJoined, now_ns: int) -> list[ev.Action]:
        if event.tenant not in self.tenants:
            raise ev.RemoteProtocolError(f"tenant {event.tenant} is gone")
        spec = self.tenants[event.tenant]
        gpus = tuple(gpu for gpu in event.gpus if gpu in spec.gpus)
        event = event._replace(gpus=gpus)
        _, seen = self.clients.get(event.client, ("", ()))
        self.clients[event.client] = (event.tenant, gpus)
        memory = dict(event.memory)
        for gpu in gpus:
            self.accounts[event.tenant, gpu].join(event.client, memory.get(gpu, 0))
        actions: list[ev.Action] = [ev.Welcome(event.client), *self._to_machines(gpus, event, now_ns)]
        return actions + self._leave(event.client, event.tenant, [gpu for gpu in seen if gpu not in gpus], now_ns)

    def _leave(self, client: int, tenant: str, gpus: Sequence[int], now_ns: int) -> list[ev.Action]:
        """It has nothing on these GPUs any more."""
        actions = self._to_machines(gpus, ev.ClientDied(client), now_ns)
        for gpu in gpus:
            actions += self._noted((tenant, gpu), self.accounts[tenant, gpu].leave(client, now_ns))
        return actions

    def _die(self, event: ev.ClientDied, now_ns: int) -> list[ev.Action]:
        tenant, gpus = self.clients.pop(event.client, ("", ()))
        if not tenant:  # one of before a restart, which never said Hello
            return self._to_machines(range(len(self.machines)), event, now_ns)
        return self._leave(event.client, tenant, gpus, now_ns)

    def _promise(self, event: ev.TenantAdded | ev.TenantChanged, now_ns: int) -> list[ev.Action]:
        spec = event.spec
        self.tenants[spec.name] = spec
        if isinstance(event, ev.TenantAdded):
            self.gangs.add(spec)
        actions: list[ev.Action] = []
        for gpu in spec.gpus:
            account = self.accounts.setdefault((spec.name, gpu), Account(gpu, spec.memory_bytes, self.policy.recall_ns))
            account.limit_bytes = spec.memory_bytes
            actions += self._noted((spec.name, gpu), account.settle(now_ns))
        if spec.memory_bytes:
            actions += self._recall(spec.name, spec.memory_bytes, now_ns)
        actions += self._to_machines(spec.gpus, event, now_ns)
        return actions + [ev.Welcome(client) for client, (name, _) in self.clients.items() if name == spec.name]

    def _recall(self, tenant: str, most_bytes: int, now_ns: int) -> list[ev.Action]:
        actions: list[ev.Action] = []
        for gpu in self.tenants[tenant].gpus:
            actions += self.accounts[tenant, gpu].recall(most_bytes, now_ns)
        return actions

    def _remove(self, event: ev.TenantRemoved, now_ns: int) -> list[ev.Action]:
        spec = self.tenants.pop(event.name)
        self.gangs.remove(event.name)
        self.clients = {client: known for client, known in self.clients.items() if known[0] != event.name}
        for gpu in spec.gpus:
            del self.accounts[event.name, gpu]
            self._noted((event.name, gpu), [])
        return self._to_machines(spec.gpus, event, now_ns)

    def check(self) -> None:
        """Assert the invariants of all machines and accounts."""
        for machine in self.machines:
            machine.check()
        self.gangs.check()
        for account in self.accounts.values():
            account.check()
        for (tenant, gpu), account in self.accounts.items():
            assert all(self.clients.get(client, ("", ()))[0] == tenant for client in account.held), (tenant, gpu)
