"""Which cards `gemini run` takes: the ones that are named, else the one with most room."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.cli.cards import choose, elsewhere
from gemini.cli.problem import Problem
from tests.gemini.cli.conftest import Place

GIB = 1 << 30


def state(*tenants: tuple[str, float, int, list[int]], cards: int = 3) -> dict[str, Any]:
    return {
        "devices": [{"index": i, "uuid": f"GPU-{i}{i}aa-{i}", "memory_bytes": 80 * GIB} for i in range(cards)],
        "tenants": [
            {"name": name, "request": request, "memory_limit_bytes": memory * GIB, "gpus": gpus}
            for name, request, memory, gpus in tenants
        ],
    }


@pytest.mark.parametrize(
    ("tenants", "request_", "memory", "chosen"),
    [
        ((), 0.7, 0, 0),
        ((("a", 0.7, 0, [0]),), 0.7, 0, 1),
        ((("a", 0.7, 0, [0]), ("b", 0.5, 0, [1]), ("c", 0.2, 0, [2])), 0.3, 0, 2),
        ((("a", 0.2, 70, [0]), ("b", 0.5, 10, [1]), ("c", 0.5, 0, [2])), 0.3, 20, 2),
        ((("a", 0.0, 0, [0]), ("b", 0.0, 0, [1])), 0.0, 0, 2),
    ],
)
def test_the_card_with_most_room_is_taken(tenants: Any, request_: float, memory: int, chosen: int) -> None:
    assert choose(state(*tenants), "x", [], None, request_, memory * GIB, None) == [f"GPU-{chosen}{chosen}aa-{chosen}"]


@pytest.mark.parametrize(
    ("words", "count", "visible", "found"),
    [
        (["1"], None, None, [1]),
        (["0,2"], None, "1", [0, 2]),
        (["2", "0"], None, None, [2, 0]),
        (["GPU-22"], None, None, [2]),
        (["11aa"], None, None, [1]),
        (["all"], None, None, [0, 1, 2]),
        (["any"], None, "1", [0]),
        ([], 2, None, [0, 1]),
        ([], None, "1", [1]),
        ([], None, "2,0", [2, 0]),
    ],
)
def test_cards_are_named_by_index_and_by_the_beginning_of_their_uuid(
    words: list[str], count: int | None, visible: str | None, found: list[int]
) -> None:
    assert choose(state(), "x", words, count, 0.3, 0, visible) == [f"GPU-{i}{i}aa-{i}" for i in found]


@pytest.mark.parametrize(
    ("words", "count", "said"),
    [
        (["7"], None, "--gpu '7' is no GPU of this machine; there is 0 (GPU-00aa-0)"),
        (["GPU-"], None, "--gpu 'GPU-' names more than one GPU"),
        (["0,"], None, "--gpu '' is no GPU"),
        (["0"], 2, "leave one of them out"),
        (["all", "0"], None, "any and all stand alone"),
        ([], 4, "--gpus 4: give a number of cards from 1 to 3"),
        ([], None, "request 0.9 does not fit on any GPU: GPU 0 has 0.8 left, GPU 1 has 0.8 left, GPU 2 has 0.8 left"),
    ],
)
def test_what_cannot_be_is_said_with_what_there_is(words: list[str], count: int | None, said: str) -> None:
    with pytest.raises(Problem) as caught:
        choose(state(("a", 0.2, 0, [0, 1, 2])), "x", words, count, 0.9, 0, None)
    assert said in str(caught.value)


def test_another_process_of_a_tenant_joins_it_where_it_is() -> None:
    assert choose(state(("x", 0.7, 0, [1])), "x", [], None, 0.7, 0, None) == ["GPU-11aa-1"]


def test_a_refusal_names_the_card_that_has_room() -> None:
    there = state(("a", 0.7, 0, [0]), ("b", 0.1, 0, [1]))
    assert elsewhere(there, ["GPU-00aa-0"], 0.7, 0) == "; GPU 1 has 0.9 left: --gpu 1"
    assert elsewhere(there, ["GPU-00aa-0"], 1.0, 0) == "; GPU 2 has 1 left: --gpu 2"


def test_two_of_0_7_run_on_two_cards_and_each_is_promised_one(place: Place) -> None:
    place.sim = f"gpus=2,memory=8GiB,id={place.id}"
    script = 'echo "$CUDA_VISIBLE_DEVICES"; read x'
    seen = []
    for name in ("a", "b"):
        process = place.start("run", "--name", name, "--request", "0.7", "--", "sh", "-c", script)
        assert process.stdout is not None
        seen.append(process.stdout.readline().strip())
    uuids = {device["uuid"]: device["index"] for device in place.state()["devices"]}
    assert {uuids[uuid] for uuid in seen} == {0, 1}
    assert [tenant["gpus"] for tenant in place.state()["tenants"]] == [[uuids[uuid]] for uuid in seen]
    third = place.gemini("run", "--request", "0.7", "--", "true")
    assert third.returncode == 125
    assert "does not fit on any GPU: GPU 0 has 0.3 left, GPU 1 has 0.3 left" in third.stderr
    place.gemini("set", "b", "--request", "0.1")
    named = place.gemini("run", "--request", "0.7", "--gpu", str(uuids[seen[0]]), "--", "true")
    assert named.returncode == 125
    assert f"GPU {uuids[seen[1]]} has 0.9 left: --gpu {uuids[seen[1]]}" in named.stderr
    assert len(named.stderr.splitlines()) == 1


def test_memory_limits_above_the_card_are_said_in_one_line(place: Place) -> None:
    first = place.start("run", "--name", "a", "--memory", "6GiB", "--", "sh", "-c", "echo ready; read x")
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    done = place.gemini("run", "--name", "b", "--memory", "6GiB", "--", "true")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "the memory limits on GPU 0 sum to 12 GiB, above its 8 GiB" in done.stderr
