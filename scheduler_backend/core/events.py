"""What goes into the token machine and what comes out: one frozen tuple each, made of integers, strings and booleans.

Events say what happened, in the words of libhook/core/wire.h where a message is behind them; a client is the integer
that the shell gave it when it connected. Actions say what is to be done. The trace stores both as they stand here, by
the names in EVENTS and ACTIONS, so a field may be added (with a default), but its meaning may not change.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler_backend.core.tenant import TenantSpec

# Reasons of a Revoke, the numbers of enum wire_revoke_reason.
NEWCOMER, PREEMPT, LIMIT, LEASE, SHUTDOWN = 1, 2, 3, 4, 5


# --- events ---------------------------------------------------------------------------------------------------------
class TenantAdded(NamedTuple):
    """A promise was made; the shell has validated it."""

    spec: TenantSpec


class TenantChanged(NamedTuple):
    """The promise of a tenant with this name changed (its GPUs stay)."""

    spec: TenantSpec


class LessWanted(NamedTuple):
    """A tenant is to have no more memory than that of a GPU, and uses more: its processes are asked for what they hold
    unused."""

    tenant: str
    memory_bytes: int


class TenantRemoved(NamedTuple):
    """The tenant is gone, and so are its clients."""

    name: str


class ClientJoined(NamedTuple):
    """A process said Hello. Said again by a client that is known, it replaces what was believed of it."""

    tenant: str
    client: int
    gpus: tuple[int, ...]  # those of the tenant's GPUs that it sees
    held: tuple[tuple[int, int], ...] = ()  # (gpu, epoch) whose work may still be running
    memory: tuple[tuple[int, int], ...] = ()  # (gpu, bytes) that it has allocated or holds as credit


class ClientDied(NamedTuple):
    """The process ended, or its connection is gone for good: nothing of it runs any more."""

    client: int


class ClientsKnown(NamedTuple):
    """After a restart: these clients of before may still hold a token; grant nothing until each spoke or died."""

    clients: tuple[tuple[str, int], ...]  # (tenant, client)
    until_ns: int  # by then every lease of before has run out


class TokenAsked(NamedTuple):
    """A process wants to launch."""

    client: int
    gpu: int
    burst_ns: int = 0  # estimated GPU time of the next burst; 0: unknown
    gap_ns: int = 0  # estimated idle time after it; 0: unknown


class TokenRenewed(NamedTuple):
    """A process says that it is alive and goes on (draining: its gate is closed and work still runs).

    foreseen: for no longer yet than its work in flight may take, so that it need wait for nobody.
    """

    client: int
    gpu: int
    epoch: int
    draining: bool = False
    foreseen: bool = False


class TokenReturned(NamedTuple):
    """A process has drained. want_more: it asks for the next token in the same breath."""

    client: int
    gpu: int
    epoch: int
    want_more: bool = False
    idle: bool = False
    unconfirmed: bool = False
    busy_ns: int = 0
    launches: int = 0
    burst_ns: int = 0
    gap_ns: int = 0
    held_ns: int = 0  # receipt of the Grant to drain confirmed, by the client's clock
    followed: bool = False  # as of Carried


class Used(NamedTuple):
    """A process says what it has used so far, by its own belief: counts of all of its life, which never go back.

    waited_ns: for which work of it was ready and the card did others'.
    """

    client: int
    gpu: int
    epoch: int
    busy_ns: int
    waited_ns: int = 0


class Weighed(NamedTuple):
    """A GPU says what the processes of a tenant used of it, in the span that ends now; its samples are coarse."""

    tenant: str
    gpu: int
    card_ns: int
    span_ns: int


class Carried(NamedTuple):
    """The order of the last Prepare was carried out, at the time of this event: holder_epoch drained, epoch began.

    followed: the next event is at hand (as a rule the Return of that holder, or what was carried out behind this), so
    that what comes next is decided then.
    """

    gpu: int
    holder_epoch: int
    epoch: int
    followed: bool = False


class MemoryAsked(NamedTuple):
    """May this process allocate `needed_bytes` (0: it only asks for the figures)?"""

    client: int
    gpu: int
    needed_bytes: int
    credit_bytes: int  # wanted beyond that, if it costs nobody anything
    serial: int  # of the message, for the answer
    exported_bytes: int = -1  # of all that it holds, what may live on when it ends; -1: it does not say


class MemoryReleased(NamedTuple):
    """These bytes are free again. recalled: this is the answer to a MemRecall. whole: so much is all that it holds."""

    client: int
    gpu: int
    freed_bytes: int
    recalled: bool = False
    whole: bool = False


class Tick(NamedTuple):
    """Time has passed; sent at the time that the last WakeAt named, or at any other."""


# --- actions --------------------------------------------------------------------------------------------------------
class Page(NamedTuple):
    """Store the epoch under which the tenant may launch on this GPU now (0: none). Before the Grant, at once."""

    tenant: str
    gpu: int
    epoch: int


class Grant(NamedTuple):
    """The token is this client's for quota_ns."""

    client: int
    gpu: int
    epoch: int
    quota_ns: int
    lease_ns: int
    cap_ns: int
    contended: bool
    joined: bool
    shared: bool = False  # others run beside it: it is charged what it uses, and says so (Used)


