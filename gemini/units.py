"""Shares and sizes as people write them: the one place where they are read and written.

A share is a part of one GPU's time, `0.3` or `30%`. A size is a Kubernetes quantity (`4Gi`, `512Mi`, `4G`, `1e9`) or
the usual `4GiB`, `4GB`. Whatever is wrong is a BadValue whose text names the value and the mend. No I/O here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from scheduler_backend.core.policy import best_effort_ppm

PPM = 1_000_000  # shares are exact to one millionth, as on the wire

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_BINARY = {unit: 1024 ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, **{u: 1000 ** (p + 2) for p, u in enumerate(("M", "G", "T", "P", "E"))}}
_SUFFIXES = {
    **_BINARY,
    **_DECIMAL,
    **{f"{unit}B": factor for unit, factor in {**_BINARY, **_DECIMAL}.items()},
    "m": Fraction(1, 1000),  # Kubernetes' own; legal as long as whole bytes come out
}
_SUFFIXES |= {unit.lower(): factor for unit, factor in _SUFFIXES.items() if unit.lower() not in _SUFFIXES}
LEAST_MEMORY = 1 << 20  # of a tenant; less is a unit that was forgotten


class BadValue(ValueError):
    """A value that a person wrote and must mend; the text is fit for one line on stderr."""


def _number(text: str) -> tuple[Fraction, str] | None:
    match = _NUMBER.match(text)
    if match is None or len(match.group(3) or "") > 5:
        return None
    return Fraction(match.group(0)), text[match.end() :]


def parse_share(text: str, what: str = "share") -> float:
    """`0.3` or `30%` -> 0.3, rounded to one millionth; within 0..1, else BadValue."""
    parsed = _number(text.strip())
    if parsed is None or parsed[1].strip() not in ("", "%"):
        raise BadValue(f"{what} {text!r} is no share; write a part of one GPU such as 0.3 or 30%")
    value = parsed[0] / (100 if parsed[1].strip() else 1)
    if not 0 <= value <= 1:
        raise BadValue(f"{what} {text!r} is outside 0..1; write a part of one GPU such as 0.3 or 30%")
    return round(value * PPM) / PPM


def resolve_shares(request: str | None, limit: str | None) -> tuple[float, float]:
    """The pair (request, limit) with the defaults that Kubernetes uses for CPU: a missing limit is 1, a missing request
    beside a limit equals it; neither given: 0 and 1. Checks 0 <= request <= limit <= 1 and limit > 0."""
    most = 1.0 if limit is None else parse_share(limit, "limit")
    if most <= 0:
        raise BadValue(f"limit {limit!r} lets nothing run; give a limit above 0, or leave it out for 1")
    if request is None:
        return (0.0 if limit is None else most), most
    least = parse_share(request, "request")
    if least > most:
        raise BadValue(f"request {request} is above limit {limit}; lower the request or raise the limit")
    return least, most


def parse_size(text: str, what: str = "size") -> int:
    """`4Gi`, `512Mi`, `4GiB`, `4G`, `1e9`, `4096` -> bytes; BadValue for what is no whole, positive number of bytes."""
    parsed = _number(text.strip())
    factor = None if parsed is None else _SUFFIXES.get(parsed[1].strip())
    if parsed is None or factor is None:
        raise BadValue(f"{what} {text!r} is no size; write it such as 4GiB, 512Mi or 4G")
    value = parsed[0] * factor
    if value <= 0:
        raise BadValue(f"{what} {text!r} is not above 0; write it such as 4GiB, or leave it out for the whole card")
    if value.denominator != 1 or value >= 2**63:
        raise BadValue(f"{what} {text!r} is no whole number of bytes below 8Ei; write it such as 4GiB")
    return int(value)


def parse_memory(text: str) -> int:
    """The size of a tenant's memory; BadValue where it is so small that its unit was forgotten."""
    size = parse_size(text, "memory")
    if size < LEAST_MEMORY:
        raise BadValue(f"memory {text!r} is {size} bytes, less than any program needs; write a unit, such as 8GiB")
    return size


def format_size(size_bytes: int) -> str:
    """Bytes as a person reads them: `80 GiB`, `1.5 GiB`, `0`."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024 or unit == "EiB":
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def format_share(share: float) -> str:
    """0.3 -> `0.3`, 1.0 -> `1`."""
    return f"{share:.6f}".rstrip("0").rstrip(".") or "0"


def entitled(shares: Sequence[tuple[float, float]]) -> list[float]:
    """What the policy owes each of several always-busy tenants of one GPU, given their (request, limit).

    What scheduler_backend/core/policy.py says in ppm, here without rounding: water-filling by the requests and the
    small weight of best effort, which sum to at most 1; then, where best effort has none, in equal parts to it.
    """
    part = best_effort_ppm([(round(request * PPM), round(limit * PPM)) for request, limit in shares]) / PPM
    owed = [request or min(part, limit) for request, limit in shares]
    weights = list(owed)
    for weight in (weights, [float(w == 0) for w in weights]):
        while (left := 1.0 - sum(owed)) > 1e-12:
            open_ = [i for i, (_, limit) in enumerate(shares) if weight[i] > 0 and limit - owed[i] > 1e-12]
            if not open_:
                break
            total = sum(weight[i] for i in open_)
            step = min(left, *((shares[i][1] - owed[i]) * total / weight[i] for i in open_))
            for i in open_:
                owed[i] += step * weight[i] / total
    return owed
