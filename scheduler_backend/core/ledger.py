"""The bytes of one tenant on one GPU: who holds how many, within the limit. The truth; the processes' books are copies.

A process reserves before it allocates and may get some credit beyond, so that small allocations cost no message. The
daemon cannot see which part of it is unused. So before anyone is refused, all siblings that hold anything are asked for
it. The refusal waits for their answers, or their death (one that ended a moment ago may not have been noticed yet), or
recall_ns: a frozen process must not freeze others. They are asked as well where their tenant is to have less than it
uses, so that what nobody uses does not keep a smaller share waiting.

A process is asked once at a time: whoever begins to wait meanwhile waits for that answer, and then for one of his own,
as the first may have given back no more than was asked for. So the recalls are as many as the answers, whoever asks.
Where an answer is owed for AGAIN x recall_ns the message may have been lost: for the next who lacks something it is
sent anew, and the answer, which may still be that to the first, is not yet his.

What a process exported may live on with a sibling when it ends. So it stays charged to the tenant as long as one is
left: nobody can see which of them has it, or that none has it any more. Who imports it later, or another tenant's,
reserves it as its own: exported memory bears a mark, which is another one after the last process went (outbox.py).
"""

from __future__ import annotations

from typing import Final

from scheduler_backend.core import events as ev

AGAIN: Final = 5
MOST_WAITING: Final = 256  # reservations of one tenant and GPU; more are refused at once, for each answer looks at all


class _Pending:
    """A reservation that does not fit yet."""

    __slots__ = ("asked", "behind", "event", "until_ns")

    def __init__(self, event: ev.MemoryAsked, asked: set[int], behind: set[int], until_ns: int) -> None:
        self.event = event
        self.asked = asked  # siblings that have not answered
        self.behind = behind  # those of them who were asked for others before: their next answer is not the one
        self.until_ns = until_ns


