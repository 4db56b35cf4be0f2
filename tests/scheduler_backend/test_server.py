"""The daemon over real sockets: grants, the page, deaths, bad frames, restarts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from libhook import core
from libhook.core import lib
from scheduler_backend import trace
from scheduler_backend.core import events as ev
from tests.scheduler_backend.rig import MS, PATIENCE_S, PATIENT, ROOT, Client, Rig, is_prepared, wait_for


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


@pytest.fixture
def strict() -> Iterator[Rig]:
    """With leases as they are in use: of some milliseconds."""
    with Rig(patient=False) as made:
        yield made


@contextlib.contextmanager
def forker(rig: Rig, tenant: str, children: int, memory: int = 0) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A client process that holds the token; yields it and [epoch, pids of its children]."""
    path = rig.state_dir / "tenants" / tenant / "tenant.sock"
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.scheduler_backend.forker", str(path), str(children), str(memory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    words = [int(word) for word in child.stdout.readline().split()]
    try:
        yield child, words
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        for pid in words[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_tenant_alone_is_granted_at_once_and_its_page_shows_it(rig: Rig) -> None:
    rig.tenant("a")
    client = rig.client("a")
    assert client.shown() == 0
    client.ask()
    grant = client.grant()
    assert grant.device == client.device(0)
    assert client.shown() == grant.epoch
    assert grant.quota_ns == 50 * MS
    assert not grant.flags & lib.WIRE_GRANT_CONTENDED
    client.give_back(grant.epoch)
    wait_for(lambda: client.shown() == 0, what="closed page")


def test_two_tenants_take_turns_and_never_hold_together(rig: Rig) -> None:
    for name in "ab":
        rig.tenant(name)
    clients = [rig.client("a"), rig.client("b")]
    for client in clients:
        client.ask()
    order = []
    deadline = time.monotonic() + PATIENCE_S
    while min(sum(number == which for number, _ in order) for which in (0, 1)) < 5:
        assert time.monotonic() < deadline, order
        for number, client in enumerate(clients):
            message = client.receive(0)
            if message is not None and message[0] == lib.WIRE_GRANT and not is_prepared(message):
                assert client.shown() == message[1].epoch
                assert not clients[1 - number].shown()
                order.append((number, message[1].epoch))
                client.give_back(message[1].epoch, more=True)
    epochs = [epoch for _, epoch in order]
    assert epochs == sorted(set(epochs))


@pytest.mark.flaky(reruns=4)  # the quota may end before the second asks
def test_a_grant_is_the_tenants_and_a_sibling_joins_it(rig: Rig) -> None:
    rig.tenant("a")
    one, two = rig.client("a"), rig.client("a")
    one.ask()
    first = one.grant()
    two.ask()
    joined = two.grant()
    assert joined.epoch == first.epoch
    assert joined.flags & lib.WIRE_GRANT_JOINED
    assert joined.quota_ns <= first.quota_ns
    one.give_back(first.epoch)
    one.nothing(lib.WIRE_GRANT, 0.05)
    assert two.shown() == first.epoch  # the other holds still
    two.give_back(first.epoch)
    wait_for(lambda: two.shown() == 0)


@pytest.mark.flaky(reruns=2)
def test_who_joins_one_grant_again_and_again_says_something_new_each_time(rig: Rig) -> None:
    rig.tenant("a")
    one, two = rig.client("a"), rig.client("a")
    one.ask()
    epoch = one.grant().epoch
    began = time.monotonic()
    for _ in range(200):
        two.ask()
        assert two.grant().epoch == epoch
        two.give_back(epoch)
    assert time.monotonic() - began < 4  # for repetitions the allowance would last for 40, then for 40 a second


@pytest.mark.flaky(reruns=2)
def test_what_was_used_under_a_grant_that_is_just_over_is_no_repetition(rig: Rig) -> None:
    rig.tenant("a")
    client = rig.client("a")
    client.ask()
    epoch = client.grant().epoch
    client.give_back(epoch)
    began = time.monotonic()
    for number in range(200):
        client.send(lib.WIRE_USED, device=client.device(0), epoch=epoch, busy_ns=number)
    client.ask()
    assert client.grant().epoch != epoch
    assert time.monotonic() - began < 4  # for repetitions the allowance would last for 40, then for 40 a second


def test_a_newcomer_revokes_an_uncontended_lease_and_gets_the_token(rig: Rig) -> None:
    rig.tenant("a")
    rig.tenant("b")
    holder = rig.client("a")
    holder.ask()
    grant = holder.grant()
    newcomer = rig.client("b")
    shorter = holder.expect(lib.WIRE_EXTEND)  # by the Hello alone: the cap gets short before anyone asks
    assert shorter.flags & lib.WIRE_GRANT_CONTENDED
    assert shorter.cap_ns == MS
    newcomer.ask()
    deadline = time.monotonic() + PATIENCE_S
    revoked = False
    while time.monotonic() < deadline and not revoked:
        message = holder.receive(0.05)
        revoked = message is not None and message[0] == lib.WIRE_REVOKE
        if revoked or holder.shown() != grant.epoch:
            break
    holder.give_back(grant.epoch, more=True)
    assert newcomer.grant().epoch > grant.epoch


def test_a_holder_that_renews_is_extended_while_alone(rig: Rig) -> None:
    rig.tenant("a")
    client = rig.client("a")
    client.ask()
    grant = client.grant()
    client.renew(grant.epoch)
    extend = client.expect(lib.WIRE_EXTEND)
    assert extend.epoch == grant.epoch
    assert extend.quota_ns == 50 * MS
    assert extend.lease_ns >= 60_000 * MS  # what the settings say


def test_a_limited_tenant_pauses_between_grants(rig: Rig) -> None:
    rig.tenant("a", 0.2, 0.2)
    client = rig.client("a")
    client.ask()
    started = time.monotonic()
    held, share, grants = 0.0, 1.0, 0
    while grants < 5 or share >= 0.3:  # without a limit it is almost all, however long one looks
        assert time.monotonic() - started < PATIENCE_S, share
        grant = client.grant()
        began = time.monotonic()
        time.sleep(grant.quota_ns / 1e9)
        client.give_back(grant.epoch, more=True)
        held += time.monotonic() - began
        grants += 1
        share = held / (time.monotonic() - started)


@pytest.mark.parametrize("children", [0, 2])
def test_the_token_of_a_killed_holder_is_free_at_once_also_when_forked_children_live(rig: Rig, children: int) -> None:
    rig.tenant("a")
    rig.tenant("b")
    waiter = rig.client("b")
    with forker(rig, "a", children, memory=1 << 20) as (holder, words):
        assert len(words) == children + 1
        assert rig.of("a")["memory_bytes"] == 1 << 20
        waiter.ask()
        wait_for(lambda: rig.of("b")["waiting"])
        holder.send_signal(signal.SIGKILL)
        waiter.grant(PATIENCE_S / 2)  # its lease would last longer
        for pid in words[1:]:
            os.kill(pid, 0)  # the children live on
        wait_for(lambda: rig.of("a")["memory_bytes"] == 0, what="end of the killed one's memory")
        assert rig.of("a")["clients"] == []


def test_a_prepared_hand_over_happens_when_the_holder_says_that_it_has_drained(rig: Rig) -> None:
    for name in "ab":
        rig.tenant(name)
    holder, waiter = rig.client("a"), rig.client("b")
    holder.ask()
    epoch = holder.grant().epoch
    waiter.ask()
    prepared = waiter.expect(lib.WIRE_GRANT, prepared=True)
    assert prepared.flags & lib.WIRE_GRANT_PREPARED
    assert waiter.shown() == 0
    holder.say_drained(epoch, flags=lib.WIRE_DRAINED_IDLE)
    wait_for(lambda: waiter.shown() == prepared.epoch, what="the prepared epoch in the page")
    assert holder.shown() == 0
    holder.give_back(epoch)  # the Return comes behind
    holder.ask()
    again = holder.expect(lib.WIRE_GRANT, prepared=True)
    assert again.flags & lib.WIRE_GRANT_PREPARED
    waiter.send(lib.WIRE_MEM_RESERVE, device=waiter.device(0))
    waiter.expect(lib.WIRE_MEM_REPLY, skip=False)  # no message says again what the page said
    assert rig.of("a")["clients"]


def test_a_return_that_came_with_the_word_counts_once(rig: Rig) -> None:
    for name in "ab":
        rig.tenant(name)
    holder, waiter = rig.client("a"), rig.client("b")
    assert holder.page.features & lib.WIRE_PAGE_TAKES_RETURNS
    holder.ask()
    epoch = holder.grant().epoch
    waiter.ask()
    prepared = waiter.expect(lib.WIRE_GRANT, prepared=True)
    time.sleep(0.02)  # its quota: whoever wants more before that may have it
    said = {"device": holder.device(0), "epoch": epoch, "flags": lib.WIRE_RETURN_WANT_MORE, "launches": 3}
    holder.say_drained(epoch, behind=core.new(lib.WIRE_RETURN, 0, **said))
    wait_for(lambda: waiter.shown() == prepared.epoch, what="the prepared epoch in the page")
    assert holder.page.gpu[0].taken == epoch
    again = holder.expect(lib.WIRE_GRANT, prepared=True)  # without a message it is known to want more
    assert again.epoch > prepared.epoch
    holder.send(lib.WIRE_RETURN, **said)  # it was not sure
    waiter.say_drained(prepared.epoch, flags=lib.WIRE_DRAINED_IDLE)
    wait_for(lambda: holder.shown() == again.epoch, what="its next turn")
    holder.send(lib.WIRE_MEM_RESERVE, device=holder.device(0))
    holder.expect(lib.WIRE_MEM_REPLY)  # what it said before has been read
    assert rig.of("a")["launches"] == 3
    assert rig.of("a")["clients"]


def test_turns_that_were_decided_in_a_row_are_taken_at_once_and_told_together(rig: Rig) -> None:
    clients = {name: rig.client(name) for name in "abcd" if rig.tenant(name, 0.2)}
    for client in clients.values():
        client.ask()
    for turn in range(40):  # nobody reads its messages: the page says whose turn it is
        wait_for(lambda: any(client.shown() for client in clients.values()), what=f"turn {turn}")
        ((client, epoch),) = ((client, client.shown()) for client in clients.values() if client.shown())
        time.sleep(0.01)  # its quota: who wants more before that may have it
        said = {"device": client.device(0), "epoch": epoch, "flags": lib.WIRE_RETURN_WANT_MORE, "launches": 3}
        client.say_drained(epoch, behind=core.new(lib.WIRE_RETURN, 0, **said))
        time.sleep(0.001)
        if client.page.gpu[0].taken != epoch:  # it went the long way
            client.send(lib.WIRE_RETURN, **said)
            wait_for(lambda left=(client, epoch): left[0].shown() != left[1], what="end of the turn")
    assert rig.stop() == 0
    _, entries = trace.read(rig.state_dir / "trace.jsonl")
    told = list(entries)
    charged = [fields for entry in told for kind, fields in entry.actions if kind == "Charged"]
    assert sum(fields[-1] for fields in charged) == 40 * 3, "each Return counts once"
    carried = [place for place, entry in enumerate(told) if type(entry.event) is ev.Carried]
    assert any(
        after == place + 2 and told[after].now_ns - told[place].now_ns > 5e6 for place, after in pairwise(carried)
    )
    assert trace.replay(rig.state_dir / "trace.jsonl") == (len(told), None)


def test_who_asks_right_after_a_turn_of_which_the_node_has_not_heard_is_not_taken_for_one_that_waits(rig: Rig) -> None:
    clients = {name: rig.client(name) for name in "abcd" if rig.tenant(name, 0.2)}
    for client in clients.values():
        client.ask()
    turns = dict.fromkeys(clients, 0)
    for turn in range(60):
        wait_for(lambda: any(client.shown() for client in clients.values()), what=f"turn {turn}: {turns}")
        ((name, epoch),) = ((name, client.shown()) for name, client in clients.items() if client.shown())
        client, turns[name] = clients[name], turns[name] + 1
        more = turn % 3 > 0  # those who want more at once are carried out in a row with who does not
        time.sleep(0.01 if more else 0)
        flags = lib.WIRE_RETURN_WANT_MORE if more else lib.WIRE_RETURN_IDLE
        said = {"device": client.device(0), "epoch": epoch, "flags": flags}
        word = 0 if more else lib.WIRE_DRAINED_IDLE
        client.say_drained(epoch, flags=word, behind=core.new(lib.WIRE_RETURN, 0, **said))
        until = time.monotonic() + 0.01
        while client.shown() == epoch and time.monotonic() < until:
            pass  # what it says next comes as soon as a program's could
        if client.page.gpu[0].taken != epoch:
            client.send(lib.WIRE_RETURN, **said)
        if not more:
            client.ask()
        wait_for(lambda left=(client, epoch): left[0].shown() != left[1], what="end of the turn")
    assert min(turns.values()) >= 10, turns


@pytest.mark.flaky(reruns=4)  # its turn may have ended before it is asked
def test_a_holder_that_drained_early_and_wants_more_hands_nothing_on(rig: Rig) -> None:
    for name in "ab":
        rig.tenant(name)
    holder, waiter = rig.client("a"), rig.client("b")
    holder.ask()
    epoch = holder.grant().epoch
    waiter.ask()
    waiter.expect(lib.WIRE_GRANT, prepared=True)
    holder.say_drained(epoch)
    waiter.nothing(lib.WIRE_GRANT, 0.002)
    assert holder.shown() == epoch


def test_who_says_drained_without_holding_changes_nothing(rig: Rig) -> None:
    for name in "ab":
        rig.tenant(name)
    holder, waiter = rig.client("a"), rig.client("b")
    holder.ask()
    epoch = holder.grant().epoch
    waiter.ask()
    waiter.expect(lib.WIRE_GRANT, prepared=True)
    waiter.say_drained(epoch)
    waiter.say_drained(epoch + 1)
    holder.say_drained(epoch + 5)
    waiter.nothing(lib.WIRE_GRANT, 0.005)
    assert holder.shown() == epoch


@pytest.mark.flaky(reruns=4)
def test_the_token_of_a_frozen_holder_is_free_within_half_a_second(strict: Rig) -> None:
    rig = strict
    rig.tenant("a")
    rig.tenant("b")
    waiter = rig.client("b")
    with forker(rig, "a", 0) as (holder, words):
        holder.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        waiter.ask()
        grant = waiter.grant()
        assert time.monotonic() - frozen < 0.5
        assert grant.epoch > words[0]
        assert rig.of("a")["leases_lost"] == 1


def test_a_client_without_a_page_is_missed_when_its_connection_is_gone(rig: Rig) -> None:
    rig.tenant("a")
    client = rig.client("a", page=False)
    client.ask()
    client.grant()
    assert len(rig.of("a")["clients"]) == 1
    client.close()
    wait_for(lambda: rig.of("a")["clients"] == [], what="forgotten client")
    assert not rig.of("a")["holding"]


BAD_FRAMES = {
    "empty": b"",
    "short": b"GM",
    "no magic": b"\0" * 64,
    "wrong version": struct.pack("<HBBIQ", lib.WIRE_MAGIC, 99, lib.WIRE_TOKEN_REQUEST, 64, 1) + b"\0" * 48,
    "unknown type": struct.pack("<HBBIQ", lib.WIRE_MAGIC, lib.WIRE_VERSION, 77, 64, 1) + b"\0" * 48,
    "cut": core.encode(core.new(lib.WIRE_RETURN, 1))[:-8],
    "a daemon's message": core.encode(core.new(lib.WIRE_GRANT, 1)),
    "oversized": core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 1)) + b"\0" * 5000,
    "an epoch never granted": core.encode(core.new(lib.WIRE_RETURN, 1, device=1, epoch=1 << 60)),
    "a device it does not have": core.encode(core.new(lib.WIRE_TOKEN_REQUEST, 1, device=9)),
}


