"""What a tenant was promised, as data, and what makes such a promise valid.

Shares are parts per million of one GPU's time, memory is bytes: exact integers, so that sums can be compared. The texts
that people write ("30%", "4GiB") are read in scheduler_backend/config.py and gemini/units.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

WHOLE_PPM = 1_000_000  # all of one GPU's time
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # fits the wire's 64 bytes, and a path component


class InvalidSpec(ValueError):
    """A promise that cannot be made; the text is one line that names the value and the mend."""


class TenantSpec(NamedTuple):
    """One tenant's promise. `gpus` are the daemon's own indices; the same share is promised on each of them."""

    name: str
    request_ppm: int = 0  # guaranteed; 0 is best effort
    limit_ppm: int = WHOLE_PPM  # the most it may take
    memory_bytes: int = 0  # on each GPU, over all processes; 0 is not limited
    latency: bool = False  # class latency (else batch)
    gpus: tuple[int, ...] = (0,)


def spec_of(fields: Sequence[Any]) -> TenantSpec:
    """A spec from its fields as JSON gives them back."""
    name, request_ppm, limit_ppm, memory_bytes, latency, gpus = fields
    return TenantSpec(str(name), int(request_ppm), int(limit_ppm), int(memory_bytes), bool(latency), tuple(gpus))


def share_text(ppm: int) -> str:
    """A share as a person writes it: 300000 -> "0.3"."""
    return f"{ppm / WHOLE_PPM:.6f}".rstrip("0").rstrip(".") or "0"


def validate(spec: TenantSpec, gpu_count: int) -> None:
    """Raise InvalidSpec unless 0 <= request <= limit <= 1, limit > 0, and name, memory and GPUs make sense."""
    if not NAME.fullmatch(spec.name):
        raise InvalidSpec(
            f"tenant name {spec.name!r} is not valid; use up to 63 of letters, digits and ._- after a letter or digit"
        )
    if not 0 <= spec.request_ppm <= WHOLE_PPM:
        raise InvalidSpec(f"request {share_text(spec.request_ppm)} is not within 0..1; give a share such as 0.3 or 30%")
    if not 0 < spec.limit_ppm <= WHOLE_PPM:
        raise InvalidSpec(
            f"limit {share_text(spec.limit_ppm)} is not above 0 and up to 1; give a share such as 0.5 or 50%"
        )
    if spec.request_ppm > spec.limit_ppm:
        raise InvalidSpec(
            f"request {share_text(spec.request_ppm)} is above limit {share_text(spec.limit_ppm)}; "
            f"lower the request or raise the limit"
        )
    if spec.memory_bytes < 0:
        raise InvalidSpec(f"memory {spec.memory_bytes} bytes is negative; give a size such as 4GiB, or 0 for no limit")
    if not spec.gpus or len(set(spec.gpus)) != len(spec.gpus):
        raise InvalidSpec(f"gpus {list(spec.gpus)} is empty or names one twice; list each GPU once")
    for gpu in spec.gpus:
        if not 0 <= gpu < gpu_count:
            raise InvalidSpec(f"GPU {gpu} does not exist; this node has {gpu_count}, numbered from 0")


def validate_sum(spec: TenantSpec, others: Iterable[TenantSpec]) -> None:
    """Raise InvalidSpec where the requests on one of the tenant's GPUs would sum to more than the whole of it."""
    promised: dict[int, int] = {}
    for other in others:
        for gpu in other.gpus:
            promised[gpu] = promised.get(gpu, 0) + other.request_ppm
    for gpu in spec.gpus:
        already = promised.get(gpu, 0)
        if already + spec.request_ppm > WHOLE_PPM:
            raise InvalidSpec(
                f"request {share_text(spec.request_ppm)} does not fit on GPU {gpu}: {share_text(already)} is promised "
                f"already; ask at most {share_text(WHOLE_PPM - already)}"
            )
