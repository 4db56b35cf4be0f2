"""Surveys: what was worked out for a pod a moment ago is what would be worked out now, or is worked out anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

import pytest

from gemini.cli.scenario import Scenario
from gemini.kube.pod import parse_ask, parse_pod
from gemini.placement.allocate import Allocator
from gemini.placement.book import Book
from gemini.placement.model import Ask, Device, Grant, Node, Placement
from gemini.placement.survey import KEPT, Survey, Surveys
from tests.gemini.placement.bed import cards, held

ONE = {"gemini.io/gpu-request": "0.3"}
PAIR = {"gemini.io/gpu-request": "1", "gemini.io/gpu-count": "2"}
TWO_TENANTS = {"gemini.io/gpu-request.a": "0.5", "gemini.io/gpu-request.b": "0.4"}
NODES = [f"n{n}" for n in range(12)]


def scenario(seed: int, policies: list[str]) -> Scenario:
    rng = random.Random(seed)
    placed = [held(f"a{n}", n, *((m, rng.choice([0, 20, 60, 100]), 0) for m in range(4))) for n in NODES]
    nodes = [cards(n, 4, ["16Gi", "80Gi"][i % 2]) for i, n in enumerate(NODES)]
    return Scenario({"nodes": nodes, "placed": placed, "policies": policies})


def asked(pod: str, says: dict[str, str]) -> Ask:
    if says is TWO_TENANTS:
        spec = {"containers": [{"name": "a"}, {"name": "b"}]}
        return parse_pod({"metadata": {"name": pod, "annotations": says}, "spec": spec}, name=pod).ask
    return parse_ask(pod, says).ask


def change(book: Book, rng: random.Random, numbers: Iterator[int]) -> None:
    """Something happens in the cluster."""
    kind, name = rng.randrange(6), rng.choice(NODES)
    node = book.node(name)
    if kind == 0 and node is not None and len(list(book.nodes())) > 6:
        book.drop_node(name)
    elif kind == 1:
        size = rng.choice([3, 4])
        book.put_node(Node(name, tuple(Device(m, uuid=f"{name}-{m}", memory=2**34) for m in range(size))))
    elif kind == 2 and (here := book.pods_on(name)):
        book.release(rng.choice(here))
    elif node is not None:
        grant = Grant("gpu", rng.randrange(len(node.devices)), rng.choice([10, 40, 100]), 0)
        book.place(Placement(f"s{next(numbers)}", name, (grant,)), strict=False)


@pytest.mark.parametrize("policies", [[], ["binpack"], ["fragment", "singular", "link"], ["node-spread", "best-link"]])
@pytest.mark.parametrize("says", [ONE, PAIR])
def test_cards_that_were_chosen_a_moment_ago_are_those_that_would_be_chosen_now(
    policies: list[str], says: dict[str, str]
) -> None:
    run = scenario(3, policies)
    rng, numbers, kept = random.Random(7), count(), Surveys(run.allocator)
    for step in range(150):
        ask = asked(f"p{step}", says)
        kept.make(ask, NODES)
        for _ in range(rng.randrange(3)):
            change(run.book, rng, numbers)
        kept.ranks(ask, tuple(NODES))
        for _ in range(rng.randrange(3)):
            change(run.book, rng, numbers)
        node = rng.choice(NODES)
        expected = run.allocator.choose(ask, [node])
        assert kept.choose(ask, node) == expected
        if expected is not None:
            run.book.place(expected)
            run.book.release(ask.pod)


def test_ranks_are_those_of_a_new_survey_while_nothing_has_changed() -> None:
    run = scenario(1, ["binpack", "minor"])
    ask, kept = asked("p", ONE), Surveys(run.allocator)
    made = kept.make(ask, NODES)
    assert made.passed == tuple(name for name in NODES if run.allocator.possible(ask, [name]))
    expected = Survey(run.allocator, ask, made.passed).ranks().tolist()
    assert kept.ranks(ask, made.passed).tolist() == expected
    some = made.passed[::-2]
    assert kept.ranks(ask, some).tolist() == Survey(run.allocator, ask, some).ranks().tolist()


def test_node_that_has_filled_up_meanwhile_has_no_rank_and_the_others_keep_their_order() -> None:
    run = scenario(1, ["binpack"])
    ask, kept = asked("p", ONE), Surveys(run.allocator)
    made = kept.make(ask, NODES)
    before = dict(zip(made.passed, Survey(run.allocator, ask, made.passed).ranks().tolist(), strict=True))
    best = min(before, key=lambda name: before[name])
    run.book.place(Placement("q", best, tuple(Grant("gpu", m, 100, 0) for m in range(4))), strict=False)
    after = dict(zip(made.passed, kept.ranks(ask, made.passed).tolist(), strict=True))
    assert after.pop(best) == -1
    assert sorted(after, key=lambda name: after[name]) == sorted(after, key=lambda name: before[name])


def test_pod_of_two_tenants_is_ranked_anew_after_a_change_and_chosen_right() -> None:
    run = scenario(2, ["binpack"])
    ask, kept = asked("p", TWO_TENANTS), Surveys(run.allocator)
    made = kept.make(ask, NODES)
    run.book.place(Placement("q", made.passed[0], tuple(Grant("gpu", m, 100, 0) for m in range(4))), strict=False)
    expected = Survey(run.allocator, ask, made.passed).ranks().tolist()
    assert kept.ranks(ask, made.passed).tolist() == expected
    assert kept.choose(ask, made.passed[1]) == run.allocator.choose(ask, [made.passed[1]])


def test_shortened_survey_has_the_first_of_the_best_and_its_rank() -> None:
    run = scenario(4, ["binpack"])
    ask, kept = asked("p", ONE), Surveys(run.allocator)
    all_of_them = Survey(run.allocator, ask, NODES)
    ranks = dict(zip(NODES, all_of_them.ranks().tolist(), strict=True))
    best = [name for name in NODES if ranks[name] == 0]
    short = kept.make(ask, NODES)
    assert short.shorten(3)
    assert list(short.passed) == best[:1]
    assert kept.ranks(ask, short.passed).tolist() == [0]
    others = Survey(run.allocator, ask, NODES)
    assert others.shorten(3, avoid=best)
    second = min(rank for rank in ranks.values() if rank > 0)
    assert list(others.passed) == [name for name in NODES if ranks[name] == second][:1]
    long = Survey(run.allocator, ask, NODES)
    assert not long.shorten(len(NODES))
    assert long.passed == all_of_them.passed


def test_shortened_survey_without_policies_has_the_first() -> None:
    run = scenario(4, [])
    survey = Survey(run.allocator, asked("p", ONE), NODES)
    fit = survey.passed
    assert survey.shorten(3)
    assert survey.passed == fit[:3]


def test_only_the_last_surveys_are_kept_and_another_state_of_a_pod_is_another_ask() -> None:
    run = scenario(5, [])
    kept = Surveys(run.allocator)
    asks = [asked(f"p{i}", ONE) for i in range(KEPT + 1)]
    for ask in asks:
        kept.make(ask, NODES)
    assert len(kept) == KEPT
    assert kept.choose(asked("p1", PAIR), NODES[0]) == run.allocator.choose(asked("p1", PAIR), [NODES[0]])


def test_survey_of_no_nodes_and_of_unknown_ones() -> None:
    allocator = Allocator(Book())
    empty = Survey(allocator, asked("p", ONE), ["nobody"])
    assert empty.passed == ()
    assert empty.ranks().tolist() == [-1]
    assert empty.placement("nobody") is None
