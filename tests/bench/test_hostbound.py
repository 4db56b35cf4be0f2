"""Real host-bound programs under a real daemon on the simulated card: who runs beside whom, and when not."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from bench.arms import compile_program
from bench.bed import ROOT, Bed, wait_for
from bench.hostbound import BUSY, LINK, Host

SLOW = Host(0.4, 50, 150, 4)


@pytest.fixture
def bed() -> Iterator[Bed]:
    with Bed() as bed:
        yield bed


def start(bed: Bed, name: str, host: Host, *, limit: float = 1.0, request: float = 0.0) -> subprocess.Popen[bytes]:
    program = compile_program(ROOT / "bench" / "hostbound.c", ROOT / "build" / "bench" / "hostbound", *LINK)
    bed.tenant(name, request or host.request, limit)
    return bed.spawn(name, [program, *host.words()], stdout=subprocess.DEVNULL)


def beside(bed: Bed) -> set[str]:
    return {tenant["name"] for tenant in bed.state()["tenants"] if tenant["beside"]}


def test_two_host_bound_programs_run_beside_each_other_and_one_goes_on_when_the_other_is_killed(bed: Bed) -> None:
    programs = [start(bed, name, SLOW) for name in ("a", "b")]
    wait_for(lambda: beside(bed) == {"a", "b"}, 60, "both beside each other")
    state = {tenant["name"]: tenant for tenant in bed.state()["tenants"]}
    assert all(0 < state[name]["duty"] < 0.82 for name in ("a", "b")), state
    programs[0].send_signal(signal.SIGKILL)
    programs[0].wait()
    _, before = bed.busy()
    wait_for(lambda: sum(bed.busy()[1].values()) > sum(before.values()) + 50_000_000, 60, "work of the other")


def test_beside_a_busy_one_it_needs_no_token(bed: Bed) -> None:
    start(bed, "slow", SLOW)
    start(bed, "busy", BUSY)
    wait_for(
        lambda: bed.state()["devices"][0]["holder"] == "busy" and beside(bed) == {"slow"}, 60, "a holder beside it"
    )


def test_a_limit_on_the_card_gives_all_turns_again(bed: Bed) -> None:
    for name in ("a", "b"):
        start(bed, name, SLOW)
    wait_for(lambda: beside(bed) == {"a", "b"}, 60, "both beside each other")
    start(bed, "limited", BUSY, limit=0.2, request=0.2)
    wait_for(lambda: not beside(bed), 60, "turns")


def test_a_frozen_one_beside_others_holds_nobody_up(bed: Bed) -> None:
    programs = {name: start(bed, name, SLOW) for name in ("a", "b")}
    wait_for(lambda: beside(bed) == {"a", "b"}, 60, "both beside each other")
    programs["a"].send_signal(signal.SIGSTOP)
    try:
        _, before = bed.busy()
        wait_for(lambda: sum(bed.busy()[1].values()) > sum(before.values()) + 200_000_000, 60, "work of the other")
        assert "a" not in beside(bed)
    finally:
        programs["a"].send_signal(signal.SIGCONT)
    wait_for(lambda: beside(bed) == {"a", "b"}, 60, "both again")
