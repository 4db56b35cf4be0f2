"""What the Trace Event Format asks of each event (Chromium's "Trace Event Format" document), as a check."""

from __future__ import annotations

from typing import Any

NEEDED = {  # phase -> fields that it must have, beside those of every event
    "X": {"ts": (int, float), "dur": (int, float)},
    "i": {"ts": (int, float), "s": str},
    "C": {"ts": (int, float), "args": dict},
    "M": {"args": dict},
}


def check(document: dict[str, Any]) -> int:
    """Assert that the document is valid; returns how many events it has."""
    assert document["displayTimeUnit"] in ("ms", "ns")
    named: set[tuple[int, int]] = set()
    for event in document["traceEvents"]:
        phase = event["ph"]
        assert phase in NEEDED, event
        assert isinstance(event["name"], str)
        assert event["name"]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        for field, kind in NEEDED[phase].items():
            assert isinstance(event[field], kind), event
        if phase == "X":
            assert event["dur"] >= 0
        if phase == "i":
            assert event["s"] in ("g", "p", "t")
        if phase == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if phase == "M":
            assert event["name"] in ("process_name", "thread_name")
            named.add((event["pid"], event["tid"]))
        elif phase != "C":
            assert (event["pid"], event["tid"]) in named, f"a thread without a name: {event}"
    return len(document["traceEvents"])