def test_a_bad_frame_costs_its_sender_the_connection_and_nobody_else_anything(rig: Rig) -> None:
    rig.tenant("a")
    rig.tenant("b")
    other = rig.client("b")
    sibling = rig.client("a")
    for name, frame in BAD_FRAMES.items():
        bad = rig.client("a")
        bad.ask()
        bad.grant()
        bad.socket.send(frame)
        error = bad.expect(lib.WIRE_ERROR)
        assert error.code > 0, name
        assert core.ffi.string(error.text), name
        wait_for(lambda: not rig.of("a")["holding"], what=f"token after {name}")
        bad.ask()
        bad.nothing(lib.WIRE_GRANT, 0.02)
        bad.close()
    other.ask()
    grant = other.grant()
    other.give_back(grant.epoch)
    sibling.ask()
    sibling.grant()


def test_the_first_message_must_be_a_hello_and_two_frames_are_no_message(rig: Rig) -> None:
    rig.tenant("a")
    early = rig.client("a", hello=False)
    early.ask()
    assert b"Hello" in core.ffi.string(early.expect(lib.WIRE_ERROR).text)
    double = rig.client("a")
    double.socket.send_multipart([b"one", b"two"])
    double.expect(lib.WIRE_ERROR)


@pytest.mark.flaky(reruns=4)
def test_a_flood_of_one_tenant_leaves_the_other_its_turn(rig: Rig) -> None:
    rig.tenant("a")
    rig.tenant("b")
    loud, quiet = rig.client("a"), rig.client("b")
    frame = core.encode(core.new(lib.WIRE_STATS, 1, device=1))
    for _ in range(20_000):
        with contextlib.suppress(Exception):
            loud.socket.send(frame, 1)
    began = time.monotonic()
    quiet.ask()
    quiet.grant()
    assert time.monotonic() - began < 1.0


