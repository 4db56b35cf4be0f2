"""Devices of nodes count at once, and then once a second, however often they are written."""

from __future__ import annotations

from gemini.extender.pace import PACE_NS, Paced


class Kept:
    def __init__(self) -> None:
        self.now_ns = 10**12
        self.seen: list[object] = []
        self.paced = Paced(self, lambda: self.now_ns)

    def replace(self, kind: str, objects: object, version: int = 0) -> None:
        self.seen.append((kind, objects, version))

    def apply(self, kind: str, event: str, given: object) -> None:
        self.seen.append((event, given))

    def say(self, name: str, what: int, event: str = "MODIFIED") -> None:
        self.paced.apply("Device", event, {"metadata": {"name": name}, "spec": what})

    def told(self) -> list[tuple[str, str, int]]:
        said, self.seen = self.seen, []
        return [(event, one["metadata"]["name"], one["spec"]) for event, one in said]  # type: ignore[misc]


def test_of_what_a_node_says_within_a_second_the_last_counts_when_it_is_over() -> None:
    kept = Kept()
    for i in range(1000):
        kept.say("n1", i)
    kept.say("n2", 7)
    kept.paced.sweep()
    assert kept.told() == [("MODIFIED", "n1", 0), ("MODIFIED", "n2", 7)]
    kept.now_ns += PACE_NS
    kept.paced.sweep()
    assert kept.told() == [("MODIFIED", "n1", 999)]
    kept.say("n1", 5, "DELETED")
    assert kept.told() == []
    kept.now_ns += PACE_NS
    kept.say("n1", 6, "ADDED")  # what waits is older
    kept.paced.sweep()
    assert kept.told() == [("ADDED", "n1", 6)]
    kept.now_ns += PACE_NS
    kept.paced.sweep()
    assert kept.told() == []


def test_a_list_of_all_takes_the_place_of_what_waits() -> None:
    kept = Kept()
    kept.say("n1", 1)
    kept.say("n1", 2)
    kept.paced.replace("Device", [], 9)
    kept.now_ns += PACE_NS
    kept.paced.sweep()
    assert kept.seen[1:] == [("Device", [], 9)]
