"""A recorded run becomes a valid Chrome trace that says who held the token when."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from gemini.chrome import Exporter
from tests.gemini import chrome_schema

FIELDS = {
    "Handed": ("tenant", "gpu", "epoch", "wait_ns", "gap_ns"),
    "Charged": ("tenant", "gpu", "epoch", "held_ns", "overuse_ns", "busy_ns", "launches"),
    "Revoke": ("client", "gpu", "epoch", "reason"),
    "LeaseLost": ("tenant", "client", "gpu", "epoch"),
    "Overran": ("tenant", "client", "gpu", "epoch"),
    "MemReply": ("client", "gpu", "serial", "granted", "credit_bytes", "limit_bytes", "used_bytes"),
}


class ClientJoined(NamedTuple):
    tenant: str
    client: int


class ClientDied(NamedTuple):
    client: int


class Tick(NamedTuple):
    pass


class Entry(NamedTuple):
    now_ns: int
    event: Any
    actions: list[tuple[str, list[Any]]]


def exported(*entries: Entry) -> list[dict[str, Any]]:
    exporter = Exporter([{"name": "H200"}], 1000, FIELDS)
    document = {"displayTimeUnit": "ms", "traceEvents": list(exporter.events(entries))}
    chrome_schema.check(json.loads(json.dumps(document)))
    return document["traceEvents"]  # type: ignore[return-value]


def slices(events: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    return [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]


def test_a_grant_is_a_slice_from_hand_over_to_charge() -> None:
    events = exported(
        Entry(11_000, Tick(), [("Handed", ["a", 0, 7, 4_000, 0])]),
        Entry(31_000, Tick(), [("Charged", ["a", 0, 7, 20_000, 0, 15_000, 3])]),
    )
    assert slices(events) == [("waiting", 6.0, 4.0), ("token", 10.0, 20.0)]


def test_a_token_still_held_at_the_end_is_shown() -> None:
    events = exported(Entry(11_000, Tick(), [("Handed", ["a", 0, 7, 0, 0])]), Entry(21_000, Tick(), []))
    assert slices(events) == [("token", 10.0, 10.0)]


def test_revocations_ends_and_memory_are_shown_with_their_tenant() -> None:
    events = exported(
        Entry(2_000, ClientJoined("a", 5), []),
        Entry(3_000, Tick(), [("MemReply", [5, 0, 1, True, 0, 100, 64])]),
        Entry(4_000, Tick(), [("Revoke", [5, 0, 7, 2])]),
        Entry(5_000, ClientDied(5), [("LeaseLost", ["a", 5, 0, 7])]),
    )
    names = [event["name"] for event in events if event["ph"] in "iC"]
    assert names == ["memory of a", "revoked", "process ended", "lease lost"]
    assert next(event for event in events if event["name"] == "revoked")["args"]["reason"] == "preempted"


def test_each_tenant_has_a_named_thread_per_gpu() -> None:
    events = exported(
        Entry(2_000, Tick(), [("Handed", ["a", 0, 1, 0, 0]), ("Charged", ["a", 0, 1, 1, 0, 0, 0])]),
        Entry(3_000, Tick(), [("Handed", ["b", 0, 2, 0, 0]), ("Charged", ["b", 0, 2, 1, 0, 0, 0])]),
    )
    threads = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    assert sorted(threads) == ["a", "b"]
    assert len(set(threads.values())) == 2


def test_who_held_where_a_part_begins_has_held_since_its_grant() -> None:
    exporter = Exporter([{"name": "card"}], 1000, FIELDS)
    exporter.begins_with({5: "a"}, {("a", 0): 2000})
    charged = ["a", 0, 3, 5000, 0, 0, 1]
    found = list(
        exporter.events([Entry(7000, Tick(), [("Revoke", [5, 0, 3, 2])]), Entry(8000, Tick(), [("Charged", charged)])])
    )
    (token,) = [event for event in found if event["name"] == "token"]
    assert (token["ts"], token["dur"]) == (1.0, 6.0)
    assert [event["args"]["reason"] for event in found if event["name"] == "revoked"] == ["preempted"]
