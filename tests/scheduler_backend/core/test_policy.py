"""The product's simulation of the pure node against what the policy promises, and the pure functions themselves.

Every message takes the same hop and hand-overs are not prepared, so that the node alone answers for what is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from scheduler_backend.core.policy import MS, ORDERINGS, Policy, entitled_shares
from scheduler_backend.simulation.daemon import Network, Watcher
from scheduler_backend.simulation.programs import SECOND, Program, spec
from scheduler_backend.simulation.watch import Gaps, GrantWaits, Timeline
from scheduler_backend.simulation.world import World

KERNEL_NS = 300_000  # of most programs here: what is launched runs so long at most after the end of a quota


def busy(name: str, request: float, limit: float = 1.0, *, latency: bool = False, **more: int) -> Program:
    return Program(spec(name, request, limit, latency=latency), **{"kernel_ns": KERNEL_NS, **more})  # type: ignore[arg-type]


def bursts(
    name: str,
    request: float,
    burst_ns: int,
    gap_ns: int,
    *,
    latency: bool = False,
    kernel_ns: int = KERNEL_NS,
    **more: int,
) -> Program:
    told = spec(name, request, latency=latency)
    return Program(told, "closed_loop", burst_ns, gap_ns, min(kernel_ns, burst_ns), **more)  # type: ignore[arg-type]


def ran(
    programs: Sequence[Program],
    seconds: float,
    hop_us: int = 150,
    *watchers: Watcher,
    policy: Policy | None = None,
    check_every: int = 1,
) -> tuple[Timeline, World]:
    """Run them so long; what each really ran is kept in bins of 10 ms, and judged by that alone."""
    timeline = Timeline(10 * MS)
    network = Network(hop_us * 1000, 0, prepared=False)
    world = World(programs, policy=policy, network=network, watchers=[timeline, *watchers], check_every=check_every)
    world.run(seconds)
    return timeline, world


def shares(timeline: Timeline, programs: Sequence[Program], start_s: float, end_s: float) -> list[float]:
    return [timeline.share(program.spec.name, start_s, end_s) for program in programs]


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def owed(programs: Sequence[Program]) -> dict[str, float]:
    return {name: ppm / 1e6 for name, ppm in entitled_shares([program.spec for program in programs]).items()}


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ("a:0.5:0.6 b:0.3:1 c:0.2:0.2", [0.5, 0.3, 0.2]),
        ("a:0.3:0.4 b:0.2:1 c:0.1:0.1", [0.4, 0.5, 0.1]),
        ("a:0.4:0.4 b:0.4:0.4 c:0:1", [0.4, 0.4, 0.2]),
        ("a:0.3:1", [1.0]),
        ("a:0.3:0.5", [0.5]),
        ("a:0:1 b:0:1 c:0:0.2", [0.4, 0.4, 0.2]),
        ("a:0.2:1 b:0.1:1 c:0:1", [0.571429, 0.285714, 0.142857]),
        ("a:0.2:1 b:0.1:1 c:0:0.04", [0.64, 0.32, 0.04]),
        ("a:0.9:1 b:0:1 c:0:1 d:0:1", [0.9, 0.033333, 0.033333, 0.033333]),
        ("a:0.7:1 b:0.3:1 c:0:1", [0.7, 0.3, 0.0]),
        ("a:0.4:1 b:0.595:1 c:0:1", [0.402010, 0.597990, 0.0]),
    ],
)
def test_entitled_shares_are_requests_then_weight_up_to_limits_then_best_effort(specs, expected):
    tenants = [spec(name, float(r), float(limit)) for name, r, limit in (item.split(":") for item in specs.split())]
    entitled = entitled_shares(tenants)
    assert [entitled[tenant.name] / 1e6 for tenant in tenants] == pytest.approx(expected, abs=2e-6)


BUSY_CASES = {
    "2 equal": ([("a", 0.5, 1), ("b", 0.5, 1)], 0.95),
    "8 equal": ([(f"t{i}", 0.125, 1) for i in range(8)], 0.95),
    "32 equal": ([(f"t{i}", 0.03125, 1) for i in range(32)], 0.95),
    "0.7 and 0.3": ([("a", 0.7, 1), ("b", 0.3, 1)], 0.95),
    "0.5 and 31 x 0.016": ([("a", 0.5, 1)] + [(f"t{i}", 0.016, 1) for i in range(31)], 0.95),
    "demo": ([("a", 0.5, 0.6), ("b", 0.3, 1), ("c", 0.2, 0.2)], 0.95),
    "0.45, 0.35, 0.15 and 0.05": ([("a", 0.45, 1), ("b", 0.35, 1), ("c", 0.15, 1), ("d", 0.05, 1)], 0.95),
    "limits bind": ([("a", 0.3, 0.4), ("b", 0.2, 1), ("c", 0.1, 0.1)], 1.4),
    "best effort": ([("a", 0.4, 0.4), ("b", 0.4, 0.4), ("c", 0, 1)], 2.5),
    "best effort, unequal": ([("a", 0.5, 0.5), ("b", 0.3, 0.3), ("c", 0, 1)], 2.5),
    "best effort beside 0.1 and 0.2": ([("a", 0.1, 1), ("b", 0.2, 1), ("c", 0, 1)], 1.1),
    "two of best effort beside 0.95": ([("a", 0.95, 1), ("b", 0, 1), ("c", 0, 1)], 1.1),
    "five at their limits": ([(f"t{i}", 0.2, 0.2) for i in range(5)], 0.95),
}


@pytest.mark.parametrize("case", BUSY_CASES)
@pytest.mark.parametrize("hop_us", [35, 150])
def test_always_busy_tenants_get_what_they_are_owed(case, hop_us):
    tenants, p99_pp = BUSY_CASES[case]
    programs = [busy(*tenant) for tenant in tenants]
    timeline, _world = ran(programs, 8, hop_us)
    entitled = owed(programs)
    assert percentile(timeline.errors_pp(entitled, 1, 8), 0.99) <= p99_pp
    got = {name: timeline.share(name, 1, 8) for name in entitled}
    bound = 1.5 if p99_pp > 1.1 else 0.5
    for name, promised in entitled.items():
        assert abs(got[name] - promised * sum(got.values()) / sum(entitled.values())) * 100 <= bound
    # Kernels run past the end of a quota by half their length in the mean: 8 s of 32 tenants have 1,370 hand-overs.
    slow = 0.948 if case == "0.5 and 31 x 0.016" else 0.95
    assert sum(got.values()) >= (0.985 if hop_us == 35 else slow)


LIMITED_CASES = {
    "limits bind": BUSY_CASES["limits bind"][0],
    "best effort": BUSY_CASES["best effort, unequal"][0],
    "one at its limit beside a busy one": [("a", 0.3, 0.3), ("b", 0.5, 1)],
}


@pytest.mark.parametrize("case", LIMITED_CASES)
@pytest.mark.parametrize("hop_us", [35, 75, 100])
def test_over_ten_seconds_whoever_is_at_a_limit_pays_for_its_part_of_the_hand_overs(case, hop_us):
    programs = [busy(*tenant, kernel_ns=100_000) for tenant in LIMITED_CASES[case]]
    timeline, _world = ran(programs, 14, hop_us)
    assert percentile(timeline.errors_pp(owed(programs), 1, 14, 10), 0.99) <= 0.1
    for program, share in zip(programs, shares(timeline, programs, 1, 14), strict=True):
        assert share <= program.spec.limit_ppm / 1e6


IDLE_CASES = {
    "four": [("a", 0.2, 0.25), ("b", 0.1, 0.15), ("c", 0.05, 0.1), ("d", 0.02, 0.03)],
    "two": [("a", 0.4, 0.5), ("b", 0.1, 0.3)],
    "one": [("a", 0.3, 0.3)],
    "one of a tenth": [("a", 0.1, 0.1)],
}


@pytest.mark.parametrize("case", IDLE_CASES)
@pytest.mark.parametrize(("hop_us", "warm_us"), [(35, 0), (75, 0), (50, 150), (250, 600)])
def test_limits_that_leave_the_card_idle_are_had_whole(case, hop_us, warm_us):
    """Neither hand-overs nor the time until the first kernel runs are a tenant's loss where nobody else wants it."""
    programs = [busy(*tenant, kernel_ns=100_000, warm_ns=warm_us * 1000) for tenant in IDLE_CASES[case]]
    timeline, _world = ran(programs, 12, hop_us)
    for program in programs:
        name, limit = program.spec.name, program.spec.limit_ppm / 1e6
        assert 0.985 * limit <= timeline.share(name, 2, 12) <= limit + 1e-3
        assert max(timeline.sliding(name, 1, 12)) <= limit + 0.011


