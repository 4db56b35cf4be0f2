"""Two vLLMs with 0.7 and 0.3 of one simulated card: each within its memory, and throughput follows the shares."""

from __future__ import annotations

import pytest

from tests.frameworks.environment import python_of
from tests.frameworks.vllm_shares import SHARES, measure

pytestmark = [pytest.mark.frameworks, pytest.mark.alone, pytest.mark.timeout(900)]
WITHIN = 0.05


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("how", ["eager", "default"])
def test_two_of_a_billion_weights_get_tokens_by_their_shares(how: str) -> None:
    if python_of("vllm") is None:
        pytest.fail("vllm is not there; make frameworks fetches it")
    found = measure(how, 15)
    assert {tuple(said) for said in found["said"].values()} == {(*["answer: 16 tokens"] * 2, "memory: within its part")}
    for had in (found["busy"]["both"], found["tokens_per_second"]["both"]):
        whole = sum(had.values())
        assert {name: had[name] / whole for name in SHARES} == pytest.approx(SHARES, abs=WITHIN), found
