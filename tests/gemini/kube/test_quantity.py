# ruff: noqa: E501 - a case of a table is one line
"""Sizes, counts and shares are exact, and every error names the value and the mend."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemini.kube import quantity
from gemini.units import BadValue


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4Gi", 4 * 2**30),
        ("4GiB", 4 * 2**30),
        ("512Mi", 512 * 2**20),
        ("4G", 4 * 10**9),
        ("32GB", 32 * 10**9),
        ("15472384Ki", 15_843_721_216),
        ("1e9", 10**9),
        ("1E", 10**18),
        ("1.5Gi", 3 * 2**29),
        ("0.1Gi", 107_374_183),  # rounded up, as Kubernetes does
        (4096, 4096),
        (1e9, 10**9),
        ("100k", 100_000),
    ],
)
def test_sizes_are_exact_bytes(text: object, count: int) -> None:
    assert quantity.parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    ["", " ", "Gi", "4 Gi", "4Q", "4gi", "4K", "-4Gi", "0", "NaN", "inf", "1e99", "512m", "0.5", "0x10", "٤Gi", "9Ei", True, None, [], {}],
)  # fmt: skip
def test_what_is_no_size_is_refused_with_a_mend(text: object) -> None:
    with pytest.raises(BadValue, match=r".*; .+|.*is not text.*"):
        quantity.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "percent"),
    [("0.3", 30), ("30%", 30), ("0", 0), ("1", 100), ("100%", 100), (".25", 25), ("1.0", 100), (0.07, 7), (1, 100), ("0.30", 30), (" 0.3 ", 30)],
)  # fmt: skip
def test_shares_are_whole_percent(text: object, percent: int) -> None:
    assert quantity.parse_share(text) == percent


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1.5", "1.5 is above 1; "),
        ("30", "30 is above 1; write 30% or 0.3"),
        ("2", "2 is above 1; .*gemini.io/gpu-count"),
        ("101%", "101% is above 1"),
        ("-0.1", "-0.1 is below 0; "),
        ("0.125", "0.125 is finer than one percent of a card; write 12% or 13%"),
        ("NaN", "NaN is not a number; "),
        ("nan%", "nan% is not a number"),
        ("half", "half is not a number"),
        ("1e-1", "1e-1 is not a number"),
        ("", "'' is not a number"),
        (float("nan"), "nan is not a number"),
        (True, "True is not text"),
    ],
)
def test_a_bad_share_names_the_value_and_the_mend(text: object, problem: str) -> None:
    with pytest.raises(BadValue, match=problem):
        quantity.parse_share(text)


@pytest.mark.parametrize(("text", "percent"), [("50", 50), ("50%", 50), (100, 100), ("1", 1)])
def test_ratios_are_percent_of_a_card(text: object, percent: int) -> None:
    assert quantity.parse_ratio(text) == percent


@pytest.mark.parametrize("text", ["0", "-1", "101", "0.5", "33.3", "x", "50%%", ""])
def test_a_bad_ratio_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="; "):
        quantity.parse_ratio(text)


@pytest.mark.parametrize(("text", "count"), [("2", 2), (2, 2), ("1k", 1000), ("2000m", 2), ("0", 0)])
def test_counts_are_whole(text: object, count: int) -> None:
    assert quantity.parse_whole(text) == count


@pytest.mark.parametrize("text", ["-1", "1.5", "1500m", "two", "99999999999999999999"])
def test_a_bad_count_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="; "):
        quantity.parse_whole(text)


@given(st.integers(0, 100))
def test_every_percent_survives_each_way_to_write_it(percent: int) -> None:
    for text in (f"{percent}%", f"{percent / 100:.2f}", str(percent / 100), percent / 100):
        assert quantity.parse_share(text) == percent


ANYTHING: Any = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()))


@given(ANYTHING)
def test_nothing_but_a_bad_value_is_raised(value: object) -> None:
    for parse in (quantity.parse_bytes, quantity.parse_whole, quantity.parse_share, quantity.parse_ratio):
        with suppress(BadValue):
            assert isinstance(parse(value), int)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", 1), ("0.5", 0.5), (".5", 0.5), ("2.", 2), ("100m", 0.1), ("1k", 1000), ("1Ki", 1024),
        ("1.5Gi", 1.5 * 2**30), ("7Ei", 7 * 2**60), ("3E", 3 * 10**18), ("1e3", 1000), ("12E2", 1200), ("5e-1", 0.5),
        ("1n", 1e-9), ("0.1n", 1e-9), (3, 3),
        ("", 0), ("x", 0), ("1K", 0), ("1ki", 0), ("-1", 0), (None, 0),
    ],
)  # fmt: skip
def test_the_quick_way_says_what_kubernetes_keeps_and_of_what_is_none_nothing(text: object, amount: float) -> None:
    assert quantity.billionths(text) == round(amount * quantity.BILLION)


@pytest.mark.parametrize("number", ["0", "1", "007", "0.001", "1.9999999999", ".5", "123456789.123456789", "9" * 18])
@pytest.mark.parametrize("suffix", ["", "n", "u", "m", "k", "M", "E", "Ki", "Gi", "Ei", "e0", "e-12", "E9"])
def test_both_ways_read_the_same(number: str, suffix: str) -> None:
    amount = quantity.billionths(number + suffix)
    try:
        exact = quantity.parse_quantity(number + suffix) * quantity.BILLION
    except BadValue:
        assert amount > quantity.MAX_QUANTITY * quantity.BILLION
    else:
        assert amount == -(-exact.numerator // exact.denominator)


# What Value() and MilliValue() of the sum of these are in apimachinery 0.36.
@pytest.mark.parametrize(
    ("texts", "whole", "thousandths"),
    [
        ("1.5", 2, 1500), ("1 500m", 2, 1500), ("9E", 9 * 10**18, 0), ("10P", 10**16, 0), ("9P", 9 * 10**15, 9 * 10**18),
        ("100000000000M", 10**17, 10**20 % 2**64), ("10E", 0, 0), ("1e19", 0, 0), ("1e99", 0, 0), ("9E 9E", 0, 0), ("9E 1", 9 * 10**18 + 1, -2011107970261187608),
        ("9223372036854775807", 2**63 - 1, -1000), ("9223372036854775807 1", -(2**63), 0), ("16Ei", 2**63 - 1, -1000),
        ("18446744073709551616", 0, 0), ("18446744073709551617", 1, 1000), ("18446744073709551616 5", 5, 5000),
        ("7Ei", 7 * 2**60, -(2**63)), ("8Ei", 2**63 - 1, -1000), ("4Ei 4Ei", -(2**63), 0), ("9E 9E 16Gi", -446744056529682432, -4022198760653193216),
        ("1234567890123456789012m", 1234567890123456790, -1363962815083169260),
    ],
)  # fmt: skip
def test_what_is_more_than_kubernetes_can_count_is_what_it_becomes_there(
    texts: str, whole: int, thousandths: int
) -> None:
    total = sum(map(quantity.Kept.read, texts.split()), quantity.Kept.read("0"))
    assert (total.counted(), total.counted(thousandths=True)) == (whole, thousandths)
