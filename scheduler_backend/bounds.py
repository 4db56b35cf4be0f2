"""The daemon's fixed limits, each once: of a tenant's sockets, and of its HTTP doors. Pure.

A bound of a tenant is a whole number with a unit and a meaning; BOUNDS has all of them, for documents and tests.
"""

from __future__ import annotations

from typing import NamedTuple

from libhook.core import lib
from scheduler_backend.http_door import DoorBounds


class Bound(NamedTuple):
    """One of them."""

    name: str
    value: int
    unit: str
    meaning: str


BOUNDS: list[Bound] = []


def _bound(name: str, value: int, unit: str, meaning: str) -> int:
    BOUNDS.append(Bound(name, value, unit, meaning))
    return value


# --- connections of a tenant ------------------------------------------------------------------------------------------
CONNECTIONS_A_SECOND = _bound(
    "CONNECTIONS_A_SECOND", 50, "a second", "new connections of a tenant; others wait in the kernel's queue"
)
CONNECTIONS_AT_ONCE = _bound("CONNECTIONS_AT_ONCE", 512, "connections", "that a tenant may make in one burst")
MOST_STANDING = _bound(
    "MOST_STANDING",
    512,
    "connections",
    "of a tenant that stand; twice its processes, as all may come back before the old ones end",
)
MOST_CLIENTS = _bound("MOST_CLIENTS", int(lib.CARRIER_OF_ACCOUNT), "processes", "of a tenant that said Hello")
BACKLOG = _bound("BACKLOG", 512, "connections", "of a tenant that wait in the kernel's queue to be taken")
ACCEPTED_A_TURN = _bound("ACCEPTED_A_TURN", 4, "connections", "of a tenant that are taken in one turn of the loop")
HANDSHAKE_SECONDS = _bound("HANDSHAKE_SECONDS", 5, "seconds", "until a connection must have said greeting and READY")

# --- what comes on them -----------------------------------------------------------------------------------------------
MESSAGE_BYTES = _bound("MESSAGE_BYTES", int(lib.WIRE_MAX_SIZE), "bytes", "of a message; it has one frame")
READ_BYTES = _bound("READ_BYTES", 2048, "bytes", "read of a connection at a time, and kept until they are heard")
MESSAGES_A_TURN = _bound("MESSAGES_A_TURN", 16, "messages", "of a tenant that are heard in one turn of the loop")
MESSAGES_A_SECOND = _bound(  # who takes and gives back memory 400 times a second says 800
    "MESSAGES_A_SECOND", 1000, "a second", "messages, heartbeats and reads without either of a tenant"
)
MESSAGES_AT_ONCE = _bound("MESSAGES_AT_ONCE", 1000, "messages", "of a tenant in one burst")
HELLOS_A_SECOND = _bound(  # each costs as much as twenty other messages
    "HELLOS_A_SECOND", 20, "a second", "Hellos of a tenant that are answered"
)
HELLOS_AT_ONCE = _bound("HELLOS_AT_ONCE", 300, "Hellos", "of a tenant in one burst")
# All tenants together; each of them, and those of one user as one, surely has an equal part.
ALL_MESSAGES_A_SECOND = _bound("ALL_MESSAGES_A_SECOND", 12000, "a second", "messages of all tenants, as above")
ALL_MESSAGES_AT_ONCE = _bound("ALL_MESSAGES_AT_ONCE", 12000, "messages", "of all tenants in one burst")
ALL_HELLOS_A_SECOND = _bound("ALL_HELLOS_A_SECOND", 60, "a second", "Hellos of all tenants that are answered")
ALL_HELLOS_AT_ONCE = _bound("ALL_HELLOS_AT_ONCE", 2000, "Hellos", "of all tenants in one burst")
COMPLAINTS_A_SECOND = _bound("COMPLAINTS_A_SECOND", 5, "a second", "lines of the log about a tenant")

# --- what goes out on them --------------------------------------------------------------------------------------------
UNSENT_BYTES = _bound(
    "UNSENT_BYTES", 8192, "bytes", "that are kept for a connection whose kernel buffer is full; then it is closed"
)
SEND_BUFFER_BYTES = _bound("SEND_BUFFER_BYTES", 32768, "bytes", "of the kernel's buffer of a connection (SO_SNDBUF)")

# --- page connections of a tenant -------------------------------------------------------------------------------------
PAGES_A_SECOND = _bound("PAGES_A_SECOND", 50, "a second", "new page connections of a tenant; others wait in the queue")
PAGES_AT_ONCE = _bound("PAGES_AT_ONCE", 512, "connections", "to the page that a tenant may make in one burst")
MOST_PAGES = _bound("MOST_PAGES", 512, "connections", "to the page of a tenant that stand; more are closed at once")
MOST_PEERS = _bound("MOST_PEERS", 512, "nonces", "of a tenant under which a page was asked for, and no Hello said yet")
MOST_PEERS_OF_ONE = _bound("MOST_PEERS_OF_ONE", 4, "nonces", "of them of one process; then the oldest makes room")
PAGE_BACKLOG = _bound("PAGE_BACKLOG", 128, "connections", "to the page of a tenant that wait in the kernel's queue")

