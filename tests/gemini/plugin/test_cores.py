"""Which cores a container is bound to."""

from __future__ import annotations

import pytest

from gemini.plugin.cores import nearest, parse_cpus, write_cpus


@pytest.mark.parametrize(("text", "cores"), [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0-1\n", {0, 1})])
def test_lists_are_read_as_linux_writes_them(text: str, cores: set[int]) -> None:
    assert parse_cpus(text) == cores
    assert parse_cpus(write_cpus(cores)) == cores


def test_lists_are_written_as_runs() -> None:
    assert write_cpus({8, 0, 1, 2, 5}) == "0-2,5,8"


def test_the_nearest_cores_go_first_then_the_lowest() -> None:
    assert nearest(2, range(8), {4, 5, 6}, {}) == {4, 5}
    assert nearest(4, range(8), {4, 5, 6}, {}) == {4, 5, 6, 0}
    assert nearest(2, range(8), set(), {}) == {0, 1}


def test_of_equally_near_cores_those_bound_least_go_first() -> None:
    assert nearest(2, range(8), {4, 5, 6}, {4: 1, 5: 1}) == {6, 4}


def test_cores_that_containers_may_not_use_are_not_given() -> None:
    assert nearest(2, {0, 1, 6}, {4, 5, 6}, {}) == {6, 0}


def test_more_cores_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 cores are asked, containers may use 2 here"):
        nearest(3, {0, 1}, set(), {})