def test_a_client_that_reconnects_holding_is_the_holder_still(rig: Rig) -> None:
    rig.tenant("a")
    client = rig.client("a")
    client.ask()
    grant = client.grant()
    again = Client(client.path, page=False, hello=False, nonce=client.nonce)
    rig.clients.append(again)
    again.hello(held={0: grant.epoch}, memory={0: 4096})
    again.expect(lib.WIRE_WELCOME)
    assert again.expect(lib.WIRE_EXTEND).epoch == grant.epoch
    state = rig.of("a")
    assert state["holding"]
    assert state["memory_bytes"] == 4096
    assert len(state["clients"]) == 1
    again.give_back(grant.epoch)
    wait_for(lambda: not rig.of("a")["holding"])


def test_what_comes_late_on_a_connection_that_was_left_is_not_taken_for_nonsense(rig: Rig) -> None:
    """A daemon that stood still reads the Hello of the new connection before all that came on the old one."""
    rig.tenant("a")
    client = rig.client("a", page=False)
    again = Client(client.path, page=False, hello=False, nonce=client.nonce)
    rig.clients.append(again)
    again.hello(memory={0: 4096})
    again.expect(lib.WIRE_WELCOME)
    client.send(lib.WIRE_MEM_RELEASE, device=client.device(0), bytes=4096)
    client.ask()
    client.nothing(lib.WIRE_ERROR, 0.5)
    again.ask()
    again.grant()
    assert rig.of("a")["memory_bytes"] == 4096
    assert "refused" not in rig.log()


