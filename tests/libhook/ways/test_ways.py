"""The twenty ways in which interposers of this kind fail, as found in others: one test for each, by its number.

Each has mutants under tests/mutants: patches that take its defence out of the library, with which it must fail.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from libhook.core import lib
from tests.libhook.hooks.guest import HERE, HOOK, ROOT, SIM, Build, inside, lines
from tests.libhook.runtime.conftest import MS, Daemon
from tests.libhook.ways.conftest import Program, Warden

Start = Callable[..., Program]
MIB = 1 << 20
OUT_OF_MEMORY = 2
CONTEXT = 32 * MIB  # of the simulated card


def test_way_01_no_route_leads_past_the_gate_or_the_account(warden: Warden, start: Start) -> None:
    program = start("launches")
    warden.serve(program)
    assert program.answer() == []  # nothing has come through, by any of the routes
    assert sum(one.kernels for one in warden.segments) == 0
    warden.until(lambda: warden.waiting is not None)
    assert warden.waiting is not None
    warden.grants = {"quota_ms": 50}
    warden.give(warden.waiting, quota_ms=50)
    program.say()
    warden.serve(program)
    assert program.answer() == 13
    warden.refuse_from = 64 * MIB
    asking = start("allocations", 64 * MIB)
    warden.serve(asking)
    codes = asking.answer()
    assert codes == dict.fromkeys(codes, OUT_OF_MEMORY)
    assert len(codes) == 12


def test_way_02_each_version_and_stream_flavour_keeps_its_own_abi(
    warden: Warden, start: Start, lookup: Path, fake: Callable[..., Path]
) -> None:
    warden.grants = {"quota_ms": 50}
    program = start("flavours")
    warden.serve(program)
    assert program.answer() == {
        "cuCtxCreate 3020 0": ["cuCtxCreate_v2"],
        "cuCtxCreate 11039 0": ["cuCtxCreate_v2"],
        "cuCtxCreate 11040 0": ["cuCtxCreate_v3"],
        "cuCtxCreate 12049 0": ["cuCtxCreate_v3"],
        "cuCtxCreate 12050 0": ["cuCtxCreate_v4"],
        "cuMemFreeAsync 11020 0": ["cuMemFreeAsync"],
        "cuMemFreeAsync 11020 2": ["cuMemFreeAsync_ptsz"],
        "cuLaunchKernel 13000 0": ["cuLaunchKernel"],
        "cuLaunchKernel 13000 2": ["cuLaunchKernel_ptsz"],
    }
    warden.serve(program)
    warden.look()
    kernels = [one for one in warden.segments if one.end_ns - one.start_ns >= MS]
    assert len({one.stream for one in kernels}) == 2  # the legacy stream and the thread's own
    # A driver whose answers stand under no exported name: the rule alone decides.
    asked = ["proc:cuCtxCreate:12040:0", "proc:cuCtxCreate:11030:0", "proc:cuMemFreeAsync:12000:2"]
    out = lines(lookup, "open", *asked, env=inside(path=fake("-DUNEXPORTED")))
    assert [line.split()[-1] for line in out] == ["cuCtxCreate_v3", "cuCtxCreate_v2", "cuMemFreeAsync_ptsz"]


def test_way_03_nothing_private_or_newer_than_glibc_2_17_is_needed() -> None:
    out = subprocess.run(["nm", "-D", "--undefined-only", HOOK], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in out.splitlines()]
    versions = {name: name.rsplit("@GLIBC_", 1)[-1] for name in names if "@" in name}
    assert all(re.fullmatch(r"[\d.]+", version) for version in versions.values()), versions  # GLIBC_PRIVATE is none
    assert {n for n, v in versions.items() if tuple(map(int, v.split("."))) > (2, 17)} == set()
    assert not {name for name in names if name.startswith(("__libc_dl", "_dl_"))}


def test_way_04_libcuda_is_not_needed_and_nothing_is_done_without_cuda(warden: Warden, start: Start) -> None:
    needed = subprocess.run(["readelf", "-d", HOOK], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", needed) == ["libc.so.6"]
    assert start("quiet").finish() == [{"threads": 1, "sockets": [], "driver": False}]
    assert warden.one(0.2) is None  # nobody has said Hello


def test_way_05_rtld_next_is_answered_relative_to_the_caller_each_time(
    lookup: Path, look: Path, shared: Build, fake: Callable[..., Path]
) -> None:
    first = shared(HERE / "marker.c", "libfirst.so", "-DDEFINES")
    asked = ["next:marker", "via:marker", "via:marker", "next:malloc", "via:malloc", "via:malloc"]
    out = lines(lookup, f"load:{look}", *asked, env=inside(HOOK, first))
    assert out[0] == "next:marker: libfirst.so marker"
    assert out[1:3] == ["via:marker: none error"] * 2  # nothing comes after liblook.so, which was opened last
    assert out[3].startswith("next:malloc: libc.so.6")
    assert out[4] == out[5] != "via:malloc: none error"
    folder = fake()
    linked = shared(HERE.parents[1] / "apps" / "look.c", "liblook.so", "-Wl,--no-as-needed", f"{folder}/libcuda.so.1")
    out = lines(lookup, f"load:{linked}", "via:cuInit", "via:cuInit", env=inside(path=folder))
    assert out == ["via:cuInit: libgemini_hook.so cuInit"] * 2


def test_way_06_the_process_keeps_its_mask_signals_streams_and_life(
    warden: Warden, daemon: Daemon, start: Start
) -> None:
    warden.grants = {"quota_ms": 50}
    program = start("manners")
    warden.serve(program)
    seen = program.answer()
    assert seen["before"] == seen["after"]
    assert seen["pending"]  # no thread of ours took the signal that the program had blocked
    for junk in (b"", b"x" * 1000, b"GM" * 500):
        for peer in warden.peers:
            daemon.socket.send_multipart([peer, junk])
    daemon.close()
    program.say()
    assert program.answer() == "alive"
    assert program.finish() == []  # and nothing on stderr


@pytest.mark.flaky(reruns=4)
def test_way_07_start_up_takes_no_lock_makes_no_context_and_does_not_sleep(warden: Warden, start: Start) -> None:
    def all_of(bare: bool) -> tuple[float, list[Program]]:
        begun = time.monotonic()
        programs = [start("starting", bare=bare) for _ in range(8)]
        for program in programs:
            if not bare:
                warden.serve(program)
            program.answer()
        return time.monotonic() - begun, programs

    bare_s, _ = all_of(bare=True)
    ours_s, programs = all_of(bare=False)
    assert ours_s <= bare_s + 0.5
    held = warden.timeline.memory(0)
    assert [held.get(program.pid, 0) for program in programs] == [0] * 8  # no context was made to look around
    named = [os.readlink(f"/proc/{p.pid}/fd/{fd}") for p in programs for fd in os.listdir(f"/proc/{p.pid}/fd")]
    assert [name for name in named if "lock" in name or name.startswith("/tmp")] == []


@pytest.mark.flaky(reruns=4)
def test_way_08_control_is_exact_to_the_quota_and_needs_no_nvml(warden: Warden, start: Start, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(SIM / "libcuda.so.1")
    warden.grants = {"quota_ms": 10}
    program = start("busy", 100_000, LD_LIBRARY_PATH=str(tmp_path))  # there is no NVML to be polled
    warden.serve(program, lambda: len(warden.held) >= 15)
    program.answer()
    busy = warden.busy_ms()[2:-1]
    assert 3 <= statistics.median(busy) <= 11  # of 10 ms: no overshoot; how much a starved test host fills is its own


@pytest.mark.flaky(reruns=4)
def test_way_09_overuse_is_bounded_and_a_token_comes_back_only_drained(warden: Warden, start: Start) -> None:
    warden.grants = {"quota_ms": 5}
    program = start("busy", 400_000, 3)
    warden.serve(program, lambda: len(warden.held) >= 10)
    program.answer()
    assert warden.outside() == []
    # Alone, with nothing to stop it but what may be in flight: a revocation finds little of it.
    warden.grants = None
    alone = start("busy", 4 * MS)
    warden.until(lambda: len(warden.hellos) == 2 and warden.waiting in list(warden.peers)[1:])
    assert warden.waiting is not None
    warden.give(warden.waiting, quota_ms=200_000, lease_ms=201_000, cap_ms=4, contended=False)
    returns = len(warden.returns)
    warden.until(lambda: warden.kernels(alone.pid) >= 50)
    revoked_ns = time.monotonic_ns()
    warden.daemon.send(warden.waiting, lib.WIRE_REVOKE, epoch=warden.epoch, reason=lib.WIRE_REVOKE_NEWCOMER)
    warden.until(lambda: len(warden.returns) > returns)
    warden.look()
    later = [(one.start_ns, one.end_ns) for one in warden.segments if one.end_ns > revoked_ns]
    assert sum(end - max(start, revoked_ns) for start, end in later) <= 30 * MS  # of kernels of 4 ms
    assert alone.process.poll() is None


@pytest.mark.flaky(reruns=4)
def test_way_10_an_idle_token_is_given_back_at_once(warden: Warden, start: Start) -> None:
    warden.grants = {"quota_ms": 300, "lease_ms": 600}
    program = start("bursts", 12, 2 * MS, 25)
    warden.serve(program)
    program.answer()
    idle = [one for one in warden.returns if one.flags & lib.WIRE_RETURN_IDLE]
    assert len(idle) >= 9  # in the pauses of 25 ms, long before the quota's end
    ends = [max((s.end_ns for s in warden.segments if s.start_ns < end), default=end) for _, end in warden.held]
    kept = [(end - last) / MS for (_, end), last in zip(warden.held, ends, strict=True)]
    assert statistics.median(kept) <= 10


def test_way_11_the_daemon_may_die_and_come_back_and_tenants_wait(
    warden: Warden, daemon: Daemon, start: Start, folder: Path
) -> None:
    warden.grants = {"quota_ms": 20}
    program = start("steps")
    warden.serve(program)
    assert program.answer() == "ready"
    for _ in range(2):
        program.say()
        warden.serve(program)
        program.answer()
    warden.until(lambda: len(warden.returns) == warden.epoch)  # it holds nothing
    daemon.close()
    warden.look()
    kernels = warden.kernels()
    program.say()
    time.sleep(0.4)
    assert warden.kernels() == kernels  # it waits
    assert program.process.poll() is None
    second = Daemon(folder / "tenant.sock", incarnation=2)
    try:
        after = Warden(second, warden.spec)
        after.grants = {"quota_ms": 20}
        after.serve(program)
        assert program.answer() == "done"
        assert after.hellos[0].client_nonce == warden.hellos[0].client_nonce
        program.say("")
    finally:
        second.close()


@pytest.mark.flaky(reruns=2)
def test_way_12_a_holder_past_its_lease_finds_the_gate_closed(warden: Warden, daemon: Daemon, start: Start) -> None:
    program = start("busy", 50_000)
    warden.until(lambda: warden.waiting)
    assert warden.waiting is not None
    assert daemon.page is not None
    warden.give(warden.waiting, quota_ms=200_000, lease_ms=250_000, contended=False)
    warden.until(lambda: warden.kernels() > 100)
    daemon.page.store(0)  # the daemon has taken the token for lost; not a word comes to the client

    def still() -> bool:
        before = warden.kernels()
        time.sleep(0.1)
        return warden.kernels() == before

    warden.until(still)  # what was in flight has run
    kernels = warden.kernels()
    os.kill(program.pid, signal.SIGSTOP)  # and one that hung meanwhile wakes before a closed gate
    os.kill(program.pid, signal.SIGCONT)
    time.sleep(0.2)
    assert warden.kernels() == kernels


def test_way_13_no_race_passes_the_limit_and_no_free_breaks_the_account(warden: Warden, start: Start) -> None:
    block = 4 * MIB
    warden.limit = CONTEXT + 50 * block
    program = start("greedy", block)
    warden.serve(program)
    assert program.answer() == {"blocks": 49, "refused": [OUT_OF_MEMORY]}  # and one in a pool
    assert warden.timeline.memory(0)[program.pid] == warden.limit  # to the byte
    program.say()
    warden.serve(program)
    bare = start("greedy", 1000 * block, bare=True)  # one process without the library: what its frees answer
    bare.answer()
    assert program.answer() == [1, 1, 0, 1, 0]
    program.say()
    warden.serve(program)
    assert program.answer() == [49 * block, warden.limit]
    warden.until(lambda: warden.used <= CONTEXT + block + 32 * MIB)
    assert warden.used >= CONTEXT + block  # nothing was given back twice
    assert warden.timeline.memory(0)[program.pid] == CONTEXT + block


def test_way_14_every_answer_is_a_drivers_also_to_nothing_at_all(warden: Warden, start: Start) -> None:
    header = (ROOT / "libhook" / "driver" / "cuda_hooks.h").read_text()
    last = ("Reset", "Release", "Destroy", "Detach", "Pop")
    names = sorted(re.findall(r"^HOOK\((\w+)", header, re.M), key=lambda name: any(word in name for word in last))
    warden.grants = {"quota_ms": 50}
    warden.refuse_from = 64 * MIB
    bare = start("nothings", *names, bare=True).finish()[0]
    program = start("nothings", *names)
    warden.serve(program)
    assert program.finish()[0] == bare
    assert len(bare) > 150
    errors = (ROOT / "libhook" / "driver" / "cuda_errors.h").read_text()
    asking = start("allocations", 64 * MIB)
    warden.serve(asking)
    for code in {*bare.values(), *asking.answer().values()}:
        assert code == 0 or re.search(rf"\b{code}\b", errors), code


@pytest.mark.parametrize("chosen", ["1,0", "uuid"])
def test_way_15_cards_are_known_by_uuid_and_each_context_by_its_own_card(
    warden: Warden, start: Start, chosen: str
) -> None:
    cards = warden.timeline.devices()
    first, second = (bytes.fromhex(card.uuid.removeprefix("GPU-").replace("-", "")) for card in cards)
    visible = f"{cards[1].uuid},{cards[0].uuid}" if chosen == "uuid" else chosen
    warden.grants = {"quota_ms": 50}
    program = start("two_cards", CUDA_VISIBLE_DEVICES=visible)
    asked: list[int] = []
    warden.until(lambda: warden.requests)
    # CUDA's card 0 is the machine's card 1 here, and what was used is CUDA's card 1.
    assert warden.hellos[0].device_count == 2
    assert [bytes(warden.hellos[0].uuid[i]) for i in range(2)] == [second, first]
    asked = [request.device for request in warden.requests]
    assert asked == [1]
    held = [warden.timeline.memory(card).get(program.pid, 0) for card in (0, 1)]
    assert held == [CONTEXT + 64 * MIB, 0]
    assert warden.used == CONTEXT + 64 * MIB


@pytest.mark.parametrize("strict", ["on", "off"])  # where it is off, our thread's calls come as far as the captures
@pytest.mark.parametrize("scenario", ["capture", "capture_after_nvml"])
def test_way_16_nothing_of_ours_disturbs_a_capture(
    warden: Warden, start: Start, spec: str, scenario: str, strict: str
) -> None:
    warden.grants = {"quota_ms": 3}
    program = start(scenario, GEMINI_SIM=f"{spec},strict={strict}")
    warden.serve(program, lambda: len(warden.held) >= 30)
    assert program.answer() == [0, 0, 0]  # ended well, and holds the program's own launches only


def test_way_16_the_end_of_a_joined_stream_leaves_other_captures_alone(warden: Warden, start: Start) -> None:
    """It was counted as the end of a capture: events of ours got into another one, and broke it."""
    warden.grants = {"quota_ms": 3}
    program = start("joined")
    warden.serve(program)
    assert program.answer() == [0, 0, 50]


def test_way_16_captures_that_begin_at_once_are_left_alone(warden: Warden, start: Start) -> None:
    """Their threads recorded the event behind another thread's open work at once, without a lock (tests/sanitize)."""
    warden.grants = {"quota_ms": 3}
    program = start("captures_at_once")
    warden.serve(program)
    assert program.answer() == [400, True]