@pytest.mark.parametrize("requests", [(0.6, 0.4), (0.4, 0.6), (0.5, 0.5), (0.4, 0.3, 0.2, 0.1)])
@pytest.mark.parametrize("own_us", [100, 200])
def test_who_hears_later_than_the_others_does_not_pay_for_it(requests, own_us):
    programs = [busy(f"t{i}", request, hop_ns=0 if i else own_us * 1000) for i, request in enumerate(requests)]
    timeline, _world = ran(programs, 11, 35)
    got = shares(timeline, programs, 1, 11)
    assert got[0] / sum(got) == pytest.approx(requests[0], abs=1.5e-3)


@pytest.mark.parametrize("burst_ms", [0.3, 1, 4, 0])
@pytest.mark.parametrize("requests", [(0.5, 0.5), (0.2, 0.8), (0.8, 0.2), (0.3, 0.3, 0.4)])
def test_who_lies_about_how_late_it_hears_takes_little_from_the_others(requests, burst_ms):
    programs = [busy(f"t{i}", request) for i, request in enumerate(requests)]
    if burst_ms:
        programs[0] = bursts("t0", requests[0], int(burst_ms * MS), 10_000)
    programs[0] = replace(programs[0], says_held_ns=1)
    timeline, _world = ran(programs, 11, 35)
    got = shares(timeline, programs, 1, 11)
    for share, request in zip(got[1:], requests[1:], strict=True):
        assert share / sum(got) >= request - 0.0125


