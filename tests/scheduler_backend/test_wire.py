"""Frames to events and back, by the C core's own structs."""

import pytest

from libhook import core
from libhook.core import lib
from scheduler_backend import wire
from scheduler_backend.core import events as ev

GPUS = {1: 0, 0: 1}  # its device -> our GPU


def event(message: object) -> ev.Event:
    kind, decoded = wire.decode(core.encode(message))
    return wire.event_of(kind, decoded, 7, GPUS)


def test_a_token_request_is_an_ask_or_a_renewal():
    ask = core.new(lib.WIRE_TOKEN_REQUEST, 1, device=1, burst_ns=5, gap_ns=6)
    assert event(ask) == ev.TokenAsked(7, 0, 5, 6)
    renewal = core.new(lib.WIRE_TOKEN_REQUEST, 1, device=0, epoch=9, flags=lib.WIRE_TOKEN_RENEW)
    assert event(renewal) == ev.TokenRenewed(7, 1, 9, False)
    renewal.flags |= lib.WIRE_TOKEN_DRAINING
    assert event(renewal) == ev.TokenRenewed(7, 1, 9, True)
    renewal.flags |= lib.WIRE_TOKEN_FORESEEN
    assert event(renewal) == ev.TokenRenewed(7, 1, 9, True, True)


def test_a_return_carries_flags_and_figures():
    message = core.new(lib.WIRE_RETURN, 1, device=1, epoch=9, busy_ns=3, launches=4, burst_ns=5, gap_ns=6, held_ns=7)
    message.flags = lib.WIRE_RETURN_WANT_MORE | lib.WIRE_RETURN_UNCONFIRMED
    assert event(message) == ev.TokenReturned(7, 0, 9, True, False, True, 3, 4, 5, 6, 7)


def test_what_was_used_is_an_event_with_its_epoch():
    message = core.new(lib.WIRE_USED, 1, device=1, epoch=9, busy_ns=3, waited_ns=4)
    assert event(message) == ev.Used(7, 0, 9, 3, 4)


def test_a_grant_beside_others_says_so():
    grant = ev.Grant(7, 0, 9, 1, 2, 3, False, False, True)
    assert wire.decode(wire.grant(grant, 1, 5))[1].flags == lib.WIRE_GRANT_SHARED
    extend = ev.Extend(7, 0, 9, 1, 2, 3, True, True)
    assert wire.decode(wire.extend(extend, 1, 5))[1].flags == lib.WIRE_GRANT_SHARED | lib.WIRE_GRANT_CONTENDED


def test_memory_messages():
    reserve = core.new(lib.WIRE_MEM_RESERVE, 12, device=1, credit_bytes=2, **{"bytes": 1})
    assert event(reserve) == ev.MemoryAsked(7, 0, 1, 2, 12)
    exported = core.new(lib.WIRE_MEM_RESERVE, 12, device=1, credit_bytes=2, flags=lib.WIRE_MEM_EXPORTED)
    assert event(exported) == ev.MemoryAsked(7, 0, 0, 0, 12, 2)
    release = core.new(lib.WIRE_MEM_RELEASE, 12, device=1, flags=lib.WIRE_MEM_RELEASE_RECALLED, **{"bytes": 5})
    assert event(release) == ev.MemoryReleased(7, 0, 5, True)
    report = core.new(lib.WIRE_MEM_RELEASE, 13, device=1, flags=lib.WIRE_MEM_RELEASE_WHOLE, **{"bytes": 6})
    assert event(report) == ev.MemoryReleased(7, 0, 6, False, True)


def test_what_a_client_may_not_say_is_a_bad_frame():
    with pytest.raises(wire.BadFrame, match="does not send"):
        event(core.new(lib.WIRE_GRANT, 1, device=1))
    with pytest.raises(wire.BadFrame, match="device 5"):
        event(core.new(lib.WIRE_TOKEN_REQUEST, 1, device=5))
    for frame in (b"", b"x" * 2000, core.encode(core.new(lib.WIRE_RETURN, 1))[:-1]):
        with pytest.raises(wire.BadFrame):
            wire.decode(frame)