def test_a_hello_of_a_connection_that_was_left_does_not_take_the_place_of_a_later_one(rig: Rig) -> None:
    """A daemon that stood still finds several connections of one process, and reads them in no order of time."""
    rig.tenant("a")
    old = rig.client("a", page=False, hello=False)
    new = rig.client("a", page=False, hello=False, nonce=old.nonce)
    new.serial = 10
    new.hello()
    new.expect(lib.WIRE_WELCOME)
    old.serial = 5
    old.hello()  # read late
    other = rig.client("a", page=False)  # what was said before is read when this one is welcome
    new.ask()
    new.grant()
    other.close()
    assert "refused" not in rig.log()


def test_a_client_with_a_routing_id_of_its_own_may_come_back_with_it(rig: Rig) -> None:
    rig.tenant("a")
    first = rig.client("a", page=False, routing_id=b"mine")
    other = rig.client("a", page=False, nonce=first.nonce, routing_id=b"another")
    first.close()
    again = rig.client("a", page=False, nonce=first.nonce, routing_id=b"mine")
    again.ask()
    again.grant()
    other.close()


def test_what_is_left_on_a_connection_that_is_closed_is_not_taken_for_nonsense(rig: Rig) -> None:
    """A daemon that stood still has the end of a connection before it has read it, and something to say on it."""
    for name in ("a", "b"):
        rig.tenant(name)
    holder, client = rig.client("b"), rig.client("a")
    holder.ask()
    epoch = holder.grant().epoch
    client.ask()
    wait_for(lambda: rig.of("a")["waiting"])
    assert rig.daemon is not None
    rig.daemon.send_signal(signal.SIGSTOP)
    holder.say_drained(epoch)  # the grant that was prepared is told to who waits
    for _ in range(20):
        client.ask()
    client.socket.close(2000)
    again = Client(client.path, page=False, hello=False, nonce=client.nonce)
    again.page = client.page  # its page connection stands, so a grant may begin there
    rig.clients.append(again)
    again.hello(memory={0: 4096})
    rig.daemon.send_signal(signal.SIGCONT)
    again.expect(lib.WIRE_WELCOME)
    again.ask()
    again.grant()
    assert "refused" not in rig.log()


