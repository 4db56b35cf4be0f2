"""The preloaded library on the simulated driver, with a daemon by script; the device's own record is the judge."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.bed import wait_for
from libhook.core import lib
from libhook.observer import Segment, Timeline
from tests.libhook.runtime.conftest import LIB, MS, PATIENCE_S, Daemon, Run

ROOT = Path(__file__).parents[3]
RENEW, WANT_MORE = lib.WIRE_TOKEN_RENEW, lib.WIRE_RETURN_WANT_MORE
MIB = 1 << 20
UINT64_MAX = (1 << 64) - 1
# Beside others, what comes to a closed gate may be held by the device.
BESIDE = pytest.mark.parametrize("shared", [False, True], ids=["turns", "beside"])
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000


@pytest.fixture(scope="session")
def guest_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("guest") / "guest"
    command = ["gcc", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}", "-o", str(binary)]
    source = Path(__file__).with_name("guest.c")
    subprocess.run([*command, str(source), f"-L{LIB / 'sim'}", "-l:libcuda.so.1", "-lpthread"], check=True)
    return binary


class Keeper:
    """Serves one process: grants on request, takes Returns, and keeps the device's record meanwhile."""

    def __init__(
        self,
        daemon: Daemon,
        sim: str,
        quota_ms: float = 10,
        pause_ms: float = 1,
        alone_cap_ms: float = 0,
        shared: bool = False,
    ) -> None:
        self.daemon, self.sim, self.quota_ms, self.pause_ms, self.shared = daemon, sim, quota_ms, pause_ms, shared
        self.cap_ms = 1.0
        self.alone_cap_ms = alone_cap_ms  # not 0: nobody else wants the card
        self.before_giving: Callable[[], object] = lambda: None
        self.epoch, self.granted_ns, self.peer = 0, 0, b""
        self.given = False  # and not yet returned
        self.held: list[tuple[int, int]] = []
        self.flags: list[int] = []
        self.busy_ns = 0
        self.segments: list[Segment] = []
        self.seen = 0
        self.timeline: Timeline | None = None

    def look(self) -> None:
        if self.timeline is None:
            self.timeline = Timeline(f"id={self.sim}")
        self.seen, new = self.timeline.segments(0, self.seen)
        self.segments += new

    def give(self, peer: bytes) -> None:
        self.peer = peer
        time.sleep(self.pause_ms / 1000)
        self.before_giving()
        self.epoch += 1
        self.given = True
        self.granted_ns = time.monotonic_ns()
        contended, cap_ms = not self.alone_cap_ms, self.alone_cap_ms or self.cap_ms
        self.daemon.grant(peer, self.epoch, self.quota_ms, cap_ms=cap_ms, contended=contended, shared=self.shared)

    def serve(self, process: subprocess.Popen[str], until: Callable[[], object] = lambda: False) -> None:
        """To the program's end, which it is told to come to when that has come about."""
        end, told = time.monotonic() + PATIENCE_S, False
        while process.poll() is None:
            assert time.monotonic() < end, (len(self.held), self.daemon.story[-12:])
            if not told and until():
                process.send_signal(signal.SIGTERM)
                told = True
            try:
                peer, kind, message = self.daemon.receive(0.05)
            except TimeoutError:
                continue
            if kind == lib.WIRE_HELLO:
                if self.given:  # the process stood still for so long that it took us for gone, and drained untold
                    self.held.append((self.granted_ns, time.monotonic_ns()))
                    self.given = False
                self.peer = peer
                self.daemon.welcome(peer)
            elif self.peer and peer != self.peer:
                continue  # of a connection that is gone
            elif kind == lib.WIRE_MEM_RESERVE:
                self.daemon.send(peer, lib.WIRE_MEM_REPLY, answers=message.header.serial, granted=1)
            elif kind == lib.WIRE_RETURN:
                self.held.append((self.granted_ns, time.monotonic_ns()))
                self.given = False
                self.flags.append(message.flags)
                self.busy_ns += message.busy_ns
                assert self.daemon.page
                self.daemon.page.store(0)
                self.look()
                if message.flags & WANT_MORE:
                    self.give(peer)
            elif kind == lib.WIRE_TOKEN_REQUEST and message.flags & RENEW:
                self.daemon.send(
                    peer, lib.WIRE_EXTEND, epoch=message.epoch, quota_ns=MS, lease_ns=30 * MS, cap_ns=MS, flags=1
                )
            elif kind == lib.WIRE_TOKEN_REQUEST and not self.given:  # it asks again where we were slow
                self.give(peer)
        self.look()

    def kernels(self) -> int:
        return sum(one.kernels for one in self.segments)

    def outside(self) -> list[Segment]:
        """Work that did not lie between a Grant and the Return that confirmed its drain."""
        return [
            one
            for one in self.segments
            if one.start_ns < self.held[-1][1] and not any(a <= one.start_ns and one.end_ns <= b for a, b in self.held)
        ]


