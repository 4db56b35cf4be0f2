"""The fault campaign in its short form: one fault of each kind. All of it: `python -m bench.campaign`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import campaign, campaign_faults
from bench.campaign import SHORT, play
from bench.campaign_faults import FAULTS, MESSAGES, Fault, message
from bench.scene import WORKLOADS
from gemini.cli.main import main
from libhook.core import lib
from tests.bench.running import answer_of


def test_there_are_forty_faults_and_three_workloads_and_every_message_is_among_them() -> None:
    assert len(FAULTS) >= 40
    assert len(WORKLOADS) == 3
    tampered = {number for number, *_ in MESSAGES.values()}
    every = {getattr(lib, name) for name in dir(lib) if name.startswith("WIRE_") and name in TYPES}
    assert every == tampered


TYPES = {
    "WIRE_HELLO", "WIRE_WELCOME", "WIRE_TOKEN_REQUEST", "WIRE_GRANT", "WIRE_EXTEND", "WIRE_REVOKE", "WIRE_RETURN",
    "WIRE_MEM_RESERVE", "WIRE_MEM_REPLY", "WIRE_MEM_RELEASE", "WIRE_MEM_RECALL", "WIRE_STATS", "WIRE_ERROR",
    "WIRE_USED",
}  # fmt: skip


# Shares within 2 pp over half a second: a busy machine may need another try for them, and for nothing else.
@pytest.mark.flaky(reruns=2, only_rerun="^Failed: shares alone")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "workload"), SHORT, ids=[f"{fault}, {workload}" for fault, workload in SHORT])
def test_all_is_right_again_after(fault: str, workload: str) -> None:
    answer, said = answer_of("bench.campaign", "--fault", fault, "--workload", workload)
    failed = answer["results"][0]["failed"]
    if failed and all(text.startswith("a share is off") for text in failed):
        pytest.fail(f"shares alone: {failed}; {said}")
    assert not failed, said


@pytest.mark.timeout(300)
def test_a_case_that_did_not_see_its_fault_fails_and_leaves_a_trace_that_replays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "OUT", tmp_path)
    monkeypatch.setattr(campaign_faults, "SEEN_SECONDS", 0.1)
    monkeypatch.setattr(campaign, "MOST_ANEW", 0)
    monkeypatch.setitem(MESSAGES, "nonsense", (99, False, 0, ""))
    monkeypatch.setitem(FAULTS, "nonsense lost", Fault(message("nonsense", "lost"), proxied=True))
    result = play("nonsense lost", "two busy")
    assert "no nonsense was seen to be tampered with" in result["failed"]
    trace = Path(result["kept"]) / "trace.jsonl"
    assert main(["trace", "replay", str(trace)]) == 0
    assert "every action the same" in capsys.readouterr().out


class Stalled:
    """A probe that saw the machine stand still for so long, once for each case."""

    def __init__(self, *longest_ms: float) -> None:
        self.left = list(longest_ms)

    def __call__(self) -> Stalled:
        return self

    def __enter__(self) -> Stalled:
        self.stalls = [(0, int(self.left.pop(0) * 1e6))]
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("stood_ms", "fails", "failed", "played"),
    [
        ((500,), 0, False, 1),  # what ends well is not asked about
        ((3,), 1, True, 1),
        ((500, 3), 1, False, 2),
        ((500, 500, 500, 500), 9, True, 4),
    ],
)
def test_a_case_that_failed_is_played_anew_only_where_the_machine_stood_still(
    monkeypatch: pytest.MonkeyPatch, stood_ms: tuple[float, ...], fails: int, failed: bool, played: int
) -> None:
    seen: list[str] = []

    def once(fault: str, workload: str) -> dict[str, Any]:
        seen.append(fault)
        return {"fault": fault, "workload": workload, "failed": ["a share"] if len(seen) <= fails else []}

    monkeypatch.setattr(campaign, "once", once)
    monkeypatch.setattr(campaign, "Probe", Stalled(*stood_ms))
    result = play("Hello lost", "two busy")
    assert bool(result["failed"]) == failed
    assert len(seen) == played
    assert len(result["stood_ms"]) == played - 1
