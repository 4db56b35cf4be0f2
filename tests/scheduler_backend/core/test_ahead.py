"""Hand-overs that are decided before the holder has drained, and what comes of those that were carried out."""

from __future__ import annotations

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.ahead import NEVER_NS
from scheduler_backend.core.policy import MS
from tests.scheduler_backend.core.test_machine import Bench, of


def carried(bench: Bench) -> list[ev.Action]:
    order = bench.machine.prepared
    assert order is not None
    return bench.do(ev.Carried(0, order.holder_epoch, order.epoch))


def test_who_waits_is_prepared_with_the_figures_of_its_grant():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    (order,) = of(bench.at(1).ask(2), ev.Prepare)
    assert (order.holder, order.holder_tenant, order.holder_epoch) == (1, "a", bench.machine.epoch)
    assert (order.tenant, order.clients, order.epoch) == ("b", (2,), 2)
    assert (order.quota_ns, order.lease_ns, order.cap_ns, order.contended) == (9 * MS, 29 * MS, MS, True)


def test_the_same_order_is_said_once():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    assert not of(bench.at(3).do(ev.Tick()), ev.Prepare)
    assert not of(bench.do(ev.TokenRenewed(1, 0, bench.machine.epoch)), ev.Prepare)


def test_carried_out_it_charges_the_one_and_grants_the_other():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.at(1).ask(2)
    bench.at(10)
    actions = carried(bench)
    assert [type(a) for a in actions] == [ev.Page, ev.Charged, ev.Page, ev.Grant, ev.Handed, ev.Unprepare][
        : len(actions)
    ]
    assert of(actions, ev.Charged)[0].held_ns == 10 * MS
    (grant,) = of(actions, ev.Grant)
    assert (grant.client, grant.epoch, grant.quota_ns) == (2, 2, 9 * MS)
    assert bench.holder == "b"


def test_the_return_that_follows_says_what_was_done_and_asks_for_more():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.at(1).ask(2)
    bench.at(10)
    carried(bench)
    actions = bench.do(ev.TokenReturned(1, 0, 1, True, busy_ns=9 * MS, launches=90))
    assert of(actions, ev.Charged) == [ev.Charged("a", 0, 1, 0, 0, 9 * MS, 90)]
    assert of(actions, ev.Prepare)[0].tenant == "a"


def test_with_the_return_at_hand_what_comes_next_is_decided_then():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.at(1).ask(2)
    order = bench.machine.prepared
    assert order is not None
    actions = bench.at(10).do(ev.Carried(0, order.holder_epoch, order.epoch, followed=True))
    assert bench.holder == "b"
    assert not of(actions, ev.Prepare)
    assert bench.wake_ns == 10 * MS, "at once, should no Return come for once"
    assert of(bench.do(ev.TokenReturned(1, 0, 1, True)), ev.Prepare)[0].tenant == "a"


def test_with_no_return_after_all_the_tick_decides():
    bench = Bench(("a", 0.4), ("b", 0.3), ("c", 0.3))
    bench.ask(1)
    bench.ask(2)
    bench.ask(3)
    order = bench.machine.prepared
    assert order is not None
    assert not of(bench.at(10).do(ev.Carried(0, order.holder_epoch, order.epoch, followed=True)), ev.Prepare)
    assert of(bench.do(ev.Tick()), ev.Prepare)[0].holder_epoch == order.epoch


def test_nothing_is_prepared_on_the_word_of_one_that_gave_the_same_epoch_back_before():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    bench.ask(11)
    bench.ask(2)
    bench.at(2).back(11, more=True)  # it said that it drained, and joins again
    bench.at(3).back(1)
    assert bench.holder == "a"
    assert bench.machine.prepared is None  # by its old word it would be over at once
    bench.at(10).back(11, more=True)
    bench.at(20).back(2, more=True)
    assert bench.machine.prepared is not None


def test_busy_tenants_keep_their_shares_by_orders_alone():
    bench = Bench(("a", 0.7), ("b", 0.3))
    bench.ask(1)
    bench.ask(2)
    held = {"a": 0, "b": 0}
    clients = {"a": 1, "b": 2}
    for _ in range(600):
        bench.at(max(bench.now_ns, bench.machine.quota_until_ns) / MS)  # with its prolongations on the way
        if bench.now_ns < bench.machine.quota_until_ns:
            continue
        name, epoch = bench.holder, bench.machine.epoch
        assert name is not None
        before_ns = bench.machine.granted_ns
        if bench.machine.prepared:
            carried(bench)
            bench.do(ev.TokenReturned(clients[name], 0, epoch, True))
        else:
            bench.back(clients[name], more=True)
        held[name] += bench.now_ns - before_ns
    assert held["a"] / sum(held.values()) == pytest.approx(0.7, abs=0.005)


def test_there_is_no_order_while_two_processes_of_the_holder_must_drain():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.do(ev.ClientJoined("a", 11, (0,)))
    bench.ask(1)
    bench.ask(11)
    assert not of(bench.ask(2), ev.Prepare)
    (order,) = of(bench.back(11), ev.Prepare)
    assert order.holder == 1


def owed_much() -> Bench:
    """a holds for the second time, b has had more than its tenth: at its quota's end a would be picked again."""
    bench = Bench(("a", 0.9), ("b", 0.1))
    bench.ask(1)
    bench.at(1).ask(2)
    bench.at(10)
    carried(bench)
    bench.do(ev.TokenReturned(1, 0, 1, True))
    bench.at(20)
    assert (bench.machine.prepared.tenant, bench.machine.prepared.wanting_from_ns) == ("a", 13.4 * MS)
    carried(bench)
    bench.do(ev.TokenReturned(2, 0, 2, True))
    return bench


def test_where_the_holder_would_be_picked_again_the_order_is_for_one_that_wants_no_more():
    bench = owed_much()
    order = bench.machine.prepared
    assert (order.holder_tenant, order.tenant, order.wanting_from_ns) == ("a", "b", NEVER_NS)
    carried(bench)
    assert bench.holder == "b"
    assert not bench.machine.returning, "it wants no more"
    assert bench.machine.active_ppm() == 100_000


def test_an_order_keeps_its_epoch_when_only_its_condition_changes():
    bench = owed_much()
    first = bench.machine.prepared
    while bench.machine.prepared.wanting_from_ns == NEVER_NS:
        assert bench.now_ns < 200 * MS, "b's turn never came"
        bench.at(bench.now_ns / MS + 1)
        bench.do(ev.TokenRenewed(1, 0, bench.machine.epoch))
    assert bench.machine.prepared == first._replace(wanting_from_ns=bench.machine.quota_until_ns - 2 * MS)
    carried(bench)
    assert bench.holder == "b"


def test_alone_there_is_nobody_to_prepare_for():
    bench = Bench(("a", 0.5))
    assert not of(bench.ask(1), ev.Prepare)


def test_a_better_one_takes_the_place_of_the_order():
    bench = Bench(("a", 0.4), ("b", 0.3), ("c", 0.3, 1.0, True))
    bench.ask(1)
    assert of(bench.ask(2), ev.Prepare)[0].tenant == "b"
    assert of(bench.ask(3), ev.Prepare)[0].tenant == "c"


def test_the_order_is_off_when_who_was_next_is_gone():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    assert of(bench.do(ev.ClientDied(2)), ev.Unprepare)
    assert bench.machine.prepared is None


def test_an_order_that_was_not_given_is_a_bug_of_ours():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    with pytest.raises(ev.LocalProtocolError, match="prepared"):
        bench.do(ev.Carried(0, 1, 77))