CLOSED_LOOPS = {
    # burst, gap, request of the one; of the other; the least share of each; the most hand-overs a second
    "1/1 ms beside 50/2 ms": ((1, 1, 0.5), (50, 2, 0.5), (0.38, 0.50)),
    "3/0.5 ms beside busy": ((3, 0.5, 0.7), None, (0.64, 0.28)),
    "5/20 ms beside busy": ((5, 20, 0.3), None, (0.18, 0.78)),
    "1/1 ms beside 30/3 ms": ((1, 1, 0.2), (30, 3, 0.8), (0.16, 0.74)),
}


@pytest.mark.parametrize("case", CLOSED_LOOPS)
def test_tenants_that_come_and_go_get_their_part_of_a_fluid_server(case):
    one, other, least = CLOSED_LOOPS[case]
    programs = [bursts("a", one[2], int(one[0] * MS), int(one[1] * MS))]
    if other:
        programs.append(bursts("b", other[2], other[0] * MS, other[1] * MS))
    else:
        programs.append(busy("b", round(1 - one[2], 3)))
    waits = GrantWaits()
    timeline, _world = ran(programs, 6, 35, waits)
    got = shares(timeline, programs, 1, 6)
    assert got[0] >= least[0]
    assert got[1] >= least[1]
    if one[2] * (one[0] + one[1]) >= one[0]:  # its request is more than it can use
        assert percentile(waits.waits_ns["a"], 0.99) <= 4 * MS


def test_who_pauses_after_each_burst_gets_no_more_than_its_request_beside_one_that_always_has_work():
    programs = [bursts("a", 0.4, 2 * MS, 2 * MS), busy("b", 0.6)]
    timeline, _world = ran(programs, 12, 35)
    paused, always = shares(timeline, programs, 1, 12)
    assert paused <= 0.4
    assert always / (paused + always) == pytest.approx(0.6, abs=2e-4)


