"""What makes a promise valid; every refusal is a line with the value."""

import pytest

from scheduler_backend.core.tenant import InvalidSpec, TenantSpec, share_text, spec_of, validate, validate_sum


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        (TenantSpec("a", 1_000_001), "request 1.000001 is not within 0..1"),
        (TenantSpec("a", -1), "request -0.000001 is not within"),
        (TenantSpec("a", 0, 0), "limit 0 is not above 0"),
        (TenantSpec("a", 0, 1_500_000), "limit 1.5 is not above 0 and up to 1"),
        (TenantSpec("a", 500_000, 300_000), "request 0.5 is above limit 0.3"),
        (TenantSpec("a", memory_bytes=-5), "memory -5 bytes is negative"),
        (TenantSpec("a", gpus=()), "is empty"),
        (TenantSpec("a", gpus=(0, 0)), "names one twice"),
        (TenantSpec("a", gpus=(0, 4)), "GPU 4 does not exist; this node has 2"),
        (TenantSpec("", 0), "'' is not valid"),
        (TenantSpec("a/b", 0), "'a/b' is not valid"),
        (TenantSpec(".a", 0), "'.a' is not valid"),
        (TenantSpec("a" * 64, 0), "is not valid"),
    ],
)
def test_what_is_not_valid_is_named(spec: TenantSpec, match: str):
    with pytest.raises(InvalidSpec, match=match):
        validate(spec, 2)


def test_bounds_are_valid():
    validate(TenantSpec("a" * 63, 0, 1, 0), 1)
    validate(TenantSpec("A-1_b.c", 1_000_000, 1_000_000, 1 << 40, True, (1, 0)), 2)


def test_requests_of_one_gpu_sum_to_the_whole_at_most():
    others = [TenantSpec("a", 400_000, gpus=(0, 1)), TenantSpec("b", 500_000, gpus=(1,))]
    validate_sum(TenantSpec("c", 600_000, gpus=(0,)), others)
    with pytest.raises(InvalidSpec, match=r"GPU 1: 0.9 is promised already; ask at most 0.1"):
        validate_sum(TenantSpec("c", 100_001, gpus=(0, 1)), others)


def test_a_spec_survives_json():
    spec = TenantSpec("a", 1, 2, 3, True, (0, 1))
    assert spec_of(["a", 1, 2, 3, True, [0, 1]]) == spec
    assert share_text(300_000) == "0.3"
    assert share_text(0) == "0"
