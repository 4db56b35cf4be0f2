"""Programs that deadlock where a token is let go only after all work has drained, beside one that is always busy."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.bed import LIB, ROOT, Bed, until_shares, wait_for
from scheduler_backend import trace

WINDOW_S = 1.5
pytestmark = pytest.mark.alone  # windows in which the busy tenant keeps its share


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("deadlocks") / "deadlocks"
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-o", str(binary)]
    source = ROOT / "tests" / "apps" / "deadlocks.c"
    subprocess.run([*command, str(source), f"-L{LIB / 'sim'}", "-l:libcuda.so.1", "-lpthread"], check=True)
    return binary


@pytest.fixture
def bed() -> Iterator[Bed]:
    """Two cards, shared half and half between `stuck` and `busy`."""
    with Bed(sim="gpus=2,memory=8GiB") as bed:
        bed.tenant("stuck", 0.5, 1.0)
        bed.tenant("busy", 0.5, 1.0)
        yield bed


def rounds(child: subprocess.Popen[Any]) -> int:
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    return int(out)


def run(bed: Bed, *programs: list[object], devices: tuple[int, ...] = (0,), most: float = 1.0) -> list[int]:
    """How often each of `stuck`'s programs went round. All run until there was a window in which each of these launched
    on each card again and again, and `busy` kept its half, to 2 points, and had no more than `most` of the time that
    anybody had of the card (what nobody had is the hand-overs', not the other tenant's). Where the machine has other
    things to do a window says nothing; who is stuck is so in each. How exact shares are is bench/fairness's matter."""
    for device in devices:
        bed.load("busy", "--device", device, "--seconds", 600)
    bed.until_busy("busy")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [bed.spawn("stuck", list(map(str, one)), **pipes) for one in programs]
    bed.until_busy("stuck")
    since = dict.fromkeys(devices, 0)

    def kernels() -> dict[tuple[int, int], int]:
        """Of `stuck`'s processes on the cards since the last question."""
        count = {(device, child.pid): 0 for device in devices for child in children}
        for device in devices:
            since[device], new = bed.timeline.segments(device, since[device])
            for one in new:
                if (device, one.pid) in count:
                    count[device, one.pid] += one.kernels
        return count

    deadline, seen = time.monotonic() + 120, []
    while True:
        kernels()
        before = [bed.busy(device)[1] for device in devices]
        time.sleep(WINDOW_S)
        after = [bed.busy(device)[1] for device in devices]
        had = [{name: one[name] - old[name] for name in one} for old, one in zip(before, after, strict=True)]
        shares = [one["busy"] / max(1, sum(one.values())) for one in had]
        launched = min(kernels().values())
        seen.append((shares, launched))
        if all(0.48 <= share <= most for share in shares) and launched >= 5 * WINDOW_S:
            return [rounds(child) for child in children]
        assert time.monotonic() < deadline, seen


def longest_pause(bed: Bed, pid: int, seconds: float) -> float:
    """Of a process on the card, in seconds; with the one that is still going on at the end."""
    start_ns, found = time.monotonic_ns(), []
    seen, _ = bed.timeline.segments(0, 0)
    while time.monotonic_ns() < start_ns + seconds * 1e9:
        seen, new = bed.timeline.segments(0, seen)
        found += [one for one in new if one.pid == pid]
        time.sleep(0.05)
    edges = [start_ns, *(edge for one in found for edge in (one.start_ns, one.end_ns)), time.monotonic_ns()]
    return max(later - earlier for earlier, later in pairwise(edges)) / 1e9


def is_so_within(condition: Callable[[], bool], seconds: float) -> bool:
    try:
        return bool(wait_for(condition, seconds, "such a moment"))
    except TimeoutError:
        return False


def launches_told(bed: Bed) -> dict[str, float]:
    """Of `stuck`, by the UUID of the card."""
    metrics = bed.http("GET", "/metrics")[1]
    found = re.findall(r'^gemini_launches_total\{gpu="(\S+)",tenant="(\w+)".*\} (\S+)$', metrics, re.MULTILINE)
    return {gpu: float(number) for gpu, tenant, number in found if tenant == "stuck"}


def grants(bed: Bed) -> int:
    """How often `stuck` was granted the token."""
    return next(int(one["grants"]) for one in bed.state()["tenants"] if one["name"] == "stuck")


