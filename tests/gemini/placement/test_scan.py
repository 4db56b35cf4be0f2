"""Pods of several containers, and nodes with more sets of cards than can be listed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.cli.scenario import Scenario
from tests.gemini.placement.bed import (
    GIB,
    answer,
    answers,
    box,
    cards,
    gpu,
    held,
    minors,
    node,
    pod,
    reason,
    where,
    whole,
)

HALF = 8 * GIB


def test_a_device_holds_sidecars_and_the_larger_of_apps_and_init() -> None:
    asked = pod(
        "p", box("a", gpu=30), box("b", gpu=20), init=[box("i", gpu=60), box("j", gpu=10), box("s", True, gpu=10)]
    )
    placed = answer([cards("n1", 1, 100)], asked)
    assert placed["devices"] == [{"type": "gpu", "minor": 0, "uuid": "GPU-0", "core": 70, "memory": 70}]
    assert {name: c[0]["core"] for name, c in placed["containers"].items()} == {
        "i": 60,
        "j": 10,
        "s": 10,
        "a": 30,
        "b": 20,
    }


def test_what_init_containers_held_is_free_when_they_have_ended() -> None:
    first = pod("p", box("a", gpu=30), init=[box("i", gpu=100)])
    placements = answers([cards("n1", 1)], first, box_pod("q", 70), {"initialized": "p"}, box_pod("r", 70))
    assert [("node" in p) for p in placements] == [True, False, True]


def box_pod(name: str, percent: int) -> dict[str, Any]:
    return pod(name, box("main", gpu=percent))


def test_an_app_may_use_the_card_that_its_init_container_held() -> None:
    placed = answer([cards("n1", 1)], pod("p", box("a", gpu=100), init=[box("i", gpu=100)]))
    assert [(d["core"], d["memory"]) for d in placed["devices"]] == [(100, 16 * GIB)]


def test_a_share_of_the_pod_is_held_once_for_all_its_containers() -> None:
    placed = answer([cards("n1", 1)], pod("p", {"name": "a"}, {"name": "b"}, init=[{"name": "i"}], gpu_request="0.5"))
    assert [(d["core"], d["memory"]) for d in placed["devices"]] == [(50, HALF)]
    card = [{"type": "gpu", "minor": 0, "core": 50, "memory": HALF}]
    assert placed["containers"] == {"i": card, "a": card, "b": card}


def test_containers_without_a_share_have_no_devices() -> None:
    placed = answer([cards("n1", 1)], pod("p", box("a", gpu=10), {"name": "b"}))
    assert placed["containers"]["b"] == []


def test_containers_are_tenants_and_take_slots() -> None:
    nodes = [node("n1", gpu(0, slots=2))]
    assert "node" in answer(nodes, pod("p", box("a", gpu=10), box("b", gpu=10), init=[box("i", gpu=10)]))
    refused = answer(nodes, pod("p", box("a", gpu=10), box("b", gpu=10), box("c", gpu=10)))
    assert reason(refused, "n1") == "NoFreeSlot"
    assert refused["refused"]["n1"]["message"].startswith("c: ")


def test_best_effort_is_not_put_on_a_card_whose_core_is_wholly_promised() -> None:
    nodes = [cards("n1", 1)]
    small = {"pod": "b", "annotations": {"gemini.io/gpu-memory": "1Gi"}}
    full = {"pod": "f", "annotations": {"gemini.io/gpu-request": "1", "gemini.io/gpu-memory": "1Gi"}}
    refused = answer(nodes, full, small)
    assert refused["refused"]["n1"]["devices"] == {"0": "core: wholly promised (100 of 100)"}
    assert "node" in answer(nodes, small, full)  # the other way round it only runs when nobody else can


def test_a_container_may_have_policies_of_its_own() -> None:
    asked = pod(
        "p", {"name": "a"}, {"name": "b"}, **{"gpu_request.a": "0.2", "gpu_request.b": "0.2", "gpu_policy.b": "spread"}
    )
    placed = answer([cards("n1", 2)], asked, policies=["binpack"])
    assert [c[0]["minor"] for c in placed["containers"].values()] == [0, 1]


def test_a_hundred_containers_are_placed() -> None:
    placed = answer([cards("n1", 1, 1000)], pod("p", *(box(f"c{i}", gpu=1) for i in range(100))))
    assert [(d["core"], d["memory"]) for d in placed["devices"]] == [(100, 1000)]


def test_sixteen_of_thirty_two_cards_are_found_without_listing_all_sets() -> None:
    links = [[str(a), str(b), "NVLINK", 1] for a in range(8, 24) for b in range(a + 1, 24)]
    nodes = [cards("n1", 32, links=links)]
    placed = [held("a", "n1", (30, 50, "8Gi"))]
    assert minors(answer(nodes, whole("p", 16), policies=["best-link"], placed=placed)) == list(range(8, 24))
    assert minors(answer(nodes, whole("p", 16), policies=["minor"], placed=placed)) == list(range(16))
    assert reason(answer(nodes, whole("p", 32), placed=placed), "n1") == "InsufficientCore"


Part = tuple[str, int]  # role, percent
Cells = dict[tuple[int, int], list[Part]]  # (node, minor) -> what a pod holds there
ROLES = ["init", "always", "app", "app"]
POLICIES = ["binpack", "spread", "node-binpack", "node-spread", "minor"]


@st.composite
def container_pods(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[str], list[list[Part]]]:
    made = []
    for n in range(draw(st.integers(1, 3))):
        memories = draw(st.lists(st.sampled_from([1000, 1000, 1600]), min_size=1, max_size=3))
        made.append(node(f"n{n}", *(gpu(m, memory) for m, memory in enumerate(memories))))
    policies = draw(st.lists(st.sampled_from(POLICIES), max_size=2))
    part = st.tuples(st.sampled_from(ROLES), st.sampled_from([5, 20, 35, 50, 100]))
    parts = st.lists(part, min_size=1, max_size=4).filter(lambda p: any(role == "app" for role, _ in p))
    pods = draw(st.lists(parts, min_size=1, max_size=5))
    # As in a pod: init containers and sidecars first.
    return made, policies, [sorted(p, key=lambda c: c[0] == "app") for p in pods]


class Ledger:
    """What each card holds, by pod: (always, apps, init) of core; memory is the same percent, rounded down each."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.pods: dict[str, Cells] = {}

    def held(self, at: tuple[int, int], pods: dict[str, Cells]) -> tuple[int, int]:
        total = self.nodes[at[0]]["devices"][at[1]]["memory"]
        core = memory = 0
        for cells in pods.values():
            parts = cells.get(at, [])
            for unit in (0, 1):
                sizes = [(role, c if unit == 0 else total * c // 100) for role, c in parts]
                always, apps = sum(s for r, s in sizes if r == "always"), sum(s for r, s in sizes if r == "app")
                amount = always + max([apps] + [s for r, s in sizes if r == "init"])
                core, memory = (core + amount, memory) if unit == 0 else (core, memory + amount)
        return core, memory

    def score(self, at: tuple[int, int], pods: dict[str, Cells]) -> Fraction:
        core, memory = self.held(at, pods)
        return Fraction(core, 100) + Fraction(memory, self.nodes[at[0]]["devices"][at[1]]["memory"])

    def place(self, name: str, parts: list[Part], policies: list[str]) -> tuple[int, list[int]] | None:
        found = []
        for n, made in enumerate(self.nodes):
            mine: Cells = {}
            taken: list[int] = []
            numbers: list[list[Any]] = []
            for role, core in parts:
                options = []
                for m, card in enumerate(made["devices"]):
                    trial = {**self.pods, name: {**mine, (n, m): [*mine.get((n, m), []), (role, core)]}}
                    used = self.held((n, m), trial)
                    if used[0] <= 100 and used[1] <= card["memory"]:
                        options.append(([self.value(p, (n, m), trial) for p in policies], m))
                if not options:
                    break
                values, m = min(options)
                mine.setdefault((n, m), []).append((role, core))
                taken.append(m)
                numbers.append(values)
            else:
                columns = zip(*numbers, strict=True)
                key = [c if p == "minor" else sum(c) for p, c in zip(policies, columns, strict=True)]
                found.append((key, n, taken, mine))
        if not found:
            return None
        _, n, taken, mine = min(found, key=lambda f: (f[0], f[1]))
        self.pods[name] = mine
        return n, taken

    def value(self, policy: str, at: tuple[int, int], trial: Any) -> Any:
        if policy == "minor":
            return at[1]
        if policy.startswith("node-"):
            size = len(self.nodes[at[0]]["devices"])
            number = sum(self.score((at[0], m), self.pods) for m in range(size)) / size
        else:
            number = self.score(at, trial)
        return -number if policy.endswith("binpack") else number


@settings(max_examples=120, deadline=None)
@given(container_pods())
def test_containers_are_placed_one_by_one_as_a_plain_ledger_would(
    drawn: tuple[list[dict[str, Any]], list[str], list[list[Part]]],
) -> None:
    made, policies, pods = drawn
    asks = []
    for i, parts in enumerate(pods):
        boxes = [box(f"c{j}", role == "always", gpu=core) for j, (role, core) in enumerate(parts)]
        init = [b for b, (role, _) in zip(boxes, parts, strict=True) if role != "app"]
        asks.append(pod(f"p{i}", *(b for b in boxes if b not in init), init=init))
    run = Scenario({"nodes": made, "policies": policies, "asks": asks})
    ledger = Ledger(made)
    for i, entry in enumerate(run.run()["placements"]):
        expected = ledger.place(f"p{i}", pods[i], policies)
        if expected is None:
            assert "refused" in entry
            continue
        assert entry["node"] == f"n{expected[0]}"
        assert [entry["containers"][f"c{j}"][0]["minor"] for j in range(len(pods[i]))] == expected[1]
        for device in entry["devices"]:
            at = (expected[0], device["minor"])
            assert (device["core"], device["memory"]) == ledger.held(at, {"": ledger.pods[f"p{i}"]})
    run.book.check()
    assert where(answer([cards("n1", 1)], whole("p"))) == ("n1", [0])
