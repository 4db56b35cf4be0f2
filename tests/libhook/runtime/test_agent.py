"""The gate and the agent in a real process, over real sockets, with a daemon by script and a driver of our own."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.bed import wait_for
from libhook.core import ffi, lib
from tests.libhook.runtime.conftest import MS, PATIENCE_S, Client, Daemon

RENEW, DRAINING, FORESEEN = lib.WIRE_TOKEN_RENEW, lib.WIRE_TOKEN_DRAINING, lib.WIRE_TOKEN_FORESEEN
WANT_MORE, IDLE = lib.WIRE_RETURN_WANT_MORE, lib.WIRE_RETURN_IDLE
Start = Callable[..., Client]


class Served:
    """Grants whatever is asked, one grant at a time, and notes when each was given and confirmed drained."""

    def __init__(self, daemon: Daemon, quota_ms: float = 10, pause_ms: float = 2, **how: Any) -> None:
        self.daemon, self.quota_ms, self.pause_ms, self.how = daemon, quota_ms, pause_ms, how
        self.epoch = 0
        self.returns: list[Any] = []
        self.held: list[tuple[int, int]] = []  # monotonic: Grant sent, Return received
        self.granted_ns = 0
        self.messages: list[int] = []
        self.renewals: list[int] = []  # flags

    def give(self, peer: bytes) -> None:
        time.sleep(self.pause_ms / 1000)
        self.epoch += 1
        self.granted_ns = time.monotonic_ns()
        self.daemon.grant(peer, self.epoch, self.quota_ms, **self.how)

    def serve(self, client: Client, until: Callable[[], object] = lambda: False) -> None:
        """Until that comes about, or to the client's end."""
        end = time.monotonic() + PATIENCE_S
        while client.process.poll() is None and not until():
            assert time.monotonic() < end, (len(self.returns), self.daemon.story[-12:])
            try:
                peer, kind, message = self.daemon.receive(0.05)
            except TimeoutError:
                continue
            self.messages.append(kind)
            if kind == lib.WIRE_HELLO:
                self.daemon.welcome(peer)
            elif kind == lib.WIRE_RETURN:
                self.held.append((self.granted_ns, time.monotonic_ns()))
                self.returns.append(message)
                if self.daemon.page:
                    self.daemon.page.store(0)
                if message.flags & WANT_MORE:
                    self.give(peer)
            elif kind == lib.WIRE_TOKEN_REQUEST and message.flags & RENEW:
                self.renewals.append(message.flags)
                self.daemon.send(
                    peer,
                    lib.WIRE_EXTEND,
                    epoch=message.epoch,
                    quota_ns=int(self.quota_ms * MS),
                    lease_ns=int((self.quota_ms + 20) * MS),
                    cap_ns=MS,
                    flags=1,
                )
            elif kind == lib.WIRE_TOKEN_REQUEST:
                self.give(peer)

    def until_returned(self, client: Client, count: int) -> None:
        """Serve until so many grants have come back."""
        self.serve(client, lambda: len(self.returns) >= count)
        assert len(self.returns) >= count

    def end(self, client: Client) -> Any:
        """Tell it to end, and serve it until it has; what it says."""
        client.process.send_signal(signal.SIGTERM)
        self.serve(client)
        return client.finish()


