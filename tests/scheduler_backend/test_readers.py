"""Single values as people write them: shares, sizes, and what is neither."""

from __future__ import annotations

import time

import pytest

from scheduler_backend import readers
from scheduler_backend.problem import Problem


@pytest.mark.parametrize(
    ("text", "ppm"), [(0.3, 300_000), ("30%", 300_000), ("0.3", 300_000), (1, 1_000_000), ("0.0000005", 0), (0, 0)]
)
def test_shares(text: object, ppm: int):
    assert readers.parse_share(text, "request") == ppm


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4Gi", 4 << 30),
        ("4GiB", 4 << 30),
        ("4G", 4 * 10**9),
        ("512Mi", 512 << 20),
        (7, 7),
        ("1.5k", 1500),
        ("2Pi", 2 << 50),
    ],
)
def test_sizes(text: object, size: int):
    assert readers.parse_bytes(text, "memory") == size


@pytest.mark.parametrize("text", ["1{}x", "{}", "{}x", "0.{}1x"])
@pytest.mark.parametrize("blank", [" ", "0", "1", "\t"])
def test_a_text_without_end_is_refused_in_a_line_and_as_soon_as_it_is_seen(text: str, blank: str):
    def seconds(length: int) -> float:
        long = text.format(blank * length)
        began = time.perf_counter()
        for read in (readers.parse_bytes, readers.parse_share):
            with pytest.raises(Problem) as refused:
                read(long, "memory")
            assert len(str(refused.value)) < 200
        return time.perf_counter() - began

    assert min(seconds(40_000) for _ in range(3)) < 40 * max(1e-4, min(seconds(4_000) for _ in range(3)))