def counts_in(path: Path) -> tuple[int, int]:
    launches, waits = struct.unpack("<QQ", path.read_bytes())
    return launches, waits


def closings(folder: Path) -> dict[int, int]:
    """When the library closed its gate, by the epoch of the grant."""
    log = folder / "log"
    said = log.read_text() if log.exists() else ""
    return {int(epoch): int(at) for epoch, at in re.findall(r"open -> closing epoch=(\d+) at_ns=(\d+)", said)}


def finish(process: subprocess.Popen[str], folder: Path) -> str:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, (out, err, (folder / "log").read_text()[-2000:])
    return out


@BESIDE
def test_after_a_drain_was_confirmed_none_of_eight_threads_work_is_on_the_timeline(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path, shared: bool
) -> None:
    process = run(guest_binary, "threads")
    keeper = Keeper(daemon, sim, shared=shared)
    keeper.serve(process, lambda: len(keeper.held) >= 20 and keeper.kernels() > 1000)
    finish(process, folder)
    assert len(keeper.held) >= 20
    assert keeper.outside() == []
    assert not any(flags & lib.WIRE_RETURN_UNCONFIRMED for flags in keeper.flags)


@BESIDE
def test_a_global_capture_stays_valid_while_the_token_changes_a_hundred_times(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path, shared: bool
) -> None:
    process = run(guest_binary, "capture")
    keeper = Keeper(daemon, sim, quota_ms=3, pause_ms=0.2, shared=shared)
    keeper.serve(process, lambda: len(keeper.held) >= 100)
    finish(process, folder)
    assert len(keeper.held) >= 100
    assert keeper.outside() == []