def outside(work: list[tuple[int, int, int]], held: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """The work that was not wholly between a Grant and the Return that confirmed its drain."""
    return [one for one in work if not any(a <= one[0] and one[1] <= b for a, b in held)]


def test_hello_tells_who_it_is_and_the_page_knows_it_by_the_nonce(daemon: Daemon, start: Start) -> None:
    client = start("bursts", 1, 1, 1000, 1000)
    peer, hello = daemon.expect(lib.WIRE_HELLO)
    assert (hello.pid, hello.device_count, hello.flags) == (client.process.pid, 1, 0)
    assert ffi.string(hello.program) == b"client"
    assert bytes(hello.uuid[0]) == b"0123456789abcdef"
    assert hello.memory_bytes[0] == 4096
    daemon.welcome(peer)
    daemon.expect(lib.WIRE_TOKEN_REQUEST)
    assert daemon.page
    while not daemon.page.nonces:
        time.sleep(0.001)
    assert daemon.page.nonces == [hello.client_nonce]
    daemon.grant(peer, 1)
    client.finish()


@pytest.mark.flaky(reruns=4)
def test_a_busy_process_drains_at_its_quotas_end_and_runs_only_while_it_holds(daemon: Daemon, start: Start) -> None:
    client = start("busy", 100_000)
    served = Served(daemon)
    served.until_returned(client, 15)
    assert outside([w for w in client.work() if w[0] < served.held[-1][1]], served.held) == []
    middle = served.returns[2:]
    overuse = [one.overuse_ns / MS for one in middle]
    busy = [one.busy_ns / MS for one in middle]
    assert statistics.median(overuse) <= 1, overuse
    assert statistics.median(busy) >= 8, busy
    assert all(one.launches for one in middle)


def test_a_return_is_kept_for_a_moment_where_the_next_tenant_runs_already(daemon: Daemon, start: Start) -> None:
    """The daemon is not to wake beside the next one's threads. On a busy machine it is seen in some turns only."""
    start("busy", 100_000)
    peer, _ = daemon.greet()
    page = daemon.page
    assert page
    wait_for(lambda: page.connections, PATIENCE_S, "connection of the page")
    carrier, following = lib.carrier_start(), ffi.new("struct wire_page *")
    done = ffi.new("struct carrier_done[]", lib.CARRIER_AHEAD)
    try:
        number = lib.carrier_listen(carrier, page.connections[0].fileno(), 1)
        epoch, kept = 0, []
        while len(kept) < 40 and sum(one >= 400_000 for one in kept) < 3:
            _, kind, message = daemon.receive()
            received_ns = time.monotonic_ns()
            if kind == lib.WIRE_RETURN:
                assert message.epoch == epoch
                carried = lib.carrier_take_back(carrier, 0, done)
                kept.append(received_ns - done[0].carried_ns if carried else 0)
            elif kind != lib.WIRE_TOKEN_REQUEST or epoch:
                continue
            epoch += 1
            daemon.grant(peer, epoch, quota_ms=5)
            lib.carrier_prepare(carrier, 0, False, number, page.page, 3, epoch, following, 3, 1000 + epoch, 0, 0, False)
        assert sum(one >= 400_000 for one in kept) == 3, kept
    finally:
        lib.carrier_stop(carrier)


def test_a_return_goes_with_its_word_and_as_a_message_only_where_that_was_not_taken(
    daemon: Daemon, start: Start
) -> None:
    """On a busy machine the daemon's thread is late, and what it took comes as a message too: each epoch comes."""
    page = daemon.page
    assert page
    page.page.features = lib.WIRE_PAGE_TAKES_RETURNS
    start("busy", 100_000)
    peer, _ = daemon.greet()
    wait_for(lambda: page.connections, PATIENCE_S, "connection of the page")
    carrier, following = lib.carrier_start(), ffi.new("struct wire_page *")
    done = ffi.new("struct carrier_done[]", lib.CARRIER_AHEAD)
    taken: set[int] = set()
    told: set[int] = set()
    epoch = 0
    try:
        number = lib.carrier_listen(carrier, page.connections[0].fileno(), 1)
        daemon.expect(lib.WIRE_TOKEN_REQUEST)
        while len(taken - told) < 3 and epoch < 400:
            epoch += 1
            daemon.grant(peer, epoch, quota_ms=5)
            lib.carrier_prepare(carrier, 0, False, number, page.page, 3, epoch, following, 3, 1000 + epoch, 0, 0, False)
            deadline = time.monotonic() + PATIENCE_S
            while epoch not in taken | told:
                assert time.monotonic() < deadline, daemon.story[-12:]
                if lib.carrier_take_back(carrier, 0, done) and done[0].returned:
                    said = done[0].said
                    assert said.epoch == epoch == page.page.gpu[3].taken
                    assert said.flags & WANT_MORE
                    assert said.launches
                    taken.add(epoch)
                    continue
                if not lib.wire_page_load_epoch(page.page, 3):  # carried out, but by a word that had no order yet
                    told.add(daemon.expect(lib.WIRE_RETURN)[1].epoch)
                    continue
                lib.carrier_prepare(
                    carrier, 0, False, number, page.page, 3, epoch, following, 3, 1000 + epoch, 0, 0, False
                )
                with contextlib.suppress(TimeoutError):
                    _, kind, message = daemon.receive(0.01)
                    if kind == lib.WIRE_RETURN:
                        told.add(message.epoch)
        assert len(taken - told) == 3, (taken, told)
    finally:
        lib.carrier_stop(carrier)


@pytest.mark.flaky(reruns=4)
def test_a_kernel_longer_than_the_quota_is_the_only_one(daemon: Daemon, start: Start) -> None:
    client = start("busy", 30_000_000)
    served = Served(daemon)
    served.until_returned(client, 6)
    assert [one.launches for one in served.returns] == [1] * len(served.returns)
    assert statistics.median(one.overuse_ns for one in served.returns) == pytest.approx(20 * MS, abs=4 * MS)
    assert outside([w for w in client.work() if w[1] < served.held[-1][1]], served.held) == []


@pytest.mark.alone  # launches in a quota of 10 ms
@pytest.mark.parametrize("sync", [0, 1], ids=["back to back", "one after the other"])
def test_an_estimate_that_was_too_long_is_soon_mended(daemon: Daemon, start: Start, sync: int) -> None:
    """What is believed to fill a quota is the only launch of its turn: none stands beside it to be measured by."""
    client = start("shrinking", 30_000_000, 6, 100_000, sync)
    served = Served(daemon)
    served.until_returned(client, 18)
    launches = [one.launches for one in served.returns]
    assert launches[:6] == [1] * 6
    assert max(launches[6:]) > 20, launches


def test_what_is_used_beside_others_is_not_less_for_threads_that_stand_still(daemon: Daemon, start: Start) -> None:
    """Between two looks at the clock and at the card a thread may be kept from running; work is no shorter for that."""
    client = start("busy", 100_000, CLIENT_STANDSTILL="3")
    served = Served(daemon, shared=True)
    served.until_returned(client, 30)
    until_ns = served.held[-1][1]
    worked_ns = sum(min(end_ns, until_ns) - begin_ns for begin_ns, end_ns, _ in client.work() if begin_ns < until_ns)
    said_ns = sum(one.busy_ns for one in served.returns)
    assert 0.9 * worked_ns <= said_ns <= 1.1 * worked_ns


@pytest.mark.flaky(reruns=4)
def test_an_idle_process_gives_back_soon_after_its_work_and_its_bursts_are_the_devices(
    daemon: Daemon, start: Start
) -> None:
    client = start("bursts", 14, 20, 100_000, 15_000_000, CLIENT_LINGER="20000000")
    served = Served(daemon)
    served.serve(client)
    later = served.returns[3:]
    assert all(one.flags == IDLE for one in later)
    assert statistics.median(one.idle_ns for one in later) <= 500_000
    assert statistics.median(one.burst_ns for one in later) == pytest.approx(2 * MS, rel=0.15)
    assert statistics.median(one.gap_ns for one in later) >= 12 * MS
    client.finish()
    work = client.work()
    logged = [
        tuple(int(part.split("=")[1]) for part in line.split()[2:4])
        for line in client.log_text().splitlines()
        if " burst start_ns=" in line
    ]
    device = []  # the device's own runs
    for begin, end, _ in work:
        if device and begin - device[-1][1] < 250_000:
            device[-1][1] = end
        else:
            device.append([begin, end])
    errors = [
        min(abs(begin - one[0]) + abs(end - one[1]) for one in device) / 2 for begin, end in logged if end - begin > MS
    ]
    assert len(errors) >= 10
    assert statistics.median(errors) <= 100_000, errors
    assert client.process.returncode == 0


@pytest.mark.flaky(reruns=7)
@pytest.mark.parametrize("where", ["own", "explicit"])
def test_a_program_that_never_synchronises_is_seen_to_be_idle(daemon: Daemon, start: Start, where: str) -> None:
    client = start("silent", 300_000, where)
    served = Served(daemon)
    served.until_returned(client, 1)
    assert served.returns[0].flags == IDLE
    assert served.returns[0].launches == 1
    assert served.returns[0].idle_ns <= 3 * MS


def test_a_renewal_says_whether_the_drain_lasts_as_was_foreseen(daemon: Daemon, start: Start) -> None:
    client = start("busy", 60 * MS)
    served = Served(daemon)
    served.until_returned(client, 1)
    assert RENEW | DRAINING in served.renewals  # of the first kernel nothing is known
    served.serve(client, lambda: RENEW | DRAINING | FORESEEN in served.renewals)
    assert RENEW | DRAINING | FORESEEN in served.renewals


@pytest.mark.flaky(reruns=4)
def test_alone_there_is_no_drain_and_a_newcomer_gets_its_turn(daemon: Daemon, start: Start) -> None:
    client = start("busy", 200_000)
    peer, _ = daemon.greet()
    daemon.expect(lib.WIRE_TOKEN_REQUEST)
    daemon.grant(peer, 1, quota_ms=200, lease_ms=1000, cap_ms=20, contended=False)
    for _ in range(5):
        _, message = daemon.expect(lib.WIRE_TOKEN_REQUEST)
        assert message.flags == RENEW
        daemon.send(peer, lib.WIRE_EXTEND, epoch=1, quota_ns=200 * MS, lease_ns=1000 * MS, cap_ns=20 * MS)
    sent = time.monotonic()
    daemon.send(peer, lib.WIRE_REVOKE, epoch=1, reason=lib.WIRE_REVOKE_NEWCOMER)
    _, message = daemon.expect(lib.WIRE_RETURN)
    assert time.monotonic() - sent <= 0.1  # what was in flight: 20 ms
    assert message.flags & WANT_MORE
    runs = client.work()
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(runs)]
    assert sum(gap for gap in gaps if gap > 0) <= 0.2 * (runs[-1][1] - runs[0][0])