def test_the_page_of_another_process_with_the_same_nonce_is_refused(rig: Rig) -> None:
    rig.tenant("a")
    with forker(rig, "a", 0):
        pass
    client = rig.client("a")
    # the same process may come again; it gets the same page
    client.open_page()
    assert client.offer.size == 4096
    impostor = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, socket, struct; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            "s.send(struct.pack('<IIQ', int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))); "
            "sys.exit(0 if s.recv(1) == b'' else 1)",
            f"{client.path}.page",
            str(lib.WIRE_MAGIC),
            str(lib.WIRE_VERSION),
            str(client.nonce),
        ],
        timeout=60,
        check=False,
    )
    assert impostor.returncode == 0


def test_memory_is_refused_at_the_edge_and_siblings_are_asked_first(rig: Rig) -> None:
    rig.tenant("a", memory_bytes=1000)
    one, two = rig.client("a"), rig.client("a")
    one.send(lib.WIRE_MEM_RESERVE, device=one.device(0), credit_bytes=500, **{"bytes": 400})
    reply = one.expect(lib.WIRE_MEM_REPLY)
    assert reply.granted
    assert reply.credit_bytes == 300  # of the 600 left, for two processes
    serial = two.send(lib.WIRE_MEM_RESERVE, device=two.device(0), **{"bytes": 600})
    recall = one.expect(lib.WIRE_MEM_RECALL)
    assert recall.bytes == 300
    one.send(lib.WIRE_MEM_RELEASE, device=one.device(0), flags=lib.WIRE_MEM_RELEASE_RECALLED, **{"bytes": 300})
    reply = two.expect(lib.WIRE_MEM_REPLY)
    assert (reply.granted, reply.answers, reply.used_bytes, reply.limit_bytes) == (1, serial, 1000, 1000)
    two.send(lib.WIRE_MEM_RESERVE, device=two.device(0), **{"bytes": 1})
    assert not two.expect(lib.WIRE_MEM_REPLY).granted