class Account:
    """One tenant's bytes on one GPU. Its methods return the actions to take."""

    def __init__(self, gpu: int, limit_bytes: int, recall_ns: int) -> None:
        self.gpu = gpu
        self.limit_bytes = limit_bytes  # 0: not limited; may be lowered below what is used
        self.held: dict[int, int] = {}  # client -> bytes, allocated or credit
        self.exported: dict[int, int] = {}  # client -> bytes of those, which may live on when it ends
        self.orphaned_bytes = 0  # exported by processes that have ended
        self.times_left = 0  # how often the last process went: what was exported before is charged to nobody here
        self.used_bytes = 0  # by all processes, credit included, and what they left
        self.refusals = 0
        self._recall_ns = recall_ns
        self._pending: list[_Pending] = []
        self._asked_ns: dict[int, int] = {}  # client that was asked and has not answered -> when

    @property
    def wake_ns(self) -> int:
        """When a waiting refusal is due; 0: none waits."""
        return min((pending.until_ns for pending in self._pending), default=0)

    def join(self, client: int, held_bytes: int) -> None:
        """A process came, with what it says it holds (after a reconnection; the daemon may be the one who forgot)."""
        self._asked_ns.pop(client, None)  # what it was asked on another connection it will not answer
        self._hold(client, held_bytes)

    def _hold(self, client: int, held_bytes: int) -> None:
        self.used_bytes += held_bytes - self.held.get(client, 0)
        self.held[client] = held_bytes

    def ask(self, event: ev.MemoryAsked, now_ns: int) -> list[ev.Action]:
        """Reserve, or recall siblings' credit first, or refuse."""
        if event.exported_bytes >= 0:
            self.exported[event.client] = event.exported_bytes
        reply = self._try(event)
        if reply is not None:
            return [reply]
        asked = {client for client, held in self.held.items() if held > 0 and client != event.client}
        if not asked or len(self._pending) >= MOST_WAITING:
            return [self._refuse(event)]
        behind = asked & self._asked_ns.keys()
        self._pending.append(_Pending(event, asked, behind, now_ns + self._recall_ns))
        return self._recall(asked - behind | self._again(behind, now_ns), now_ns)

    def _again(self, behind: set[int], now_ns: int) -> set[int]:
        """Those of them whose answer is owed for so long that the message may have been lost."""
        return {client for client in behind if now_ns - self._asked_ns[client] >= AGAIN * self._recall_ns}

    def recall(self, most_bytes: int, now_ns: int) -> list[ev.Action]:
        """Where more than that is used: asks all who hold something for what they do not use of it."""
        over = self.used_bytes - most_bytes
        if over <= 0:
            return []
        asked = {client for client, held in self.held.items() if held > 0}
        behind = asked & self._asked_ns.keys()
        asked = asked - behind | self._again(behind, now_ns)
        self._asked_ns.update(dict.fromkeys(asked, now_ns))
        return [ev.MemRecall(client, self.gpu, over) for client in sorted(asked)]

    def _recall(self, clients: set[int], now_ns: int) -> list[ev.Action]:
        """Ask these for what all lack who wait."""
        self._asked_ns.update(dict.fromkeys(clients, now_ns))
        missing = self.used_bytes + sum(pending.event.needed_bytes for pending in self._pending) - self.limit_bytes
        return [ev.MemRecall(client, self.gpu, missing) for client in sorted(clients)]

    def release(self, event: ev.MemoryReleased, now_ns: int) -> list[ev.Action]:
        """Bytes came back; more than were held is as many as were held. The whole: what the process says it holds."""
        client = event.client
        held = self.held.get(client, 0)
        self._hold(client, event.freed_bytes if event.whole else held - min(event.freed_bytes, held))
        if not event.recalled:
            return self.settle(now_ns)
        self._asked_ns.pop(client, None)
        holds = self.held[client] > 0
        for pending in self._pending:
            if not (holds and client in pending.behind):
                pending.asked.discard(client)
            pending.behind.discard(client)
        actions = self.settle(now_ns)
        if any(client in pending.asked for pending in self._pending):
            actions += self._recall({client}, now_ns)
        return actions

    def leave(self, client: int, now_ns: int) -> list[ev.Action]:
        """A process died: all its bytes are back but what it exported; the last one's, and what others left, too."""
        held = self.held.pop(client, 0)
        exported = min(self.exported.pop(client, 0), held)
        if self.held:
            self.orphaned_bytes += exported
            self.used_bytes -= held - exported
        else:
            self.orphaned_bytes = self.used_bytes = 0
            self.times_left += 1
        self._asked_ns.pop(client, None)
        self._pending = [pending for pending in self._pending if pending.event.client != client]
        for pending in self._pending:
            pending.asked.discard(client)
            pending.behind.discard(client)
        return self.settle(now_ns)

    def settle(self, now_ns: int) -> list[ev.Action]:
        """Answer the reservations that wait, where they fit now, or nobody is left to give anything back."""
        actions: list[ev.Action] = []
        waiting: list[_Pending] = []
        for pending in self._pending:
            reply = self._try(pending.event)
            if reply is not None:
                actions.append(reply)
            elif not pending.asked or now_ns >= pending.until_ns:
                actions.append(self._refuse(pending.event))
            else:
                waiting.append(pending)
        self._pending = waiting
        return actions

    def _try(self, event: ev.MemoryAsked) -> ev.MemReply | None:
        used = self.used_bytes
        credit = event.credit_bytes if event.needed_bytes else 0
        if self.limit_bytes and event.needed_bytes:
            left = self.limit_bytes - used - event.needed_bytes
            if left < 0:
                return None
            credit = min(credit, left // max(1, len(self.held)))
        taken = event.needed_bytes + credit
        if taken:
            self._hold(event.client, self.held.get(event.client, 0) + taken)
        return ev.MemReply(event.client, self.gpu, event.serial, True, credit, self.limit_bytes, used + taken)

    def _refuse(self, event: ev.MemoryAsked) -> ev.MemReply:
        self.refusals += 1
        return ev.MemReply(event.client, self.gpu, event.serial, False, 0, self.limit_bytes, self.used_bytes)

    def check(self) -> None:
        """Assert the invariants."""
        assert all(held >= 0 for held in self.held.values()), "a process holds less than nothing"
        assert self.used_bytes == sum(self.held.values()) + self.orphaned_bytes, "the sum is not that of what they hold"
        assert self.held or not self.orphaned_bytes, "memory of nobody"
        assert self.exported.keys() <= self.held.keys(), "a dead process has exported something"
        assert all(pending.event.client in self.held for pending in self._pending), "a dead process waits for memory"
        assert self._asked_ns.keys() <= self.held.keys(), "a dead process is to answer"
        assert all(pending.behind <= pending.asked for pending in self._pending), "behind whom it does not wait for"