class Prepare(NamedTuple):
    """When the holder's epoch has drained, this tenant has the token: tell these clients, and let it be carried out.

    With `after` it stands behind the order of that epoch: it counts once that was carried out, for a holder that wanted
    more, and wanting_from_ns is then from that moment on.
    """

    gpu: int
    holder: int  # client
    holder_tenant: str
    holder_epoch: int
    tenant: str
    clients: tuple[int, ...]
    epoch: int
    quota_ns: int
    lease_ns: int
    cap_ns: int
    contended: bool
    not_before_ns: int  # a holder that drains earlier hands nothing on (0: whenever)
    wanting_from_ns: int  # nor does one that wants more at once and drains before then: it would be picked again itself
    after: int = 0  # epoch
    brief: tuple[int, ...] = ()  # those of its clients whose bursts are only a small part of a cap
    shared: bool = False  # as of Grant
    more: int = 0  # so many processes of it wait besides `clients`, and are told once it was carried out


class Unprepare(NamedTuple):
    """The order of this epoch is off, and those behind it; their epochs will not be used. 0: all of this GPU."""

    gpu: int
    epoch: int = 0


class Extend(NamedTuple):
    """The grant it holds now ends quota_ns from here, its lease lease_ns from here."""

    client: int
    gpu: int
    epoch: int
    quota_ns: int
    lease_ns: int
    cap_ns: int
    contended: bool
    shared: bool = False


class Revoke(NamedTuple):
    """Close the gate, drain, return."""

    client: int
    gpu: int
    epoch: int
    reason: int


class Welcome(NamedTuple):
    """Tell the client its limits (again)."""

    client: int


class MemReply(NamedTuple):
    """Answer to MemoryAsked."""

    client: int
    gpu: int
    serial: int
    granted: bool
    credit_bytes: int
    limit_bytes: int
    used_bytes: int


class MemRecall(NamedTuple):
    """Ask the client for up to this much unused credit."""

    client: int
    gpu: int
    wanted_bytes: int


class WakeAt(NamedTuple):
    """Come back with a Tick at now_ns (0: no need). Replaces the one before."""

    at_ns: int


class Handed(NamedTuple):
    """For the record: a tenant got the token. gap_ns: it had been free so long; wait_ns: the tenant waited so long."""

    tenant: str
    gpu: int
    epoch: int
    wait_ns: int
    gap_ns: int


class Charged(NamedTuple):
    """For the record: a grant is over and its tenant was charged held_ns for it."""

    tenant: str
    gpu: int
    epoch: int
    held_ns: int
    overuse_ns: int
    busy_ns: int
    launches: int


class LeaseLost(NamedTuple):
    """For the record: the client's lease ran out (dead, frozen or cut off); others go on."""

    tenant: str
    client: int
    gpu: int
    epoch: int


class Overran(NamedTuple):
    """For the record: a live client had not drained a whole second past its quota; the next is granted anyway."""

    tenant: str
    client: int
    gpu: int
    epoch: int


Event = (
    TenantAdded
    | TenantChanged
    | LessWanted
    | TenantRemoved
    | ClientJoined
    | ClientDied
    | ClientsKnown
    | TokenAsked
    | TokenRenewed
    | TokenReturned
    | Used
    | Weighed
    | Carried
    | MemoryAsked
    | MemoryReleased
    | Tick
)
Action = (
    Page
    | Grant
    | Prepare
    | Unprepare
    | Extend
    | Revoke
    | Welcome
    | MemReply
    | MemRecall
    | WakeAt
    | Handed
    | Charged
    | LeaseLost
    | Overran
)
EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        TenantAdded,
        TenantChanged,
        LessWanted,
        TenantRemoved,
        ClientJoined,
        ClientDied,
        ClientsKnown,
        TokenAsked,
        TokenRenewed,
        TokenReturned,
        Used,
        Weighed,
        Carried,
        MemoryAsked,
        MemoryReleased,
        Tick,
    )
}

MEMORY = (MemoryAsked, MemoryReleased)  # no token machine hears of these


class RemoteProtocolError(Exception):
    """The client broke the protocol: its connection is to be closed. Nobody else is touched."""


class LocalProtocolError(Exception):
    """We broke it: a bug. The text carries what happened before."""
