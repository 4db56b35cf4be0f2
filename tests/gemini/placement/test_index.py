"""Names to numbers: every name is found, and no other."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.placement.index import NameIndex


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=4), unique=True, max_size=200), st.lists(st.text(max_size=4), max_size=200))
def test_find_says_what_a_dictionary_says(known: list[str], asked: list[str]) -> None:
    numbers = [3 * i for i in range(len(known))]
    said = dict(zip(known, numbers, strict=True))
    index = NameIndex(known, numbers)
    for names in (asked, known, list(reversed(known)), []):
        assert index.find(names).tolist() == [said.get(name, -1) for name in names]


def test_all_names_of_a_large_cluster_are_found() -> None:
    names = [f"node-{i}" for i in range(20_000)]
    index = NameIndex(names, range(len(names)))
    assert index.find(names).tolist() == list(range(20_000))
    assert index.find([f"other-{i}" for i in range(20_000)]).max() == -1