# --- users -----------------------------------------------------------------------------------------------------------
MOST_TENANTS = _bound("MOST_TENANTS", 32, "tenants", "of a user at a time, where `[users]` says no number")
MOST_REGISTRANTS = _bound("MOST_REGISTRANTS", 128, "processes", "for whose lifetime one tenant was registered")
MOST_REGISTRATIONS = _bound(
    "MOST_REGISTRATIONS", 1024, "registrations", "by processes of a user, of all his tenants; each costs a descriptor"
)
USERS_PART = _bound("USERS_PART", 4, "th part", "of the daemon's descriptors for the tenants of a user; more wait")

# --- the lock of a card -----------------------------------------------------------------------------------------------
HOLDER_QUESTIONS_A_SECOND = _bound(
    "HOLDER_QUESTIONS_A_SECOND", 20, "a second", "questions of whoever is on the machine, whose the cards are"
)
HOLDER_QUESTIONS_AT_ONCE = _bound("HOLDER_QUESTIONS_AT_ONCE", 40, "questions", "of that kind in one burst")

# --- HTTP ------------------------------------------------------------------------------------------------------------
# Whoever reaches the metrics port: each connection is answered once.
METRICS_DOOR = DoorBounds(
    connections=_bound(
        "METRICS_DOOR.connections", 64, "connections", "to the metrics port; then the oldest makes room"
    ),
    of_one=64,  # behind one address there may be many
    seconds=_bound("METRICS_DOOR.seconds", 10, "seconds", "until a connection to the metrics port is ended"),
    grace_seconds=_bound("METRICS_DOOR.grace_seconds", 1, "seconds", "in which none is ended to make room"),
    bytes=_bound("METRICS_DOOR.bytes", 8 << 10, "bytes", "that one may say"),
    a_second=_bound("METRICS_DOOR.a_second", 20, "a second", "connections of an address; more of them wait"),
    at_once=_bound("METRICS_DOOR.at_once", 200, "connections", "of an address in one burst"),
    all_a_second=_bound("METRICS_DOOR.all_a_second", 60, "a second", "connections of all addresses; more of them wait"),
    all_at_once=_bound("METRICS_DOOR.all_at_once", 300, "connections", "of all addresses in one burst"),
)
METRICS_BACKLOG = _bound("METRICS_BACKLOG", 128, "connections", "to the metrics port that wait in the kernel")
METRICS_SECONDS = 0.1  # between two renderings: whoever asks meanwhile gets the next one
METRICS_TIMES = 20  # of what one took are between two at least: it grows with tenants and cards
# Whoever may open the control socket.
CONTROL_DOOR = DoorBounds(
    connections=_bound("CONTROL_DOOR.connections", 128, "connections", "to the control socket"),
    of_one=_bound("CONTROL_DOOR.of_one", 48, "connections", "of a user; more are refused at once"),
    seconds=_bound("CONTROL_DOOR.seconds", 60, "seconds", "until a connection to the control socket is ended"),
    grace_seconds=_bound("CONTROL_DOOR.grace_seconds", 5, "seconds", "in which none is ended to make room"),
    bytes=_bound("CONTROL_DOOR.bytes", 80 << 10, "bytes", "that one may say"),
    a_second=_bound("CONTROL_DOOR.a_second", 100, "a second", "connections of a user; more of them wait"),
    at_once=_bound("CONTROL_DOOR.at_once", 200, "connections", "of a user in one burst"),
    all_a_second=_bound("CONTROL_DOOR.all_a_second", 300, "a second", "connections of all users; more of them wait"),
    all_at_once=_bound("CONTROL_DOOR.all_at_once", 600, "connections", "of all users in one burst"),
)
CHANGES_A_SECOND = _bound(  # each makes or ends sockets, and is written down
    "CHANGES_A_SECOND", 20, "a second", "tenants that a user makes, changes or removes; more of them wait"
)
CHANGES_AT_ONCE = _bound("CHANGES_AT_ONCE", 100, "changes", "of tenants by a user in one burst")
STATES_MS_A_SECOND = _bound(
    "STATES_MS_A_SECOND", 50, "ms a second", "of the loop's time for a user's GET /state; more of them wait"
)
STATES_MS_AT_ONCE = _bound("STATES_MS_AT_ONCE", 250, "ms", "of that in one burst")
CONTROL_BACKLOG = _bound("CONTROL_BACKLOG", 128, "connections", "to the control socket that wait in the kernel")
CONTROL_BODY_BYTES = _bound("CONTROL_BODY_BYTES", 64 << 10, "bytes", "of the body of a request")
HTTP_RECORDS_A_SECOND = _bound("HTTP_RECORDS_A_SECOND", 1, "a second", "records of the log about what HTTP got wrong")


def listing() -> str:
    """All of them as a Markdown table, for docs/security.md."""
    rows = [f"| `{one.name}` | {one.value} {one.unit} | {one.meaning} |" for one in BOUNDS]
    return "\n".join(["| limit | value | of what |", "|---|---|---|", *rows]) + "\n"