def test_who_asks_what_its_context_took_reserves_nothing_and_learns_it_where_the_card_can_say(rig: Rig) -> None:
    rig.tenant("a", memory_bytes=1000)
    client = rig.client("a")
    for _ in range(100):  # more often than the card is asked
        client.send(
            lib.WIRE_MEM_RESERVE, device=client.device(0), flags=lib.WIRE_MEM_CONTEXT, credit_bytes=7, **{"bytes": 5}
        )
        reply = client.expect(lib.WIRE_MEM_REPLY)
        assert (reply.granted, reply.credit_bytes, reply.used_bytes) == (
            1,
            0,
            0,
        )  # this rig's cards are unknown to NVML


def test_shares_change_while_tenants_run_and_clients_are_told(rig: Rig) -> None:
    rig.tenant("a", 0.3, 0.9, memory_bytes=100)
    client = rig.client("a")
    assert rig.http("PATCH", "/tenants/a", {"limit": 0.5, "memory_bytes": 200})[0] == 200
    welcome = client.expect(lib.WIRE_WELCOME)
    assert welcome.limit_ppm == 500_000
    assert welcome.device[client.device(0)].memory_limit_bytes == 200
    client.ask()
    assert client.grant().flags & lib.WIRE_GRANT_CONTENDED  # a limit binds: the quota ends