def test_alone_without_a_limit_nothing_is_lost_and_no_grant_follows_the_first():
    waits = GrantWaits()
    timeline, world = ran([busy("a", 0.3)], 5, 150, waits)
    assert timeline.share("a", 1, 5) >= 0.999
    assert len(waits.waits_ns["a"]) == world.daemon.handovers == 1


@pytest.mark.parametrize("hop_us", [50, 350])  # the second: two cold wake-ups, as measured
@pytest.mark.parametrize(("limit", "stall_ms"), [(0.5, 20), (0.8, 20), (0.25, 20)])
def test_alone_with_a_limit_the_pace_is_smooth(limit, stall_ms, hop_us):
    gaps = Gaps()
    timeline, world = ran([busy("a", 0.2, limit)], 6, hop_us, gaps)
    assert all(abs(window - limit) <= 0.015 for window in timeline.sliding("a", 1, 6))
    assert gaps.worst_ns(world) <= stall_ms * MS


def test_nobody_passes_a_limit_by_more_than_a_quota_and_the_overuse():
    programs = [busy("a", 0.3, 0.4), busy("b", 0.2), busy("c", 0.1, 0.1)]
    timeline, _world = ran(programs, 6, 35)
    for name, limit in (("a", 0.4), ("c", 0.1)):
        assert max(timeline.sliding(name, 0, 6)) * SECOND <= limit * SECOND + 10 * MS + KERNEL_NS


def test_a_newcomer_is_within_five_points_after_a_quarter_of_a_second():
    programs = [busy("a", 0.5), busy("b", 0.5, start_ns=2 * SECOND)]
    timeline, _world = ran(programs, 4, 50)
    for name in "ab":
        assert timeline.share(name, 2.01, 2.26) == pytest.approx(0.5, abs=0.05)
    assert min(timeline.sliding("a", 2, 3.9, 0.1)) * 100 > 20  # no 100 ms in which the first gets nothing


def test_a_latency_tenant_hardly_waits_and_the_batch_keeps_its_share():
    waits = GrantWaits()
    timeline, _world = ran([bursts("a", 0.4, 6 * MS, 14 * MS, latency=True), busy("b", 0.6)], 5, 35, waits)
    assert percentile(waits.waits_ns["a"], 0.99) <= 600_000
    assert timeline.share("b", 1, 5) >= 0.6
    timeline, _world = ran([busy("a", 0.4, latency=True), busy("b", 0.6)], 5, 35)
    assert timeline.share("b", 1, 5) >= 0.58


def test_the_seed_taken_literally_is_worse_and_still_in_the_table():
    def worst(ordering: str) -> float:
        programs = [busy("a", 0.5)] + [busy(f"t{i}", 0.016) for i in range(31)]
        timeline, _world = ran(programs, 5, 35, policy=Policy(ordering=ordering), check_every=0)
        return percentile(timeline.errors_pp(owed(programs), 1, 5), 0.99)

    assert set(ORDERINGS) >= {"eevdf", "behind", "fifo"}
    assert worst("behind") > 3 * worst("eevdf")


@pytest.mark.parametrize("hop_us", [35, 75])
def test_tiny_turns_of_class_latency_pay_for_the_hand_overs_that_they_cause(hop_us):
    """Three of 0.02 want the card for 0.05 ms each 2 ms, beside two that always do: these keep what they are promised,
    but for what hand-overs take without them, and one part in a hundred."""
    programs = [busy("b", 0.655, kernel_ns=100_000), busy("h", 0.285, kernel_ns=100_000)]
    timeline, _world = ran(programs, 6, hop_us)
    whole = sum(shares(timeline, programs, 2, 6))
    programs += [bursts(f"l{n}", 0.02, 50_000, 2 * MS, latency=True) for n in range(3)]
    timeline, _world = ran(programs, 10, hop_us)
    b, h, *others = shares(timeline, programs, 2, 10)
    assert b >= 0.655 * whole - 0.01
    assert h >= 0.285 * whole - 0.01
    assert all(share > 0 for share in others)