def test_a_collective_launched_on_one_gpu_after_the_other_runs_to_its_end(bed: Bed, program: Path) -> None:
    (count,) = run(bed, [program, "collective"], devices=(0, 1))
    assert count >= 5


def test_one_call_that_launches_on_two_gpus_passes_both_gates(bed: Bed, program: Path) -> None:
    (count,) = run(bed, [program, "together"], devices=(0, 1))
    launches = launches_told(bed)
    assert len(launches) == 2
    assert all(count * 0.7 <= one <= count for one in launches.values())  # those of the last grant are not told


def test_what_is_launched_in_another_gpus_stream_passes_that_gpus_gate(bed: Bed, program: Path) -> None:
    """Whichever is current: the driver has a kernel's context of its stream."""
    first, second = (gpu["uuid"] for gpu in bed.state()["devices"])
    child = bed.spawn("stuck", [program, "elsewhere"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: max(launches_told(bed).values(), default=0) >= 20, 60, "launch")
    launches = launches_told(bed)
    assert launches.get(first, 0) == 0
    assert launches[second] >= 20
    assert rounds(child) >= 20


def test_a_stream_that_waits_for_a_second_process_runs_to_its_end(bed: Bed, program: Path, tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_bytes(bytes(4096))
    counts = run(bed, *([program, kind, words] for kind in ("waits", "writes")))
    assert min(counts) >= 5


@pytest.mark.parametrize(
    ("what", "count"),  # the second after its quota; ten times what may be in flight
    [(what, count) for what in ("value", "host", "node") for count in (2, 100)] + [("captured", 2), ("crowd", 2)],
)
def test_a_stream_that_waits_for_its_host_takes_what_that_launches_first(
    bed: Bed, program: Path, what: str, count: int
) -> None:
    (found,) = run(bed, [program, "later", what, count])
    assert found >= 5


def test_a_graph_that_waits_for_another_streams_event_is_one_that_may_stand_still(bed: Bed, program: Path) -> None:
    (found,) = run(bed, [program, "between", "graph"])
    assert found >= 5


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("what", ["host", "value", "event", "thread", "legacy", "behind"])
def test_a_wait_between_kernels_is_not_taken_for_their_length(bed: Bed, program: Path, what: str) -> None:
    """Else what is launched behind it is held up for eight times as long, and that wait is the next one's length.

    Beside the same program without the wait, before and after: a round takes both 15 ms of their host's time and 3 ms
    of the card's. With the waits believed it took up to 25 times as long.
    """
    bed.load("busy", "--seconds", 600)
    bed.until_busy("busy")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def pace(how: str) -> float:
        """Seconds that its 100 rounds take."""
        child = bed.spawn("stuck", [program, "between", how], **pipes)
        seen, kernels, began = 0, 0, time.monotonic()

        def done() -> bool:
            nonlocal seen, kernels
            seen, new = bed.timeline.segments(0, seen)
            kernels += sum(one.kernels for one in new if one.pid == child.pid)
            return kernels >= 3 * 100

        wait_for(done, 120, "100 rounds")
        took = time.monotonic() - began
        rounds(child)
        return took

    took = pace("none"), pace(what), pace("none")
    assert took[1] < 2 * max(took[0], took[2]), took


def test_so_it_does_where_its_tenant_is_alone(bed: Bed, program: Path) -> None:
    """And where that is far more than may be in flight then, too."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = bed.spawn("stuck", [program, "later", "value", "600"], **pipes)
    wait_for(lambda: sum(one.kernels for one in bed.timeline.segments(0, 0)[1]) >= 1200, 60, "two rounds")
    assert rounds(child) >= 2


def test_who_has_a_stream_that_waits_for_its_host_for_long_keeps_its_limit_and_works_on(program: Path) -> None:
    """Its drain never ends: the others are held up for one overrun, and then it has turns as before."""
    with Bed(sim="memory=8GiB", config="overrun_ms = 100\n") as bed:
        bed.tenant("stuck", 0.1, 0.1)
        bed.tenant("busy", 0.9, 1.0)
        bed.load("busy", "--seconds", 600)
        bed.until_busy("busy")
        child = bed.spawn("stuck", [program, "stands"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        bed.until_busy("stuck")
        until_shares(lambda: bed.sample(WINDOW_S).shares(), {"stuck": 0.1, "busy": 0.9}, 0.03, least=0.5, seconds=60)
        assert rounds(child) > 0
        bed.end()
        assert told(bed, "Overran") == ["stuck"]


def test_what_is_launched_behind_streams_that_were_given_up_is_an_eighth_of_the_time_that_they_wait(
    program: Path,
) -> None:
    """It runs in others' turns when they are let go, and nobody is charged for it."""
    with Bed(sim="memory=8GiB", config="overrun_ms = 100\n") as bed:
        bed.tenant("stuck", 0.5, 1.0)
        bed.tenant("busy", 0.5, 1.0)
        bed.load("busy", "--seconds", 600)
        bed.until_busy("busy")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        child = bed.spawn("stuck", [program, "behind"], **pipes)
        lost = re.compile(r'^gemini_(overruns|leases_lost)_total\{.*tenant="stuck".*\} [^0]', re.MULTILINE)
        wait_for(lambda: lost.search(bed.http("GET", "/metrics")[1]), 60, "overrun, or lost lease")
        before = grants(bed)
        wait_for(lambda: grants(bed) >= before + 3, 60, "turns after the overrun")
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        waited_ms, behind_ms, _ = map(int, out.split())
        assert 100 <= behind_ms <= waited_ms / 8 + 20  # a launch that is the whole room goes at its half


@pytest.mark.parametrize("how", ["plain", "host", "graphs"])
def test_what_runs_on_when_its_drain_was_given_up_is_paid_for(program: Path, how: str) -> None:
    """A kernel of seconds looks like one that waits for its host, and its token is given back all the same.

    What works on then runs in others' turns: that was half of the card and more, at a limit of 0.2.
    """
    with Bed(sim="memory=8GiB") as bed:
        bed.tenant("stuck", 0.2, 0.2)
        bed.tenant("busy", 0.8, 1.0)
        bed.load("busy", "--seconds", 600)
        bed.until_busy("busy")
        bed.spawn("stuck", [program, "long", how])
        bed.until_busy("stuck")
        began_ns, before = bed.busy()
        seen: dict[int, float] = {}

        def has_rested() -> bool:
            """It had no more than its limit and a few seconds' word of the card; the first ones say nothing."""
            now_ns, after = bed.busy()
            second, part = (now_ns - began_ns) // 10**9, (after["stuck"] - before["stuck"]) / (now_ns - began_ns)
            seen[second] = round(part, 3)
            return second >= 10 and part < 0.33

        assert is_so_within(has_rested, 60), seen


@pytest.mark.parametrize("mode", ["global", "thread", "relaxed"])
def test_a_capture_stays_whole_while_tokens_change_hands(bed: Bed, program: Path, mode: str) -> None:
    (count,) = run(bed, [program, "capture", mode], most=0.52)  # the other one is as busy
    assert count >= 5


def told(bed: Bed, name: str) -> list[str]:
    """The tenants of such actions in the daemon's record."""
    actions = [action for entry in trace.read(bed.trace)[1] for action in entry.actions]
    return [fields[0] for kind, fields in actions if kind == name]


@pytest.mark.flaky(reruns=7)
def test_a_kernel_that_never_ends_holds_the_others_up_for_an_overrun_and_is_named(program: Path) -> None:
    with Bed(sim="memory=8GiB", config="overrun_ms = 500\nlease_margin_ms = 200\n") as bed:
        bed.tenant("stuck", 0.5, 1.0)
        bed.tenant("busy", 0.5, 1.0)
        busy = bed.load("busy")
        bed.until_busy("busy")
        endless = bed.spawn("stuck", [program, "endless"])
        bed.until_busy("stuck")
        pause = longest_pause(bed, busy.pid, 2)
        assert endless.poll() is None
        metrics = bed.http("GET", "/metrics")[1]
        share = bed.sample(1).shares()["busy"]
        bed.end()
        log = (bed.state_dir / "daemon.log").read_text()
        assert told(bed, "LeaseLost") == []  # it said in time that it lives
        assert told(bed, "Overran") == ["stuck"]
        assert "overran tenant=stuck" in log
        assert "tenant=busy" not in log
        assert re.search(r'^gemini_overruns_total\{.*tenant="stuck".*\} 1\.0$', metrics, re.MULTILINE)
        assert not re.search(r'^gemini_overruns_total\{.*tenant="busy".*\} [^0]', metrics, re.MULTILINE)
        assert 0.4 < pause <= 0.6  # from the end of its quota, and what this machine adds
        assert share >= 0.2  # the card slices between the two, and switching costs
