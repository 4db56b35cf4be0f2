"""Groups: together on one node's best connected cards, or not at all; checked against exhaustive search."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.cli.scenario import Scenario
from gemini.kube.pod import parse_ask
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.group import SEARCH_STEPS, Budget, place_group
from gemini.placement.model import Device, Node
from tests.gemini.placement.bed import answers, ask, cards, gpu, held, minors, node, reason, where, whole
from tests.gemini.placement.oracle import Wish, World, pair
from tests.gemini.placement.test_allocate import nodes, spoken


def members(count: int, size: int | None = None, **says: Any) -> list[dict[str, Any]]:
    return [ask(f"p{i}", pod_group="g", pod_group_size=str(size or count), **says) for i in range(count)]


def test_a_group_of_4_with_room_for_3_places_nobody() -> None:
    placements = answers([cards("n1", 3)], *members(4, gpu_request="1"), whole("later", 3))
    assert all(reason(p, "n1") == "GroupDoesNotFit" for p in placements[:4])
    assert minors(placements[4]) == [0, 1, 2]  # and nothing stays reserved


def test_a_group_is_placed_when_its_last_member_comes() -> None:
    one, two = members(2, gpu_request="1")
    placements = answers([cards("n1", 3)], one, whole("between"), two)
    assert [minors(p) for p in placements] == [[1], [0], [2]]


def test_a_search_that_leads_nowhere_comes_to_an_end() -> None:
    """Seventeen members, two of which fit on each of eight cards, each unlike the others: 8 to the power of 16 ways."""
    allocator = Allocator(Book([Node("n1", tuple(Device(m, uuid=f"GPU-{m}", memory=80 << 30) for m in range(8)))]))
    asks = [parse_ask(f"p{i}", {"gemini.io/gpu-request": f"{34 + i % 13}%"}).ask for i in range(17)]
    budget = Budget()
    assert place_group(allocator, asks, budget=budget) is None
    assert budget.left == 0
    allocator.book.check()
    assert not allocator.book.holdings
    budget = Budget()
    assert place_group(allocator, [asks[0]] * 24, budget=budget) is None
    assert budget.left == SEARCH_STEPS, "the sum of the cards' time tells"
    free = parse_ask("p", {"gemini.io/gpu-request": "0"}).ask
    assert place_group(allocator, [free] * 5_000) is None


def test_members_wait_for_the_others() -> None:
    placements = answers([cards("n1", 3)], *members(2, size=3, gpu_request="0.1"))
    assert [reason(p) for p in placements] == ["GroupIncomplete", "GroupIncomplete"]


def test_a_waiting_member_may_be_released() -> None:
    one, two = members(2, gpu_request="1")
    placements = answers([cards("n1", 3)], one, {"release": "p0"}, two)
    assert [reason(p) for p in placements] == ["Released", "GroupIncomplete"]


def test_a_group_goes_to_one_node_or_nowhere() -> None:
    placements = answers([cards("n1", 2), cards("n2", 2)], *members(3, gpu_request="1"))
    assert {reason(p, name) for p in placements for name in ("n1", "n2")} == {"GroupDoesNotFit"}


def test_a_replaced_member_joins_those_that_run() -> None:
    links = [["0", "3", "NVLINK", 4], ["0", "1", "NVLINK", 1]]
    first = members(2, gpu_request="1")
    again = ask("p9", gpu_request="1", pod_group="g", pod_group_size="2")
    placements = answers([cards("n0", 1), cards("n1", 4, links=links)], *first, {"release": "p1"}, again)
    assert [where(p) for p in placements] == [("n1", [0]), ("n1", [3]), ("n1", [3])]


def test_members_of_another_size_are_refused_in_their_place() -> None:
    asks = [ask("a", gpu_request="1", pod_group="g", pod_group_size=n) for n in ("2", "3")]
    asks[1]["pod"] = "b"
    placements = answers([cards("n1", 3)], *asks)
    assert placements[1]["refused"]["*"]["message"].startswith("gemini.io/pod-group-size: 3 differs from 2")


def test_members_with_several_cards_each_and_joint_devices() -> None:
    nics = [{"type": "rdma", "minor": m, "pcie": str(m)} for m in range(2)]
    nodes = [node("n1", *(gpu(m, pcie=str(m // 2)) for m in range(4)), *nics)]
    says = {"gpu_request": "1", "gpu_count": "2", "joint": "rdma"}
    placements = answers(nodes, *members(2, **says))
    assert [minors(p) for p in placements] == [[0, 1], [2, 3]]
    assert [minors(p, "rdma") for p in placements] == [[0], [1]]


def test_5000_equal_nodes_are_looked_at_once() -> None:
    made = [cards(f"n{i}", 8) for i in range(500)]
    placements = answers(made, *members(4, gpu_request="1"), placed=[held("a", "n0", (0, 100, "16Gi"))])
    assert [where(p) for p in placements] == [("n0", [m]) for m in (1, 2, 3, 4)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Any], list[Wish]]:
    policies = draw(st.lists(st.sampled_from(["binpack", "spread", "node-spread", "minor", "pcie"]), max_size=2))
    scenario = {"nodes": draw(nodes()), "policies": policies}
    wish = st.builds(
        lambda core, count: Wish(core, ratio=core, count=count), st.sampled_from([20, 60, 100]), st.integers(1, 2)
    )
    some = draw(st.lists(wish, min_size=1, max_size=3))
    return scenario, draw(st.sampled_from([some, [some[0]] * len(some)]))


def best(world: World, wishes: list[Wish]) -> list[tuple[int, tuple[int, ...]]] | None:
    policies = tuple(world.scenario["policies"])
    found: list[tuple[Any, list[tuple[int, tuple[int, ...]]]]] = []

    def visit(so_far: list[tuple[int, tuple[int, ...]]], numbers: list[list[Any]]) -> None:
        if len(so_far) == len(wishes):
            n = so_far[0][0]
            union = sorted({m for _, ms in so_far for m in ms})
            connected = sum(pair(world.nodes()[n], a, b) for a, b in combinations(union, 2))
            columns = list(zip(*numbers, strict=True))
            sums = [add(p, c) for p, c in zip(policies, columns, strict=True)]
            found.append(((-connected, sums, n, [ms for _, ms in so_far]), so_far))
            return
        wish = wishes[len(so_far)]
        for choice in world.choices(wish, policies):
            if so_far and choice[0] != so_far[0][0]:
                continue
            if so_far and wishes[len(so_far) - 1] == wish and choice[1] < so_far[-1][1]:
                continue  # members that ask for the same take their sets in ascending order
            values = [world.value(p, choice, wish, None) for p in policies]
            world.place(f"m{len(so_far)}", wish, choice)
            visit([*so_far, choice], [*numbers, values])
            del world.held[f"m{len(so_far)}"]

    visit([], [])
    return min(found)[1] if found else None


def add(policy: str, values: tuple[Any, ...]) -> Any:
    if policy == "minor":
        return values
    if policy.startswith("node-"):
        return values[0]  # the node before the group
    return tuple(map(sum, zip(*values, strict=True))) if isinstance(values[0], tuple) else sum(values)


@settings(max_examples=60, deadline=None)
@given(groups())
def test_every_group_is_placed_as_an_exhaustive_search_would(drawn: tuple[dict[str, Any], list[Wish]]) -> None:
    scenario, wishes = drawn
    asks = []
    for i, wish in enumerate(wishes):
        said = spoken(wish)
        said["annotations"] |= {"gemini.io/pod-group": "g", "gemini.io/pod-group-size": str(len(wishes))}
        asks.append({"pod": f"m{i}", **said})
    run = Scenario({**scenario, "asks": asks})
    placements = run.run()["placements"]
    run.book.check()
    expected = best(World(scenario), wishes)
    if expected is None:
        assert all("refused" in p for p in placements)
        assert not run.book.holdings
    else:
        names = [n["name"] for n in scenario["nodes"]]
        assert [where(p) for p in placements] == [(names[n], list(ms)) for n, ms in expected]