def test_way_17_a_process_after_fork_or_exec_registers_for_itself(warden: Warden, start: Start) -> None:
    warden.grants = {"quota_ms": 50}
    program = start("forking")
    warden.serve(program)
    child, other, *statuses = program.answer()
    assert statuses == [0, 0]
    assert [hello.pid for hello in warden.hellos].count(program.pid) == 1
    assert {hello.pid for hello in warden.hellos} == {program.pid, child, other}
    assert len({hello.client_nonce for hello in warden.hellos}) == 3
    assert len(warden.peers) == 3
    assert program.finish() == []


def test_way_18_one_connection_serves_all_calls_and_tells_no_identity(warden: Warden, start: Start) -> None:
    warden.grants = {"quota_ms": 5}
    programs = [start("many", 30), start("many", 30)]
    for program in programs:
        warden.serve(program)
        assert program.answer() == "done"
    assert len(warden.hellos) == 2
    assert len(warden.peers) == 2  # whose names are the socket's: no process can take another's
    assert all(len(peer) == 5 and peer[0] == 0 for peer in warden.peers)
    assert warden.daemon.page is not None
    assert len(warden.daemon.page.nonces) == 2


@pytest.mark.flaky(reruns=4)
def test_way_19_no_wake_up_is_lost(warden: Warden, start: Start) -> None:
    warden.grants = {"quota_ms": 2, "cap_ms": 20}  # so that a thread waits at the gate only, never for room
    program = start("busy", 500_000)
    begun = time.monotonic()
    warden.serve(program, lambda: len(warden.held) >= 20 and time.monotonic() > begun + 0.7)
    program.answer()
    lasted = warden.segments[-1].end_ns - warden.segments[0].start_ns
    busy = sum(one.end_ns - one.start_ns for one in warden.segments)
    assert busy >= 0.08 * lasted  # who is not woken looks again only after 100 ms: 2 % at most


def test_way_20_a_collective_over_two_cards_ends_although_one_of_them_is_held_by_another(
    warden: Warden, start: Start
) -> None:
    """Whoever has the second card wants the first one next: without a way out neither would ever give way."""
    warden.grants = {"quota_ms": 10}
    warden.withheld = {1}
    program = start("collective")
    warden.serve(program)
    assert program.answer() == "both ran"
    assert {request.device for request in warden.requests} == {0, 1}
    warden.until(lambda: warden.returns)  # the first card comes back
    program.say()
    assert program.finish() == []
