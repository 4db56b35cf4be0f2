"""Names as they are written: they are those that JSON says, every one is found, and no other."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemini.placement.written import Written, WrittenIndex

# Few letters, so that names share their beginnings, and many lengths around those of whole words.
NAMES = st.lists(st.text("ab-", max_size=20), unique=True, max_size=200)


def written(names: list[str]) -> Written:
    made = Written.of(names)
    assert made is not None
    return made


@settings(max_examples=300, deadline=None)
@given(NAMES.filter(bool), NAMES.filter(bool))
def test_find_says_what_a_dictionary_says(known: list[str], asked: list[str]) -> None:
    numbers = [3 * i for i in range(len(known))]
    said = dict(zip(known, numbers, strict=True))
    index = WrittenIndex(written(known), numbers)
    for names in (asked, known, list(reversed(known)), asked + asked):
        assert index.find(written(names)).tolist() == [said.get(name, -1) for name in names]


@pytest.mark.parametrize("length", range(1, 27))
def test_names_of_one_length_are_found_as_others_are(length: int) -> None:
    names = [f"{i:0{length}}"[:length] for i in range(10)]
    index = WrittenIndex(written([*names, "y" * 20]), range(11))
    assert index.find(written(names)).tolist() == list(range(10))
    assert index.find(written(list(reversed(names)))).tolist() == list(range(10))[::-1]
    assert index.find(written([*names, "x" * length])).tolist() == [*range(10), -1]
    assert list(written(names)) == names


def test_names_that_differ_from_all_known_ones_where_those_are_alike_are_not_found() -> None:
    names = [f"cluster-one-node-{i:04}" for i in range(1000)]
    index = WrittenIndex(written(names), range(1000))
    assert index.find(written(names)).tolist() == list(range(1000))
    for other in ("Cluster-one-node-", "cluster-two-node-", "cluster-one-nodf-"):
        assert index.find(written([name.replace("cluster-one-node-", other) for name in names])).max() == -1
    one = WrittenIndex(written(names[:1]), [7])
    assert one.find(written(names[:3])).tolist() == [7, -1, -1]


def test_all_names_of_a_large_cluster_are_found() -> None:
    names = [f"node-{i}" for i in range(20_000)]
    index = WrittenIndex(written(names), range(len(names)))
    assert index.find(written(names)).tolist() == list(range(20_000))
    assert index.find(written([f"other-{i}" for i in range(20_000)])).max() == -1
    longer = [f"{name}.and.then.some.more" for name in names[:1000]]
    assert index.find(written(longer)).max() == -1, "a name that begins like one"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=20))
def test_names_that_are_read_are_those_of_json(names: list[str]) -> None:
    for text in (json.dumps(names, separators=(",", ":")), json.dumps(names), json.dumps(names, ensure_ascii=False)):
        read = Written.read(text[1:-1].encode("utf-8", "surrogatepass"))
        assert read is None or list(read) == names == json.loads(text)
    made = Written.of(names)
    assert made is None or (list(made), len(made), json.loads(b"[%b]" % made.text)) == (names, len(names), names)


@pytest.mark.parametrize(
    "text",
    [
        b"", b'"', b"a", b'"a', b'"a",', b',"a"', b'"a""b"', b'"a";"b"', b'"a", "b"', b' "a"', b'"a" ', b'"a",,"b"',
        b'"a",3', b'3,"a"', b'"a",3,"b"', b'"a\\u0041"', b'"a\\"', b'"a\n"', b'"\x00"', b'"\xc3\xa4"', b'"\xff"',
        b'["a"]', b'"a","b";"c"', b'"abc","a"c"', b'"abc",abc""', b'"abc",""c"', b'"a","\n"', b'"a","\\"', b'"a","b"x',
    ],
)  # fmt: skip
def test_whatever_is_not_plainly_names_is_left_to_json(text: bytes) -> None:
    assert Written.read(text) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.text("ab-", max_size=20), st.booleans()), min_size=1, max_size=50))
def test_those_that_are_marked_are_names_again(marked: list[tuple[str, bool]]) -> None:
    names = written([name for name, _ in marked])
    kept = [name for name, mark in marked if mark]
    marks = np.array([mark for _, mark in marked], dtype=np.int8)
    left, only = names.parted(marks, 2)
    assert (list(only), len(only), json.loads(b"[%b]" % only.text)) == (kept, len(kept), kept)
    index = WrittenIndex(written(sorted({name for name, _ in marked} | {"other"})), range(len(dict(marked)) + 1))
    assert index.find(only).tolist() == (index.find(written(kept)).tolist() if kept else [])
    assert only[:2] == kept[:2]
    assert list(left) == [name for name, mark in marked if not mark]
    for part in (only, left):
        again = Written.of(list(part)) if len(part) else part
        assert again is not None
        assert (again.text, again.ends.tolist()) == (part.text, part.ends.tolist())
    whole = b",".join(b'{"Host":%b}' % json.dumps(name).encode() for name in kept)
    assert only.each_with(b"}", b'{"Host":') == whole
    assert json.loads(b"{%b}" % only.each_with(b':"full"')) == dict.fromkeys(kept, "full")
