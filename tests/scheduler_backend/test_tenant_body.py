"""What the control API says of a tenant: a promise, or one line that names the value."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.devices import Gpu
from scheduler_backend.problem import Problem
from scheduler_backend.tenant_body import is_share, read_change, read_tenant, told

GIB = 1 << 30
GPUS = [Gpu(n, f"GPU-{n}", "H100", 80 * GIB) for n in range(2)]
TRAIN = TenantSpec("train", 300_000, 600_000, 4 * GIB, False, (0, 1))


def test_what_is_not_said_has_kubernetes_defaults() -> None:
    assert read_tenant({"name": "train"}, GPUS) == TenantSpec("train", 0, 1_000_000, 0, False, (0, 1))
    said = {"name": "train", "request": 0.3, "limit": "60%", "memory_bytes": 4 * GIB, "class": "latency", "gpus": [1]}
    assert read_tenant(said, GPUS) == TRAIN._replace(latency=True, gpus=(1,))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"name": 7}, "name 7 is no name"),
        ({"name": "a", "class": "fast"}, "class 'fast' is unknown; there are latency, batch"),
        ({"name": "a", "gpus": "0"}, "gpus '0' is no list"),
        ({"name": "a", "gpus": [0, 1, 0]}, "gpus has 3 entries; this node has 2 GPUs"),
        ({"name": "a", "request": "much"}, "tenant a: request 'much' is no share"),
    ],
)
def test_a_bad_value_is_named(body: dict[str, Any], line: str) -> None:
    with pytest.raises(Problem, match=re.escape(line)):
        read_tenant(body, GPUS)


def test_a_share_is_said_by_true_and_lasts() -> None:
    assert not is_share({"name": "a", "pid": 1})
    assert is_share({"name": "a", "share": True})
    for body, line in (
        ({"share": 1}, "share 1 is not"),
        ({"share": True, "pid": 1}, "stands beside"),
        ({"x": 1}, "'x'"),
    ):
        with pytest.raises(Problem, match=line):
            is_share(body)


def test_a_change_keeps_what_it_does_not_say() -> None:
    assert read_change(TRAIN, {}, GPUS) == (TRAIN, False)
    spec, holding = read_change(TRAIN, {"limit": 1, "class": "latency", "holding": True}, GPUS)
    assert (spec, holding) == (TRAIN._replace(limit_ppm=1_000_000, latency=True), True)


@pytest.mark.parametrize(("body", "line"), [({"name": "b"}, "'name' cannot be changed"), ({"holding": 1}, "holding 1")])
def test_what_cannot_be_changed_is_named(body: dict[str, Any], line: str) -> None:
    with pytest.raises(Problem, match=line):
        read_change(TRAIN, body, GPUS)


def test_a_field_is_told_as_a_person_writes_it() -> None:
    assert [told(TRAIN, name) for name in ("request_ppm", "latency", "memory_bytes")] == [
        "request 0.3",
        "class batch",
        f"memory_bytes {4 * GIB}",
    ]