def test_launches_that_are_captured_on_a_stream_in_use_do_not_hold_the_token(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    process = run(guest_binary, "warm")
    keeper = Keeper(daemon, sim)
    # Each capture takes 150 ms, and each grant would last for it.
    keeper.serve(process, lambda: len([end for start, end in keeper.held if end - start < 75 * MS]) >= 3)
    finish(process, folder)
    assert keeper.outside() == []


@BESIDE
def test_contexts_may_end_with_work_in_flight(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path, shared: bool
) -> None:
    process = run(guest_binary, "contexts")
    keeper = Keeper(daemon, sim, shared=shared)
    keeper.serve(process, lambda: len(keeper.held) >= 5 and keeper.kernels() >= 200)
    finish(process, folder)
    assert len(keeper.held) >= 5
    assert keeper.outside() == []


@BESIDE
def test_a_host_function_does_not_hold_the_token(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path, shared: bool
) -> None:
    process = run(guest_binary, "pauses")
    keeper = Keeper(daemon, sim, shared=shared)
    # The function alone takes 150 ms, and each grant would last for it.
    keeper.serve(process, lambda: len([end for start, end in keeper.held if end - start < 100 * MS]) >= 3)
    finish(process, folder)
    assert keeper.outside() == []


@BESIDE
def test_work_that_is_never_waited_for_holds_the_token_no_longer_than_it_runs(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path, shared: bool
) -> None:
    """The library's own thread sees its end, though no context of the program's is current there."""
    process = run(guest_binary, "sparse")
    keeper = Keeper(daemon, sim, shared=shared)
    # Without an event of our own behind it each grant would last for 40 ms, to the next launch.
    keeper.serve(process, lambda: len([end for start, end in keeper.held if end - start < 20 * MS]) >= 10)
    finish(process, folder)
    assert not any(flags & lib.WIRE_RETURN_UNCONFIRMED for flags in keeper.flags)
    assert keeper.outside() == []


def test_a_kernel_of_any_length_keeps_the_card_for_no_more_than_two_of_its_own_beyond_the_quota(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """A persistent kernel has one grid for all that it has to do: what was taken for 50 short ones is 50 long ones."""
    process = run(guest_binary, "lengths", GEMINI_SIM=f"id={sim},profile=h200")
    keeper = Keeper(daemon, sim)
    keeper.serve(process, lambda: len(keeper.held) >= 40 and keeper.kernels() > 1000)
    finish(process, folder)
    assert keeper.outside() == []
    work_ms = [
        sum(one.end_ns - one.start_ns for one in keeper.segments if start <= one.start_ns < end) / MS
        for start, end in keeper.held
    ]
    assert max(work_ms) <= keeper.quota_ms + 2 * 5, sorted(work_ms)[-5:]


def worked_ms(keeper: Keeper, start_ns: int, end_ns: int) -> float:
    """What of the device's time lies between these, by its own record."""
    pieces = (min(one.end_ns, end_ns) - max(one.start_ns, start_ns) for one in keeper.segments)
    return sum(piece for piece in pieces if piece > 0) / MS


def test_a_kernel_of_any_length_ends_its_turn_where_others_run_beside_it_too(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """The lengths are known from turns without company; eight long ones were in flight in each turn that had some."""
    process = run(guest_binary, "lengths", GEMINI_SIM=f"id={sim},profile=h200")
    keeper = Keeper(daemon, sim)
    beside: list[int] = []

    def join() -> None:
        keeper.shared = len(keeper.held) >= 20
        if keeper.shared:
            beside.append(len(keeper.held))

    keeper.before_giving = join
    keeper.serve(process, lambda: len(beside) >= 30)
    finish(process, folder)
    # The first has nothing of those before it in flight: each was drained.
    work_ms = [worked_ms(keeper, *keeper.held[number]) for number in beside if number < len(keeper.held)]
    assert max(work_ms) <= keeper.quota_ms + 2 * 5, sorted(work_ms)[-5:]


def test_who_runs_beside_others_without_an_end_has_few_long_kernels_in_flight_when_asked_back(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """There were eight; the others waited for all of them."""
    process = run(guest_binary, "lengths", GEMINI_SIM=f"id={sim},profile=h200")
    keeper = Keeper(daemon, sim)
    asked: list[int] = []  # epochs

    def join() -> None:
        if len(keeper.held) >= 20:
            keeper.shared, keeper.alone_cap_ms, keeper.quota_ms = True, 4, 5000

    def ask_back() -> bool:
        keeper.look()
        end_ns = time.monotonic_ns()
        runs = keeper.given and keeper.shared and asked[-1:] != [keeper.epoch]
        if runs and worked_ms(keeper, keeper.granted_ns, end_ns) > 40:
            asked.append(keeper.epoch)
            daemon.send(keeper.peer, lib.WIRE_REVOKE, epoch=keeper.epoch, reason=lib.WIRE_REVOKE_NEWCOMER)
        return len(asked) > 10

    keeper.before_giving = join
    keeper.serve(process, ask_back)
    finish(process, folder)
    closed = closings(folder)
    late_ms = [worked_ms(keeper, closed[epoch], keeper.held[epoch - 1][1]) for epoch in asked if epoch in closed]
    assert len(late_ms) >= 10
    assert max(late_ms) <= 4 + 3 * 5, sorted(late_ms)[-5:]  # one more may be on its way out as the gate closes


def test_a_steady_kernel_that_becomes_long_now_and_then_surprises_once(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """40 long ones after 3,000 short ones each time: all 40 were in flight at once, and none was ever measured."""
    process = run(guest_binary, "lengths", "3000", "40", GEMINI_SIM=f"id={sim},profile=h200")
    keeper = Keeper(daemon, sim)

    def seen() -> bool:
        keeper.look()
        worked_ns = sum(one.end_ns - one.start_ns for one in keeper.segments)
        return worked_ns > 6 * 40 * 5 * MS and len(keeper.held) > 100

    keeper.serve(process, seen)
    finish(process, folder)
    assert keeper.outside() == []
    work_ms = [
        sum(one.end_ns - one.start_ns for one in keeper.segments if start <= one.start_ns < end) / MS
        for start, end in keeper.held
    ]
    most = 2 + (keeper.held[-1][1] - keeper.held[0][0]) // lib.EXTREMES_WINDOW_NS  # where the machine is slow
    assert len([one for one in work_ms if one > keeper.quota_ms + 2 * 5]) <= most, sorted(work_ms)[-8:]


def test_a_launch_that_was_never_seen_lets_the_next_one_in_behind_it(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """Else the card would idle from its end until that was noticed."""
    process = run(guest_binary, "sight")
    keeper = Keeper(daemon, sim, quota_ms=5000)
    keeper.serve(process)
    assert finish(process, folder) == "600\n"


def test_copies_from_the_host_are_not_taken_for_work_of_the_kernels_around_them(
    guest_binary: Path, daemon: Daemon, sim: str, run: Run, folder: Path
) -> None:
    process = run(guest_binary, "copies")
    keeper = Keeper(daemon, sim)
    keeper.serve(process, lambda: len(keeper.held) >= 60)
    finish(process, folder)
    worked_ns = sum(one.end_ns - one.start_ns for one in keeper.segments)
    assert keeper.busy_ns < 1.25 * worked_ns, (keeper.busy_ns, worked_ns, len(keeper.held))


def test_who_is_alone_and_ahead_of_the_card_sleeps_seldom(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """A sleep, an event and a look at it for each kernel are processor time that the program itself would not take."""
    process = run(guest_binary, "ahead")
    keeper = Keeper(daemon, sim, quota_ms=60000, alone_cap_ms=20)
    keeper.serve(process)
    assert int(finish(process, folder)) < 4000 / 40


@pytest.mark.parametrize("how", [(), ("own",)], ids=["created", "per-thread"])
def test_a_host_prepares_its_next_work_while_its_gate_is_closed(
    how: tuple[str, ...], daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """Beside others, where the lengths are known; nothing of that runs, or is waited for, before the next grant."""
    path = folder / "counts"
    process = run(guest_binary, "held", path, *how)
    keeper = Keeper(daemon, sim, shared=True)
    ahead: list[int] = []

    def look() -> None:
        if len(keeper.held) < 20:  # the lengths are known by then, also where the machine was slow at first
            return
        launches, waits = counts_in(path)
        wait_for(lambda: counts_in(path)[0] == 8 * (waits + 1), PATIENCE_S, "the whole of the next work in the queue")
        assert counts_in(path)[1] == waits
        ahead.append(counts_in(path)[0] - launches)

    keeper.before_giving = look
    keeper.serve(process, lambda: len(ahead) >= 20)
    finish(process, folder)
    assert keeper.outside() == []
    assert not any(flags & lib.WIRE_RETURN_UNCONFIRMED for flags in keeper.flags)


def test_a_grant_whose_lease_ran_out_while_the_process_was_frozen_lets_go_of_nothing(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """Somebody else has the card by then; the next grant lets go of what is held."""
    process = run(guest_binary, "held", folder / "counts")
    keeper = Keeper(daemon, sim, shared=True)
    stale: list[int] = []

    def freeze() -> None:
        if len(keeper.held) < 5 or stale:
            return
        wait_for(
            lambda: counts_in(folder / "counts")[0] == 8 * (counts_in(folder / "counts")[1] + 1),
            PATIENCE_S,
            "the whole of the next work in the queue",
        )
        process.send_signal(signal.SIGSTOP)
        wait_for(
            lambda: all(
                (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
                for task in Path(f"/proc/{process.pid}/task").iterdir()
            ),
            PATIENCE_S,
            "all of its threads to stand still",
        )
        assert daemon.page
        keeper.epoch += 1
        daemon.grant(peers[-1], keeper.epoch, shared=True)
        daemon.page.store(keeper.epoch + 1000)  # another tenant's turn
        stale.append(time.monotonic_ns())
        process.send_signal(signal.SIGCONT)
        daemon.expect(lib.WIRE_RETURN, skip=(lib.WIRE_STATS, lib.WIRE_USED, lib.WIRE_TOKEN_REQUEST))
        stale.append(time.monotonic_ns())
        keeper.look()

    peers: list[bytes] = []
    give = keeper.give

    def remember(peer: bytes) -> None:
        peers.append(peer)
        give(peer)

    keeper.give = remember  # type: ignore[method-assign]
    keeper.before_giving = freeze
    keeper.serve(process, lambda: len(keeper.held) >= 10)
    finish(process, folder)
    assert len(stale) == 2
    assert [one for one in keeper.segments if stale[0] <= one.start_ns < stale[1]] == []
    assert keeper.outside() == []


def test_a_host_that_goes_away_leaves_all_its_work_to_the_device(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """4 ms of kernels at once, in turns of 1.5 ms, then 3 ms on the host: held while others have the card."""
    path = folder / "counts"
    process = run(guest_binary, "held", path, "away")
    keeper = Keeper(daemon, sim, quota_ms=1.5)
    held: list[int] = []
    keeper.before_giving = lambda: held.append(counts_in(path)[0] - keeper.kernels())
    keeper.serve(process, lambda: sum(count >= 20 for count in held) >= 20)
    finish(process, folder)
    assert keeper.outside() == []
    assert not any(flags & lib.WIRE_RETURN_UNCONFIRMED for flags in keeper.flags)


def test_what_is_held_stays_held_while_what_was_let_go_takes_far_longer_than_was_believed(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """A drain of 50 ms let go of all of it, in others' turns: 40 kernels of 10 ms where a turn of 1.5 ms had ended."""
    path = folder / "counts"
    process = run(guest_binary, "held", path, "grows")
    keeper = Keeper(daemon, sim, quota_ms=1.5)
    held: list[int] = []  # of the long ones

    def look() -> None:
        launches, waits = counts_in(path)
        held.append(launches - keeper.kernels() if waits % 101 == 100 else 0)

    keeper.before_giving = look
    keeper.serve(process, lambda: sum(count >= 20 for count in held) >= 3)
    finish(process, folder)
    assert keeper.outside() == []
    assert max(worked_ms(keeper, *turn) for turn in keeper.held) < 250


def test_nothing_is_held_in_a_process_for_whose_events_others_may_wait(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """They may be what its grant waits for."""
    process = run(guest_binary, "held", folder / "counts", "ipc")
    keeper = Keeper(daemon, sim, shared=True)
    keeper.serve(process, lambda: len(keeper.held) >= 20 and keeper.kernels() > 500)
    finish(process, folder)
    assert keeper.outside() == []
    assert "let go of" not in (folder / "log").read_text()


def test_the_word_that_the_device_waits_for_stays_in_its_page_when_the_program_forks(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """Else the next store might go to a copy of it, while the device looks at the old page."""
    process = run(guest_binary, "held", folder / "counts")
    keeper = Keeper(daemon, sim, shared=True)
    pages: list[str] = []

    def look() -> None:
        if len(keeper.held) >= 5:
            maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{process.pid}/smaps").read_text(), flags=re.M)
            pages[:] = [one for one in maps if re.search(r"^Size: +4 kB", one, re.M) and " 00:00 0 " in one]

    keeper.before_giving = look
    keeper.serve(process, lambda: len(keeper.held) >= 8)
    finish(process, folder)
    assert "let go of" in (folder / "log").read_text()
    assert [one for one in pages if re.search(r"^VmFlags:.* dc\b", one, re.M)], pages


def test_nothing_is_held_that_is_launched_on_a_list_of_devices(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """One call needs the tokens of all: a wait for one of them would stand in a stream before it."""
    process = run(guest_binary, "held", folder / "counts", "group")
    keeper = Keeper(daemon, sim, shared=True)
    keeper.serve(process, lambda: len(keeper.held) >= 100)
    finish(process, folder)
    assert "let go of" not in (folder / "log").read_text()


def test_no_event_is_shared_while_work_before_it_is_held(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """Others could wait for it, and be what the next grant waits for."""
    process = run(guest_binary, "held", folder / "counts", "late")
    keeper = Keeper(daemon, sim, pause_ms=100, shared=True)
    given: list[int] = []
    keeper.before_giving = lambda: given.append(time.monotonic_ns())
    keeper.serve(process)
    before_ns, after_ns = (int(word) for word in finish(process, folder).split())
    assert [at for at in given if before_ns < at < after_ns], (before_ns, after_ns, given)


class Gone(Exception):
    """The daemon is, and the program can have no socket for the next."""


@pytest.mark.parametrize("how", ["closed", "bare"])  # too few descriptors for another socket, and for poll()
def test_what_waits_for_work_that_is_held_for_ever_is_refused(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path, how: str
) -> None:
    """A host function behind it, a capture, the end of its context: the driver would wait, or run it unmarked."""
    process = run(guest_binary, "held", folder / "counts", how)
    keeper = Keeper(daemon, sim, pause_ms=100, shared=True)

    def end_the_daemon() -> None:
        if counts_in(folder / "counts")[0] == UINT64_MAX:
            raise Gone

    keeper.before_giving = end_the_daemon
    with pytest.raises(Gone):
        keeper.serve(process)
    daemon.close()
    assert finish(process, folder) == "2 2 2\n"


@pytest.mark.parametrize("stream", ["own", "legacy", "same"])
def test_a_drain_is_confirmed_while_something_captures(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path, stream: str
) -> None:
    """Of a default stream, or the one that captures, though the thread that launched does not come back."""
    process = run(guest_binary, "behind", stream)
    keeper = Keeper(daemon, sim)
    keeper.serve(process, lambda: keeper.kernels() >= 61 and len(keeper.held) > 0)
    finish(process, folder)
    assert keeper.outside() == []
    assert not any(flags & lib.WIRE_RETURN_UNCONFIRMED for flags in keeper.flags)


def test_nothing_of_the_librarys_calls_the_driver_once_the_process_exits(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """The driver's own handlers have run by then, and its next call would be the program's end by a signal."""
    process = run(guest_binary, "leaves", GEMINI_SIM=f"id={sim},fatal_exit=on,strict=off")
    Keeper(daemon, sim).serve(process)  # whose quota ends 290 ms before the process is gone
    finish(process, folder)


@pytest.mark.parametrize("what", [(), ("kernel",)], ids=["function", "kernel"])
def test_code_is_loaded_before_the_token_is_there(
    what: tuple[str, ...], daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """Of a function as of a library's kernel, which no call is given that is not said to take it."""
    process = run(guest_binary, "sparse", *what, GEMINI_SIM=f"id={sim},load=300ms,fatal_handle=on")
    keeper = Keeper(daemon, sim)
    keeper.serve(process, lambda: len(keeper.held) >= 3)
    finish(process, folder)
    # The first launch loads its function; the grant under which that runs lasts no longer for it.
    assert max(end - start for start, end in keeper.held) < 150 * MS
    assert keeper.outside() == []


@pytest.mark.flaky(reruns=4)
def test_a_graph_that_is_updated_keeps_what_was_learned_of_its_length(
    daemon: Daemon, sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    counts = {}
    keeper = Keeper(daemon, sim)
    for how in ("replays", "updates"):
        process = run(guest_binary, how, 700)
        keeper.serve(process)
        counts[how] = int(finish(process, folder))
    assert counts["updates"] >= 0.6 * counts["replays"] > 0


@contextmanager
def main_thread_stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """Only this one of its threads stands still."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long] * 4
    if ptrace(PTRACE_SEIZE, process.pid, 0, 0) or ptrace(PTRACE_INTERRUPT, process.pid, 0, 0):
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
    os.waitpid(process.pid, WALL)
    yield
    ptrace(PTRACE_DETACH, process.pid, 0, 0)


def test_memory_that_was_granted_is_told_to_the_next_daemon_before_the_thread_hears_of_it(
    sim: str, run: Run, guest_binary: Path, folder: Path
) -> None:
    """Else it were uncounted from the reconnection until the next report."""
    block = 32 * MIB
    daemon = Daemon(folder / "tenant.sock", incarnation=1)
    process = run(guest_binary, "allocate", block)
    reserved = 0
    while True:
        peer, kind, message = daemon.receive(60)
        if kind == lib.WIRE_HELLO:
            daemon.welcome(peer)
        elif kind == lib.WIRE_MEM_RESERVE and message.bytes == block:
            break
        elif kind == lib.WIRE_MEM_RESERVE:
            reserved += message.bytes
            daemon.send(peer, lib.WIRE_MEM_REPLY, answers=message.header.serial, granted=1)
    with main_thread_stopped(process):
        daemon.send(peer, lib.WIRE_MEM_REPLY, answers=message.header.serial, granted=1)
        daemon.send(peer, lib.WIRE_MEM_RECALL, bytes=1)
        daemon.expect(lib.WIRE_MEM_RELEASE, 60)  # the answer to the recall, and so it has the reply
        daemon.close()
        daemon = Daemon(folder / "tenant.sock", incarnation=2)
        _, again = daemon.expect(lib.WIRE_HELLO, 60)
        assert again.memory_bytes[0] == reserved + block
    daemon.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kernel-us", 100],
        ["--kernel-us", 5, "--streams", 3],
        ["--kernel-us", 20, "--graph", 20],
        ["--kernel-us", 50, "--threads", 4, "--streams", "per-thread"],
        ["--kernel-us", 100, "--burst", 10, "--gap-us", 3000],
    ],
    ids=["busy", "short", "graphs", "per-thread", "bursts"],
)
def test_the_load_generator_runs_only_while_it_holds_the_token(
    daemon: Daemon, sim: str, run: Run, folder: Path, arguments: list[object]
) -> None:
    process = run(LIB / "gemini-load", *arguments, "--seconds", 0)
    keeper = Keeper(daemon, sim)
    keeper.serve(process, lambda: len(keeper.held) >= 10 and keeper.kernels() > 100)
    finish(process, folder)
    assert keeper.outside() == []


@pytest.mark.flaky(reruns=4)
def test_logged_bursts_are_the_devices(daemon: Daemon, sim: str, run: Run, folder: Path) -> None:
    process = run(LIB / "gemini-load", "--kernel-us", 100, "--burst", 30, "--gap-us", 10_000, "--seconds", 0)
    keeper = Keeper(daemon, sim)
    keeper.serve(process, lambda: len(keeper.held) >= 30)
    finish(process, folder)
    runs: list[list[int]] = []
    for one in sorted(keeper.segments, key=lambda one: one.start_ns):
        if runs and one.start_ns - runs[-1][1] < MS // 4:
            runs[-1][1] = max(runs[-1][1], one.end_ns)
        else:
            runs.append([one.start_ns, one.end_ns])
    errors = []
    for line in (folder / "log").read_text().splitlines():
        if " burst start_ns=" in line:
            start, end = (int(word.split("=")[1]) for word in line.split()[2:4])
            errors += min(
                ([abs(start - one[0]), abs(end - one[1])] for one in runs), key=lambda pair: pair[0] + pair[1]
            )
    assert len(errors) >= 20
    assert sorted(errors)[len(errors) // 2] <= 100_000, errors
