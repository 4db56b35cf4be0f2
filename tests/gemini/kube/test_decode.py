"""The API server's text is read whatever who makes objects has put into it, and says the same where it matters."""

from __future__ import annotations

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemini.kube.decode import DEEPEST, decode, plain

DEEP = 9_000  # the API server lets 10,000 in


@pytest.mark.parametrize(
    ("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[1,{"]\\"}[":[[2],', b"]}]")], ids=["lists", "maps", "both"]
)
def test_what_lies_beside_an_endless_nest_is_read(begin: bytes, end: bytes) -> None:
    text = b'{"before":[{"x":"[[{"}],"deep":' + begin * DEEP + b"1" + end * DEEP + b',"after":"\\\\\\"]"}'
    with pytest.raises(ValueError, match="depth"):
        orjson.loads(text)
    found = decode(text)
    assert (found["before"], found["after"]) == ([{"x": "[[{"}], '\\"]')


def test_half_of_a_pair_is_mended_and_a_whole_one_stays() -> None:
    text = rb'["\ud800", "\\ud800", "\ud83d\ude00", "\\\udc00x", "\ud800\ud83d\ude00", "\u00e9"]'
    assert decode(text) == ["\ufffd", r"\ud800", "\U0001f600", "\\\ufffdx", "\ufffd\U0001f600", "\u00e9"]
    assert orjson.dumps(decode(text))


def test_a_number_beyond_any_double_is_one() -> None:
    assert decode(b'{"a":1e999,"b":1}') == {"a": math.inf, "b": 1}


@pytest.mark.parametrize("text", [b"", b"{", b"[1", b'"', b'{"a":}', b"[" * DEEP, b"<html>", b'{"\0\0":1}x', b"\xff"])
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of two parsers
        decode(text)


texts = st.text(st.characters(codec="utf-8") | st.sampled_from('\\"[]{}\0'), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)


@given(values, st.booleans())
def test_made_plain_it_says_the_same(value: object, ascii_alone: bool) -> None:
    assert json.loads(plain(json.dumps(value, ensure_ascii=ascii_alone).encode())) == value


@given(values, st.integers(1, 2 * DEEPEST))
def test_only_what_lies_too_deep_is_left_out(value: object, depth: int) -> None:
    text = b"[" * depth + json.dumps(value).encode() + b"]" * depth
    found = json.loads(plain(text))
    for _ in range(min(depth, DEEPEST)):
        (found,) = found
    own = 0 if not isinstance(value, list | dict) else 1
    if depth + own <= DEEPEST - 10:
        assert found == value
    if depth > DEEPEST:
        assert found is None