def test_no_work_of_eight_threads_is_outside_its_grants(daemon: Daemon, start: Start) -> None:
    client = start("eight")
    served = Served(daemon, pause_ms=1)
    served.serve(client, lambda: len(served.returns) > 10 and len({thread for _, _, thread in client.work()}) == 8)
    done = served.held[-1][1]
    assert outside([w for w in client.work() if w[0] < done], served.held) == []


def test_a_global_capture_stays_valid_while_the_token_comes_and_goes(daemon: Daemon, start: Start) -> None:
    client = start("capture")
    served = Served(daemon, quota_ms=3, pause_ms=0.2)
    served.until_returned(client, 100)
    assert served.end(client)["valid"]


def test_streams_may_be_destroyed_while_their_work_runs(daemon: Daemon, start: Start) -> None:
    client = start("streams")
    served = Served(daemon, pause_ms=0.5)
    served.serve(client)
    assert client.finish()["streams"] == 63
    assert outside([w for w in client.work() if w[0] < served.held[-1][1]], served.held) == []


def test_a_frozen_holder_wakes_before_a_closed_gate(daemon: Daemon, start: Start) -> None:
    client = start("busy", 100_000)
    served = Served(daemon, quota_ms=60_000)
    while True:  # a holder whose thread stands still seems idle, and gives back; then it asks again
        served.serve(client, lambda: len(client.work()) >= 10 and served.epoch > len(served.returns))
        client.freeze()
        if not daemon.socket.poll(100):
            break
        client.process.send_signal(signal.SIGCONT)
    assert daemon.page
    daemon.page.store(0)  # the lease ran out
    stopped = len(client.work())
    client.process.send_signal(signal.SIGCONT)
    peer, message = daemon.expect(lib.WIRE_RETURN)
    assert message.epoch == served.epoch
    time.sleep(0.05)
    assert len(client.work()) <= stopped + 1  # one launch per thread
    later = Served(daemon)
    later.epoch = served.epoch
    if message.flags & WANT_MORE:
        later.give(peer)
    later.serve(client, lambda: len(client.work()) > stopped + 1)  # it goes on