def test_memory_below_what_is_in_use_is_refused_whole_where_that_is_asked(rig: Rig) -> None:
    rig.tenant("a", 0.3, memory_bytes=1000)
    client = rig.client("a")
    client.send(lib.WIRE_MEM_RESERVE, device=client.device(0), **{"bytes": 400})
    assert client.expect(lib.WIRE_MEM_REPLY).granted
    status, answer = rig.http("PATCH", "/tenants/a", {"request": 0.2, "memory_bytes": 399, "holding": True})
    assert status == 409
    assert "tenant a has 400 of a card in use or on credit, more than 399; let it free some" in answer["error"]
    assert (rig.of("a")["request"], rig.of("a")["memory_limit_bytes"]) == (0.3, 1000), "nothing of it was done"
    assert client.expect(lib.WIRE_MEM_RECALL).bytes == 1
    client.send(lib.WIRE_MEM_RELEASE, device=client.device(0), flags=lib.WIRE_MEM_RELEASE_RECALLED, **{"bytes": 0})
    assert rig.http("PATCH", "/tenants/a", {"memory_bytes": 400, "holding": True})[0] == 200
    assert rig.http("PATCH", "/tenants/a", {"memory_bytes": 0, "holding": True})[0] == 200, "the whole card"
    assert rig.http("PATCH", "/tenants/a", {"memory_bytes": 1, "holding": 1})[0] == 422
    assert rig.http("PATCH", "/tenants/a", {"memory_bytes": 1})[0] == 200, "it keeps what it has, and gets no more"


@pytest.mark.parametrize("holding", [True, False])
def test_credit_that_nobody_uses_keeps_no_smaller_share_waiting(rig: Rig, holding: bool) -> None:
    """It counted as used, and nobody asked for it: a program that did nothing more kept it for ever."""
    rig.tenant("a", 0.3, memory_bytes=1000)
    client = rig.client("a")
    client.send(lib.WIRE_MEM_RESERVE, device=client.device(0), credit_bytes=500, **{"bytes": 400})
    assert client.expect(lib.WIRE_MEM_REPLY).credit_bytes == 500
    status, _ = rig.http("PATCH", "/tenants/a", {"memory_bytes": 450, "holding": holding})
    assert status == (409 if holding else 200)
    assert client.expect(lib.WIRE_MEM_RECALL).bytes == 450
    client.send(lib.WIRE_MEM_RELEASE, device=client.device(0), flags=lib.WIRE_MEM_RELEASE_RECALLED, **{"bytes": 450})
    wait_for(lambda: rig.http("PATCH", "/tenants/a", {"memory_bytes": 450, "holding": True})[0] == 200)
    assert rig.of("a")["memory_limit_bytes"] == 450


def test_a_tenant_that_is_deleted_is_gone_with_its_sockets(rig: Rig) -> None:
    path = rig.tenant("a")
    client = rig.client("a")
    client.ask()
    client.grant()
    assert rig.http("DELETE", "/tenants/a")[0] == 200
    assert not os.path.exists(path)
    assert not os.path.exists(f"{path}.page")
    assert client.shown() == 0
    assert rig.state()["tenants"] == []
    rig.tenant("a", 0.2)  # and may come again with other shares
    rig.client("a")


