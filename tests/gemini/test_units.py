"""Shares and sizes: what is read, what is refused and with which words, and what always-busy tenants are owed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemini.units import (
    BadValue,
    entitled,
    format_share,
    format_size,
    parse_memory,
    parse_share,
    parse_size,
    resolve_shares,
)


@pytest.mark.parametrize(
    ("text", "share"),
    [("0.3", 0.3), ("30%", 0.3), ("0", 0.0), ("1", 1.0), ("100%", 1.0), (".5", 0.5), ("12.5%", 0.125)],
)
def test_a_share_is_a_part_or_a_percentage(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "x", "0.3x", "nan", "inf", "1e999999999", "-0.1", "1.5", "150%", "0.3 0.4", "%"])
def test_what_is_no_share_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_share(text, "--request")
    assert repr(text) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("request_", "limit", "pair"),
    [
        (None, None, (0, 1)),
        ("0.3", None, (0.3, 1)),
        (None, "0.4", (0.4, 0.4)),
        ("0.2", "0.4", (0.2, 0.4)),
        ("0", "50%", (0, 0.5)),
    ],
)
def test_missing_shares_follow_kubernetes(request_: str | None, limit: str | None, pair: tuple[float, float]) -> None:
    assert resolve_shares(request_, limit) == pair


@pytest.mark.parametrize(("request_", "limit"), [("0.5", "0.4"), (None, "0"), ("0", "0")])
def test_impossible_pairs_are_refused(request_: str | None, limit: str | None) -> None:
    with pytest.raises(BadValue):
        resolve_shares(request_, limit)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4Gi", 4 << 30),
        ("512Mi", 512 << 20),
        ("4G", 4 * 10**9),
        ("4GiB", 4 << 30),
        ("4GB", 4 * 10**9),
        ("1.5Gi", 3 << 29),
        ("4096", 4096),
        ("1e9", 10**9),
        ("1000m", 1),
        ("80 GiB", 80 << 30),
        ("1k", 1000),
    ],
)
def test_sizes_are_kubernetes_quantities_and_the_usual_spelling(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "4Gib", "4 giga", "-1Gi", "0", "1m", "1e999999", "9e19", "0x10"])
def test_what_is_no_size_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_size(text)
    assert repr(text) in str(refused.value)


@given(st.integers(min_value=1, max_value=2**62))
def test_any_number_of_bytes_is_a_size(size: int) -> None:
    assert parse_size(str(size)) == size


def test_sizes_and_shares_are_shown_short() -> None:
    assert [format_size(n) for n in (0, 1023, 1 << 30, 80 << 30, 3 << 29, 999 << 50, 7 << 60)] == [
        "0 B",
        "1023 B",
        "1 GiB",
        "80 GiB",
        "1.5 GiB",
        "999 PiB",
        "7 EiB",
    ]
    assert [format_share(x) for x in (0, 0.3, 1.0, 0.125)] == ["0", "0.3", "1", "0.125"]


@pytest.mark.parametrize(
    ("shares", "owed"),
    [
        ([(0.5, 0.6), (0.3, 1.0), (0.2, 0.2)], [0.5, 0.3, 0.2]),
        ([(0.3, 0.4), (0.2, 1.0), (0.1, 0.1)], [0.4, 0.5, 0.1]),
        ([(0.0, 1.0), (0.5, 0.5), (0.3, 0.3)], [0.2, 0.5, 0.3]),
        ([(0.3, 1.0), (0.2, 1.0)], [0.6, 0.4]),
        ([(0.0, 1.0), (0.0, 1.0)], [0.5, 0.5]),
        ([(0.3, 0.5)], [0.5]),
        ([], []),
    ],
)
def test_always_busy_tenants_are_owed(shares: list[tuple[float, float]], owed: list[float]) -> None:
    assert entitled(shares) == pytest.approx(owed)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 1000)), max_size=20))
def test_what_is_owed_lies_between_request_and_limit_and_fills_the_card(raw: list[tuple[int, int]]) -> None:
    scale = max(1, sum(r for r, _ in raw))
    shares = [(r / scale, max(r / scale, min(1.0, limit / 1000))) for r, limit in raw]
    owed = entitled(shares)
    for (request, limit), got in zip(shares, owed, strict=True):
        assert request - 1e-9 <= got <= limit + 1e-9
    assert sum(owed) == pytest.approx(min(1.0, sum(limit for _, limit in shares))) if shares else True


@pytest.mark.parametrize(
    ("text", "size"), [("8g", 8 * 10**9), ("8gi", 8 << 30), ("8gib", 8 << 30), ("512mb", 512 * 10**6), ("1t", 10**12)]
)
def test_units_may_be_small_letters(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["8", "1024", "1000Ki"])
def test_memory_whose_unit_was_forgotten_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="write a unit, such as 8GiB"):
        parse_memory(text)