def test_without_the_page_the_messages_alone_are_right(folder: Path, start: Start) -> None:
    daemon = Daemon(folder / "tenant.sock", page=False)
    try:
        client = start("busy", 100_000)
        served = Served(daemon)
        served.until_returned(client, 8)
        assert outside([w for w in client.work() if w[0] < served.held[-1][1]], served.held) == []
    finally:
        daemon.close()


def open_files(pid: int) -> set[str]:
    """What its descriptors are; one that is closed meanwhile is none."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return found


def test_a_forked_child_is_a_client_of_its_own(daemon: Daemon, start: Start) -> None:
    client = start("fork")
    served = Served(daemon)
    peer, hello = daemon.expect(lib.WIRE_HELLO)
    daemon.welcome(peer)
    daemon.expect(lib.WIRE_TOKEN_REQUEST)
    daemon.grant(peer, 1)
    while True:
        child, kind, message = daemon.receive()
        if kind == lib.WIRE_HELLO:
            break
    assert child != peer
    assert message.pid != hello.pid
    assert message.client_nonce != hello.client_nonce
    assert message.flags == 0
    daemon.welcome(child)
    # Neither end of the parent's sockets is open in the child.
    inherited, childs = open_files(hello.pid), open_files(message.pid)
    assert not {name for name in inherited if name.startswith("socket")} & childs
    served.epoch = 5
    served.serve(client)
    assert client.finish() == {"child": 0}


def test_the_agent_is_one_thread_that_takes_no_signal(daemon: Daemon, start: Start) -> None:
    client = start("busy", 100_000)
    daemon.greet()
    daemon.expect(lib.WIRE_TOKEN_REQUEST)  # all is set up
    tasks = Path(f"/proc/{client.process.pid}/task")
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir()]
    assert sorted(names) == ["client", "gemini-agent"]

    def blocked(task: Path) -> tuple[str, bool]:
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        return status["Name"], int(status["SigBlk"], 16) != 0

    wait_for(  # the program's thread has its own again once it has come back from starting the agent
        lambda: sorted(map(blocked, tasks.iterdir())) == [("client", False), ("gemini-agent", True)], 60, "masks"
    )
    for fd in Path(f"/proc/{client.process.pid}/fdinfo").iterdir():
        try:
            link, told = os.readlink(f"/proc/{client.process.pid}/fd/{fd.name}"), fd.read_text()
        except FileNotFoundError:
            continue  # closed meanwhile
        if link.startswith(("socket", "anon_inode")):
            assert int(told.split("flags:\t")[1].split()[0], 8) & os.O_CLOEXEC


def test_the_daemon_may_die_and_return(folder: Path, start: Start) -> None:
    first = Daemon(folder / "tenant.sock", incarnation=1)
    client = start("busy", 100_000)
    peer, hello = first.greet()
    first.expect(lib.WIRE_TOKEN_REQUEST)
    first.grant(peer, 1, quota_ms=40)
    client.until_launched(1)
    first.close()  # the socket file is gone too
    end = time.monotonic() + PATIENCE_S
    while " draining -> " not in client.log_text():  # the quota was used to its end
        assert time.monotonic() < end, client.log_text()
        time.sleep(0.01)
    stopped = len(client.work())
    time.sleep(0.2)
    assert len(client.work()) == stopped  # then it waits
    assert client.process.poll() is None
    second = Daemon(folder / "tenant.sock", incarnation=2)
    try:
        peer, again = second.expect(lib.WIRE_HELLO)
        assert again.client_nonce == hello.client_nonce
        assert again.flags == lib.WIRE_HELLO_AGAIN
        assert again.held_epoch[0] == 0
        second.welcome(peer)
        second.expect(lib.WIRE_TOKEN_REQUEST)
        second.grant(peer, 1001)
        _, message = second.expect(lib.WIRE_RETURN)
        assert message.epoch == 1001
        served = Served(second)
        served.epoch = 1001
        if message.flags & WANT_MORE:
            served.give(peer)
        served.serve(client, lambda: len(client.work()) > stopped + 50)
    finally:
        second.close()


def test_what_is_still_held_at_a_reconnection_is_told(folder: Path, start: Start) -> None:
    first = Daemon(folder / "tenant.sock", incarnation=1)
    client = start("busy", 100_000)
    peer, _ = first.greet()
    first.expect(lib.WIRE_TOKEN_REQUEST)
    first.grant(peer, 77, quota_ms=60_000, lease_ms=60_020, contended=False)
    client.until_launched(1)
    first.close()
    second = Daemon(folder / "tenant.sock", incarnation=2)
    try:
        assert second.page
        second.page.store(77)
        peer, again = second.expect(lib.WIRE_HELLO)
        assert again.held_epoch[0] == 77
        second.welcome(peer)
        client.until_launched(len(client.work()) + 100)  # it goes on
        second.send(peer, lib.WIRE_REVOKE, epoch=77, reason=lib.WIRE_REVOKE_PREEMPT)
        _, message = second.expect(lib.WIRE_RETURN)
        assert message.epoch == 77
    finally:
        second.close()


def test_a_daemon_that_counts_from_anew_is_heard(folder: Path, start: Start) -> None:
    """Its state was lost. What was given back to the one before is higher than all that it will grant."""
    first = Daemon(folder / "tenant.sock", incarnation=1)
    start("busy", 100_000)
    peer, _ = first.greet()
    first.expect(lib.WIRE_TOKEN_REQUEST)
    first.grant(peer, 1000)
    first.expect(lib.WIRE_RETURN)
    first.grant(peer, 1001, quota_ms=60_000, lease_ms=60_020, contended=False)
    first.close()
    second = Daemon(folder / "tenant.sock", incarnation=2)
    try:
        assert second.page
        second.page.store(1001)
        peer, again = second.expect(lib.WIRE_HELLO)
        second.welcome(peer)
        if again.held_epoch[0]:  # it is given back to this one
            second.send(peer, lib.WIRE_REVOKE, epoch=1001, reason=lib.WIRE_REVOKE_LEASE)
            assert second.expect(lib.WIRE_RETURN)[1].epoch == 1001
        else:
            second.expect(lib.WIRE_TOKEN_REQUEST)
        for epoch in (1, 2):
            second.grant(peer, epoch)
            assert second.expect(lib.WIRE_RETURN)[1].epoch == epoch
    finally:
        second.close()


def test_what_was_prepared_by_a_daemon_that_is_gone_opens_no_gate(daemon: Daemon, start: Start) -> None:
    """The connection is cut, and the daemon does not know yet: its thread carries the order out."""
    client = start("busy", 100_000)
    peer, _ = daemon.greet()
    page = daemon.page
    assert page
    maps = Path(f"/proc/{client.process.pid}/maps")
    wait_for(lambda: "memfd:page" in maps.read_text(), PATIENCE_S, "mapping of the page")
    daemon.expect(lib.WIRE_TOKEN_REQUEST)
    prepared = {"quota_ns": 10 * MS, "lease_ns": 30 * MS, "cap_ns": MS, "flags": lib.WIRE_GRANT_PREPARED | 1}
    daemon.send(peer, lib.WIRE_GRANT, epoch=5, **prepared)
    page.store(5)
    assert daemon.expect(lib.WIRE_RETURN)[1].epoch == 5
    daemon.send(peer, lib.WIRE_GRANT, epoch=6, **prepared)
    daemon.send(peer, lib.WIRE_MEM_RECALL, bytes=1)  # read after it
    asked = (lib.WIRE_STATS, lib.WIRE_TOKEN_REQUEST)  # a holder whose thread stood still gave back as idle, and asks
    daemon.expect(lib.WIRE_MEM_RELEASE, skip=asked)
    daemon.socket.close(0)
    wait_for(lambda: "is gone" in client.log_text(), PATIENCE_S, "word of it")
    stopped = len(client.work())
    page.store(6)
    time.sleep(0.3)  # three times what a waiting thread sleeps before it looks again
    assert len(client.work()) <= stopped + 1


def test_mode_run_goes_on_without_a_daemon_and_obeys_it_when_it_comes(folder: Path, start: Start) -> None:
    client = start("busy", 200, GEMINI_ON_BACKEND_LOSS="run")  # the driver's queue here has no end
    client.until_launched(200)
    daemon = Daemon(folder / "tenant.sock")
    try:
        peer, _ = daemon.greet()
        daemon.expect(lib.WIRE_TOKEN_REQUEST)
        stopped = len(client.work())
        time.sleep(0.1)
        assert len(client.work()) == stopped
        daemon.grant(peer, 1)
        daemon.expect(lib.WIRE_RETURN)
    finally:
        daemon.close()
    client.until_launched(len(client.work()) + 200)


def test_a_device_that_is_not_shared_is_not_gated(daemon: Daemon, start: Start) -> None:
    client = start("busy", 100_000)
    peer, _ = daemon.expect(lib.WIRE_HELLO)
    daemon.welcome(peer, managed=0)
    client.until_launched(300)  # nothing was granted


@pytest.mark.flaky(reruns=2)
def test_the_valve_lets_in_what_the_drain_waits_for(daemon: Daemon, start: Start) -> None:
    client = start("valve")
    served = Served(daemon)
    served.serve(client)
    assert client.finish() == {"peer_came": 1}
    stats = [line for line in client.log_text().splitlines() if "draining -> valve" in line]
    assert stats


def test_memory_is_reserved_released_and_recalled(daemon: Daemon, start: Start) -> None:
    client = start("memory")
    peer, _ = daemon.greet()
    _, first = daemon.expect(lib.WIRE_MEM_RESERVE)
    assert (first.bytes, first.credit_bytes) == (1000, 32 << 20)
    daemon.send(
        peer,
        lib.WIRE_MEM_REPLY,
        answers=first.header.serial,
        granted=1,
        credit_bytes=64,
        limit_bytes=9000,
        used_bytes=1064,
    )
    _, second = daemon.expect(lib.WIRE_MEM_RESERVE)
    assert (second.bytes, second.credit_bytes) == (5000, 0)
    daemon.send(peer, lib.WIRE_MEM_REPLY, answers=12345, granted=1)  # nobody asked this
    daemon.send(peer, lib.WIRE_MEM_REPLY, answers=second.header.serial, granted=0, limit_bytes=9000, used_bytes=8000)
    _, release = daemon.expect(lib.WIRE_MEM_RELEASE)
    assert release.bytes == 600
    _, third = daemon.expect(lib.WIRE_MEM_RESERVE)
    assert third.bytes == 0
    daemon.send(peer, lib.WIRE_MEM_RECALL, bytes=1 << 20)
    _, release = daemon.expect(lib.WIRE_MEM_RELEASE)
    assert release.bytes == 100
    daemon.send(peer, lib.WIRE_MEM_REPLY, answers=third.header.serial, granted=1, limit_bytes=9000, used_bytes=777)
    assert client.finish() == {
        "first": 0,
        "credit": 64,
        "second": -12,
        "third": 0,
        "limit": 9000,
        "used": 777,
        "other": -107,
    }


def test_a_thread_that_is_cancelled_while_it_waits_ends_when_it_was_answered(daemon: Daemon, start: Start) -> None:
    client = start("cancelled")
    peer, _ = daemon.greet()
    _, asked = daemon.expect(lib.WIRE_MEM_RESERVE)
    assert asked.bytes == 1000
    daemon.send(peer, lib.WIRE_MEM_REPLY, answers=asked.header.serial, granted=1)
    daemon.expect(lib.WIRE_TOKEN_REQUEST)
    daemon.grant(peer, 1)
    _, asked = daemon.expect(lib.WIRE_MEM_RESERVE)
    assert asked.bytes == 2000
    daemon.send(peer, lib.WIRE_REVOKE, epoch=1)
    _, message = daemon.expect(lib.WIRE_RETURN)  # no thread is left inside, nor counted as one that waits
    assert (message.epoch, message.launches) == (1, 1)
    assert not message.flags & lib.WIRE_RETURN_WANT_MORE
    daemon.send(peer, lib.WIRE_MEM_REPLY, answers=asked.header.serial, granted=1)
    assert client.finish() == {"answered": 1, "first": 1, "second": 1, "after": 0}


def test_a_daemon_that_talks_nonsense_is_survived(daemon: Daemon, start: Start) -> None:
    client = start("busy", 100_000)
    peer, _ = daemon.greet()
    daemon.expect(lib.WIRE_TOKEN_REQUEST)
    for junk in (b"", b"x", b"GM" * 500, bytes(1024)):
        daemon.socket.send_multipart([peer, junk])
    daemon.send(peer, lib.WIRE_REVOKE, epoch=99)
    daemon.send(peer, lib.WIRE_EXTEND, epoch=99)
    daemon.send(peer, lib.WIRE_GRANT, device=15, epoch=5, quota_ns=MS, lease_ns=MS)
    daemon.grant(peer, 1)
    _, message = daemon.expect(lib.WIRE_RETURN)
    assert message.epoch == 1
    assert client.process.poll() is None


@pytest.mark.flaky(reruns=4)
def test_the_open_gate_costs_nanoseconds(daemon: Daemon, start: Start) -> None:
    """Function only: the figure is the bench's matter; here it must not be of another order."""
    client = start("cost", GEMINI_LOG="error")
    peer, _ = daemon.greet()
    daemon.expect(lib.WIRE_TOKEN_REQUEST)
    daemon.grant(peer, 1, quota_ms=60_000, lease_ms=61_000, cap_ms=1000, contended=False)
    cost = client.finish()
    assert cost["with_ns"] - cost["without_ns"] <= 60, cost


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("GEMINI_ON_BACKEND_LOSS", "maybe", "wait or run"),
        ("GEMINI_LOG", "loud", "error, warn, info or debug"),
        ("GEMINI_MEMORY_LIMIT", "1GiB", "a number of bytes"),
    ],
)
def test_a_bad_option_costs_one_line(daemon: Daemon, start: Start, name: str, value: str, mend: str) -> None:
    client = start("busy", 1000, **{name: value})
    peer, _ = daemon.expect(lib.WIRE_HELLO)
    daemon.welcome(peer, managed=0)
    client.until_launched(20)
    client.process.send_signal(signal.SIGTERM)
    client.finish()
    lines = [line for line in client.log_text().splitlines() if name in line]
    assert len(lines) == 1
    assert value in lines[0]
    assert mend in lines[0]


