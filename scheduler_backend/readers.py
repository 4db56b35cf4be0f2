"""Readers of single values, as a file, a command line or the control API has them: each raises Problem with the value.

`what` names the value in that one line: an option, or a key and where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from scheduler_backend.core.policy import MS, ORDERINGS
from scheduler_backend.core.tenant import WHOLE_PPM
from scheduler_backend.problem import Problem

Reader = Callable[[object, str], Any]
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGTPE]?)(i?)B?")
LONGEST_NUMBER = 64  # characters of a share or a size; whoever writes more means none
LEAST_TRACE_BYTES = 64 << 10  # the opening of a file takes up to 4 KiB, and events are written a hundred at a time


def parse_share(value: object, what: str) -> int:
    """0.3, "0.3" or "30%" as ppm; raises Problem with the value. The range is the tenant's matter."""
    text = _short(value)
    try:
        if isinstance(value, bool) or len(text) > LONGEST_NUMBER:
            raise InvalidOperation
        number = Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not number.is_finite() or abs(number) > 1000:
            raise InvalidOperation
    except InvalidOperation:
        raise Problem(f"{what} {text!r} is no share; write it such as 0.3 or 30%") from None
    return round(number * WHOLE_PPM)


def _short(value: object) -> str:
    """A value's text without the blanks around it, and no longer than can be told from one that is too long."""
    text = str(value).strip()
    return text if len(text) <= LONGEST_NUMBER else f"{text[:LONGEST_NUMBER]}..."


def parse_bytes(value: object, what: str) -> int:
    """4294967296, "4Gi", "4GiB", "4G" or "512Mi" as bytes; raises Problem with the value."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    text = _short(value)
    match = _SIZE.fullmatch(text) if isinstance(value, str) and len(text) <= LONGEST_NUMBER else None
    if match is None:
        told = repr(text) if isinstance(value, str) else text
        raise Problem(f"{what} {told} is no size; write it such as 4GiB, 512Mi or 4G")
    power = " KMGTPE".index(match[2].upper()) if match[2] else 0
    size = int(Decimal(match[1]) * (1024 if match[3] else 1000) ** power)
    if size >= 1 << 63:
        raise Problem(f"{what} {value!r} is more than any card has; write it such as 4GiB")
    return size


def resolve(request: object, limit: object, name: str) -> tuple[int, int]:
    """Request and limit in ppm with Kubernetes' defaults: no limit is 1, no request beside a limit equals it."""
    limit_ppm = parse_share(limit, f"tenant {name}: limit") if limit is not None else WHOLE_PPM
    if request is not None:
        return parse_share(request, f"tenant {name}: request"), limit_ppm
    return (limit_ppm if limit is not None else 0), limit_ppm


def flag(value: object, what: str) -> bool:
    if isinstance(value, bool):
        return value
    raise Problem(f"{what} {value!r} is neither true nor false; write one of them")


def milliseconds(value: object, what: str) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 3_600_000:
        return round(value * MS)
    raise Problem(f"{what} {value!r} is no time; give milliseconds above 0, such as 10")


def count(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000:
        return value
    raise Problem(f"{what} {value!r} is no count; give a whole number from 0 to 1000")


def trace_bytes(value: object, what: str) -> int:
    size = parse_bytes(value, what)
    if size < LEAST_TRACE_BYTES:
        raise Problem(f"{what} {value!r} is too little for a trace; give 64KiB or more, or trace = false")
    return size


def ordering(value: object, what: str) -> str:
    if isinstance(value, str) and value in ORDERINGS:
        return value
    raise Problem(f"{what} {value!r} is unknown; there are {', '.join(ORDERINGS)}")


def port(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535:
        return value
    raise Problem(f"{what} {value!r} is no port; give a number from 1 to 65535, or 0 for any free one")


def seconds(value: object, what: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise Problem(f"{what} {value!r} is no time; give seconds, 0 or more")


def level(value: object, what: str) -> str:
    if isinstance(value, str) and value in ("error", "warning", "info", "debug"):
        return value
    raise Problem(f"{what} {value!r} is unknown; there are error, warning, info, debug")


def text(value: object, what: str) -> str:
    if isinstance(value, str):
        return value
    raise Problem(f"{what} {value!r} is no text; write it in quotes")


def path(value: object, what: str) -> Path:
    if isinstance(value, str | Path) and str(value):
        return Path(value).absolute()
    raise Problem(f"{what} {value!r} is no path; give one")


def share(value: object, what: str) -> int:
    ppm = parse_share(value, what)
    if not 0 <= ppm <= WHOLE_PPM:
        raise Problem(f"{what} {value!r} is not within 0..1; write it such as 0.3 or 30%")
    return ppm


def number(value: object) -> object:
    """A number written on the command line, as TOML would give it."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value
