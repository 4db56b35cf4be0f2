"""The table of policies: every name does what the contract says of it, and a rank agrees with the choice."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gemini.cli.scenario import Scenario
from gemini.kube.pod import parse_ask
from gemini.placement import policies
from gemini.placement.allocate import Allocator, UnknownPolicy
from gemini.placement.book import Book
from gemini.placement.policies import POLICIES, best_of_split
from gemini.placement.standing import Standings
from tests.gemini.placement.bed import answer, ask, cards, gpu, held, minors, node, where, whole


def test_the_names_are_those_of_the_contract() -> None:
    assert list(POLICIES) == [
        "binpack", "spread", "node-binpack", "node-spread", "minor", "pcie", "numa", "best-link", "best-partition",
        "fragment", "singular", "link", "unused",
    ]  # fmt: skip


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownPolicy, match="'best' is no policy; use some of binpack"):
        Allocator(Book(), ["binpack", "best"])


SWITCHES = [gpu(m, pcie=str(m // 2), numa=m // 4) for m in range(8)]


@pytest.mark.parametrize(
    ("policy", "asked", "placed", "chosen"),
    [
        ("binpack", ask("p", gpu_request="0.3"), [(3, 50, "8Gi"), (5, 20, "3Gi")], [3]),
        ("spread", ask("p", gpu_request="0.3"), [(0, 50, "8Gi"), (1, 20, "3Gi")], [2]),
        ("minor", ask("p", gpu_request="0.3"), [(0, 80, 0)], [1]),
        ("pcie", whole("p", 2), [(0, 10, 0), (2, 10, 0)], [4, 5]),
        ("pcie", whole("p", 1), [(0, 100, 0), (7, 100, 0)], [1]),
        ("pcie", whole("p", 3), [(0, 100, 0)], [1, 2, 3]),
        ("numa", whole("p", 2), [(4, 100, 0), (5, 100, 0)], [6, 7]),
        ("numa", whole("p", 4), [(1, 100, 0)], [4, 5, 6, 7]),
        ("best-link", whole("p", 2), [(0, 100, 0)], [2, 3]),
        ("best-link", whole("p", 1), [(2, 100, 0)], [3]),
        ("unused", ask("p", gpu_request="0.1"), [(0, 10, 0)], [1]),
        ("singular", whole("p", 1), [(6, 100, 0)], [7]),
        ("link", whole("p", 4), [(0, 100, 0)], [4, 5, 6, 7]),
        ("fragment", ask("p", gpu_request="0.3"), [(6, 60, 0), (5, 50, 0)], [6]),
    ],
)
def test_a_policy_prefers_what_it_says(
    policy: str, asked: dict[str, Any], placed: list[Any], chosen: list[int]
) -> None:
    used = [held("a", "n1", *placed)]
    assert minors(answer([node("n1", *SWITCHES)], asked, policies=[policy], placed=used)) == chosen


@pytest.mark.parametrize(("policy", "name"), [("node-binpack", "n2"), ("node-spread", "n1"), ("minor", "n1")])
def test_policies_of_nodes_look_at_the_mean_of_their_cards(policy: str, name: str) -> None:
    nodes = [cards("n1", 4), cards("n2", 2)]
    placed = [held("a", "n1", (3, 40, "6Gi")), held("b", "n2", (1, 40, "6Gi"))]
    assert where(answer(nodes, ask("p", gpu_request="0.1"), policies=[policy], placed=placed)) == (name, [0])


def test_a_policy_decides_only_among_what_the_earlier_ones_left_equal() -> None:
    placed = [held("a", "n1", (2, 50, "8Gi"), (1, 50, "8Gi"))]
    nodes = [node("n1", *(gpu(m, numa=[0, 0, 1][m]) for m in range(3)))]
    asked = ask("p", gpu_request="0.2")
    assert minors(answer(nodes, asked, policies=["binpack"], placed=placed)) == [1]
    assert minors(answer(nodes, asked, policies=["binpack", "numa"], placed=placed)) == [2]


def test_scores_that_differ_by_a_byte_in_a_card_of_141_gibibytes_differ() -> None:
    """0.5 + 0.4 - 1 byte and 0.4 + 0.5: what floating point would call equal."""
    total = 141 * 2**30 // 10 * 10
    placed = [held("a", "n1", (0, 50, total * 4 // 10), (1, 40, total // 2 + 1))]
    small = ask("p", gpu_request="0", gpu_memory="1")
    assert minors(answer([cards("n1", 2, total)], small, policies=["binpack"], placed=placed)) == [1]
    assert minors(answer([cards("n1", 2, total)], small, policies=["spread"], placed=placed)) == [0]


def test_cards_whose_sizes_have_no_common_measure_are_compared_exactly() -> None:
    """Prime sizes: the common denominator passes 64 bits, Python's integers take over."""
    sizes = [2**31 - 1, 2**61 - 1, 1_000_000_007]
    nodes = [node("n1", *(gpu(m, size) for m, size in enumerate(sizes)))]
    placed = [held("a", "n1", *((m, 10, size // 3) for m, size in enumerate(sizes)))]
    run = Scenario({"nodes": nodes, "placed": placed, "policies": ["binpack"]})
    assert next(iter(run.book.blocks["gpu"].values())).shape.exact is object
    thirds = [(size // 3 + 100) / size for size in sizes]
    asked = ask("p", gpu_request="0", gpu_memory="100")
    assert minors(answer(nodes, asked, placed=placed, policies=["binpack"])) == [thirds.index(max(thirds))]


def test_the_best_split_of_sixteen_cards_is_found() -> None:
    links = [[str(m), str((m * 7 + 3) % 16), "NVLINK", 1 + m % 3] for m in range(16) if m != (m * 7 + 3) % 16]
    book = Scenario({"nodes": [cards("n1", 16, links=links)]}).book
    (block,) = book.blocks["gpu"].values()
    for size in (4, 8):
        assert len(best_of_split(block.shape, 2**16 - 1, size)[0])
    placed = answer([cards("n1", 17)], whole("p", 2), policies=["best-partition"])
    assert minors(placed) == [0, 1]  # too many free cards to split: like best-link


def test_a_rank_agrees_with_the_choice() -> None:
    rng = random.Random(5)
    placed = [held(f"a{n}", f"n{n}", *((m, rng.choice([0, 20, 60, 100]), 0) for m in range(4))) for n in range(30)]
    nodes = [cards(f"n{n}", 4, ["16Gi", "80Gi"][n % 2]) for n in range(30)]
    spec = parse_ask("p", {"gemini.io/gpu-request": "0.3"})
    for names in ([], ["binpack"], ["spread"], ["node-spread", "binpack"], ["fragment"], ["node-binpack", "minor"]):
        run = Scenario({"nodes": nodes, "placed": placed, "policies": names})
        asked = [*reversed([node["name"] for node in nodes]), "n99"]
        ranks = dict(zip(asked, Standings(run.allocator).of(spec.ask).ranks(asked).tolist(), strict=True))
        able = {name for name, rank in ranks.items() if rank >= 0}
        assert able == set(run.allocator.possible(spec.ask))
        chosen = run.allocator.choose(spec.ask)
        assert chosen is not None
        assert ranks[chosen.node] == min(ranks[name] for name in able) == 0


def test_every_policy_has_a_row_in_the_docs() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
    assert all(f"| `{name}`" in text for name in policies.POLICIES)