def test_a_hello_counts_what_is_held_only_in_a_reconnection():
    message = core.new(lib.WIRE_HELLO, 1, client_nonce=5, pid=6, device_count=1, program=b"python")
    message.uuid[0] = bytes(range(16))
    message.held_epoch[0], message.memory_bytes[0] = 3, 4
    assert wire.hello_of(message) == wire.Hello(5, 6, "python", "", (bytes(range(16)),), (0,), (0,), 1)
    message.flags = lib.WIRE_HELLO_AGAIN
    assert wire.hello_of(message)[5:] == ((3,), (4,), 1)


@pytest.mark.parametrize(("contended", "joined"), [(True, False), (False, True)])
def test_grants_and_extends_carry_what_was_decided(contended: bool, joined: bool):
    kind, grant = core.decode(wire.grant(ev.Grant(7, 0, 9, 1, 2, 3, contended, joined), 4, 5))
    flags = (lib.WIRE_GRANT_CONTENDED if contended else 0) | (lib.WIRE_GRANT_JOINED if joined else 0)
    assert kind == lib.WIRE_GRANT
    assert (grant.device, grant.epoch, grant.quota_ns, grant.lease_ns, grant.cap_ns, grant.flags) == (
        4,
        9,
        1,
        2,
        3,
        flags,
    )
    kind, extend = core.decode(wire.extend(ev.Extend(7, 0, 9, 1, 2, 3, contended), 4, 6))
    assert (kind, extend.header.serial, extend.quota_ns) == (lib.WIRE_EXTEND, 6, 1)


def test_the_daemons_other_messages_pass_the_clients_check():
    devices = [wire.WelcomeDevice(1, 2, 3, True), wire.WelcomeDevice(0, 0, 0, False)]
    kind, welcome = core.decode(wire.welcome(1, 2, "train", (300_000, 900_000), True, devices))
    assert kind == lib.WIRE_WELCOME
    assert core.ffi.string(welcome.tenant) == b"train"
    assert (welcome.device[0].page_slot, welcome.device[1].managed) == (3, 0)
    kind, reply = core.decode(wire.mem_reply(ev.MemReply(7, 0, 11, True, 2, 3, 4), 0, 1))
    assert (kind, reply.answers, reply.granted, reply.used_bytes) == (lib.WIRE_MEM_REPLY, 11, 1, 4)
    assert core.decode(wire.mem_recall(ev.MemRecall(7, 0, 5), 0, 1))[1].bytes == 5
    assert core.decode(wire.revoke(ev.Revoke(7, 0, 9, ev.LEASE), 0, 1))[1].reason == lib.WIRE_REVOKE_LEASE
    kind, error = core.decode(wire.error(1, 2, 71, "é" * 300))
    assert kind == lib.WIRE_ERROR
    assert 150 <= len(core.ffi.string(error.text)) <= 159


def test_the_reasons_of_a_revoke_are_the_wires():
    names = ("NEWCOMER", "PREEMPT", "LIMIT", "LEASE", "SHUTDOWN")
    assert [getattr(ev, name) for name in names] == [getattr(lib, f"WIRE_REVOKE_{name}") for name in names]


def test_a_sum_of_lies_that_no_field_holds_is_as_much_as_one_holds():
    most = (1 << 64) - 1
    _, reply = core.decode(wire.mem_reply(ev.MemReply(7, 0, 9, True, 0, 0, most + 1), 4, 5))
    _, recall = core.decode(wire.mem_recall(ev.MemRecall(7, 0, most + 1), 4, 5))
    _, welcome = core.decode(wire.welcome(1, 2, "a", (1, 1), False, [wire.WelcomeDevice(1, most + 1, 0, True)]))
    assert [reply.used_bytes, recall.bytes, welcome.device[0].memory_used_bytes] == [most] * 3