def test_a_restarted_daemon_grants_nothing_before_those_it_knew_have_spoken(rig: Rig) -> None:
    rig.tenant("a")
    rig.tenant("b")
    holder, waiter = rig.client("a"), rig.client("b")
    holder.ask()
    grant = holder.grant()
    rig.restart(signal.SIGKILL, PATIENT)  # it waits for the silent as long
    assert {tenant["name"] for tenant in rig.state()["tenants"]} == {"a", "b"}
    later = rig.client("b", nonce=waiter.nonce)  # has spoken; the holder has not
    later.ask()
    holder_again = Client(holder.path, page=False, hello=False, nonce=holder.nonce)
    rig.clients.append(holder_again)
    holder_again.hello(held={0: grant.epoch})
    assert holder_again.expect(lib.WIRE_REVOKE).epoch == grant.epoch
    later.nothing(lib.WIRE_GRANT, 0.05)
    holder_again.give_back(grant.epoch)
    fresh = later.grant()
    assert fresh.epoch > grant.epoch
    assert fresh.epoch > 1_000_000  # a block of its own


def test_it_waits_for_those_of_the_config_files_tenants_too() -> None:
    settings = f"{PATIENT}[tenants.a]\nrequest = 0.3\n[tenants.b]\nrequest = 0.3\n"
    with Rig() as rig:
        rig.restart(signal.SIGTERM, settings)
        holder, waiter = rig.client("a"), rig.client("b")
        holder.ask()
        grant = holder.grant()
        rig.restart(signal.SIGKILL, settings)
        later = rig.client("b", nonce=waiter.nonce)
        later.ask()
        later.nothing(lib.WIRE_GRANT, 0.05)
        holder_again = Client(holder.path, page=False, hello=False, nonce=holder.nonce)
        rig.clients.append(holder_again)
        holder_again.hello(held={0: grant.epoch})
        assert holder_again.expect(lib.WIRE_REVOKE).epoch == grant.epoch
        holder_again.give_back(grant.epoch)
        assert later.grant().epoch > grant.epoch


def test_a_restarted_daemon_waits_no_longer_than_the_longest_lease_for_the_silent(strict: Rig) -> None:
    rig = strict
    rig.tenant("a")
    rig.tenant("b")
    silent, waiter = rig.client("a"), rig.client("b")
    silent.ask()
    silent.grant()
    silent.socket.close(0)  # it lives, and does not come back
    rig.stop(signal.SIGKILL)
    rig.start()
    waiter = rig.client("b", nonce=waiter.nonce)
    waiter.ask()
    waiter.grant()


def without_a_page_over_a_restart(rig: Rig) -> None:
    """One of tenant a, which ends while no daemon is there."""
    rig.tenant("a")
    client = rig.client("a", page=False)
    rig.stop(signal.SIGKILL)
    client.close()
    rig.start()


def test_who_had_no_page_and_does_not_come_back_to_a_restarted_daemon_is_forgotten(strict: Rig) -> None:
    without_a_page_over_a_restart(strict)
    wait_for(lambda: strict.of("a")["clients"] == [], what="end of the wait for it")
    assert strict.of("a")["enforced"] == "no process"
    saved = strict.state_dir / "state.json"
    wait_for(lambda: json.loads(saved.read_text())["clients"] == [], what="state without it")


def test_who_had_no_page_is_not_forgotten_while_a_restarted_daemon_waits(rig: Rig) -> None:
    without_a_page_over_a_restart(rig)
    rig.tenant("b")
    probed = rig.client("b", page=False)
    for _ in range(3):
        probed.expect(lib.WIRE_WELCOME)  # a round of looking after those without a page
    assert len(rig.of("a")["clients"]) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_container_that_mounted_its_folder_finds_the_next_daemons_sockets_in_it(rig: Rig, number: int) -> None:
    folder = Path(rig.tenant("a")).parent
    mounted = os.open(folder, os.O_RDONLY)
    rig.stop(number)
    rig.start()
    assert os.path.samestat(os.fstat(mounted), os.stat(folder))
    assert sorted(os.listdir(mounted)) == ["tenant.sock", "tenant.sock.page"]
    os.close(mounted)


def test_a_wedged_listener_or_half_a_hello_on_the_page_socket_disturbs_nobody(rig: Rig) -> None:
    import socket

    path = rig.tenant("a")
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(f"{path}.page")
    half = socket.socket(socket.AF_UNIX)
    half.connect(f"{path}.page")
    half.send(b"GM")
    half.settimeout(PATIENCE_S)
    assert half.recv(1) == b""
    client = rig.client("a")
    client.ask()
    client.grant()
    silent.close()
    half.close()