def test_a_socket_that_does_not_answer_is_told_once(folder: Path, start: Start) -> None:
    client = start("busy", 1000, GEMINI_LOG="error")
    end = time.monotonic() + PATIENCE_S
    while not client.log_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.3)
    assert client.log_text().count("\n") == 1
    assert "does not answer" in client.log_text()
    assert client.process.poll() is None  # mode wait
    assert outside(client.work(), []) == []


def test_a_daemon_that_listens_may_take_its_time_and_one_that_never_answers_is_told_once(
    daemon: Daemon, start: Start
) -> None:
    """Whoever stands still for a while, as any process may on a busy machine, is no daemon that is not there."""
    client = start("busy", 1000, GEMINI_LOG="error")
    begun = time.monotonic()
    daemon.expect(lib.WIRE_HELLO)
    while not client.log_text():
        assert time.monotonic() < begun + PATIENCE_S
        time.sleep(0.01)
    assert time.monotonic() - begun > 4
    assert client.log_text().count("\n") == 1
    assert "does not answer" in client.log_text()


def test_without_a_socket_the_library_does_nothing(folder: Path, start: Start) -> None:
    client = start("busy", 1000, GEMINI_SOCKET="")
    client.until_launched(1000)
    client.process.send_signal(signal.SIGTERM)
    assert client.finish()["launches"] >= 1000
    assert client.log_text() == ""
