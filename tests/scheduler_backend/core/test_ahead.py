"""Hand-overs that are decided before the holder has drained, and what comes of those that were carried out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from scheduler_backend.core import events as ev
from scheduler_backend.core.ahead import NEVER_NS, TOLD_AHEAD
from scheduler_backend.core.line import grant_of
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import TenantSpec
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
    assert (order.quota_ns, order.lease_ns, order.cap_ns, order.contended) == (9 * MS, 39 * MS, MS, True)


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
    bench.do(ev.Tick())
    assert bench.machine.prepared is not None
    assert bench.machine.prepared.holder_epoch == order.epoch


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
        bench.at(max(bench.now_ns, bench.machine.grant.quota_until_ns) / MS)  # with its prolongations on the way
        if bench.now_ns < bench.machine.grant.quota_until_ns:
            continue
        name, epoch = bench.holder, bench.machine.epoch
        assert name is not None
        before_ns = bench.machine.grant.granted_ns
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


def test_of_many_processes_that_come_to_wait_each_has_only_a_few_told_anew():
    count = 100
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    for client in range(count):
        bench.do(ev.ClientJoined("b", 100 + client, (0,)))
    orders = [order for client in range(count) for order in of(bench.ask(100 + client), ev.Prepare)]
    assert sum(len(order.clients) for order in orders) <= TOLD_AHEAD * count
    assert (len(orders[-1].clients), orders[-1].more) == (TOLD_AHEAD, count - TOLD_AHEAD)
    bench.at(10)
    granted = of(carried(bench), ev.Grant)
    assert {grant.client for grant in granted} == {100 + client for client in range(count)}
    assert {(grant.quota_ns, grant.cap_ns) for grant in granted} == {
        (each.quota_ns, each.cap_ns) for each in (grant_of(orders[-1], client) for client in orders[-1].clients)
    }


def owed_much() -> Bench:
    """a holds for the second time, b has had more than its tenth: at its quota's end a would be picked again."""
    bench = Bench(("a", 0.9), ("b", 0.1))
    bench.ask(1)
    bench.at(1).ask(2)
    bench.at(10)
    carried(bench)
    bench.do(ev.TokenReturned(1, 0, 1, True))
    bench.at(20)
    assert (bench.machine.prepared.tenant, bench.machine.prepared.wanting_from_ns) == ("a", 12.5 * MS)
    carried(bench)
    bench.do(ev.TokenReturned(2, 0, 2, True))
    return bench


def test_where_the_holder_would_be_picked_again_the_order_is_for_one_that_wants_no_more():
    bench = owed_much()
    order = bench.machine.prepared
    assert (order.holder_tenant, order.tenant, order.wanting_from_ns) == ("a", "b", NEVER_NS)
    carried(bench)
    assert bench.holder == "b"
    assert not bench.machine.seats["a"].returning, "it wants no more"
    assert bench.machine.clock.active_ppm() == 100_000


def test_an_order_keeps_its_epoch_when_only_its_condition_changes():
    bench = owed_much()
    first = bench.machine.prepared
    while bench.machine.prepared.wanting_from_ns == NEVER_NS:
        assert bench.now_ns < 200 * MS, "b's turn never came"
        bench.at(bench.now_ns / MS + 1)
        bench.do(ev.TokenRenewed(1, 0, bench.machine.epoch))
    assert bench.machine.prepared == first._replace(wanting_from_ns=bench.machine.grant.quota_until_ns - 2 * MS)
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


def test_one_that_comes_by_an_order_before_its_bucket_is_full_enough_has_rested_until_then():
    bench = Bench(("a", 0.5, 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    a = bench.machine.seats["a"]
    bench.at(9).do(ev.Tick())
    a.credit, a.filled_ns = bench.machine.limits.need_ns(a) * 1_000_000 - 4 * MS * a.limit_ppm, bench.now_ns
    bench.back(1, more=True)
    order = bench.machine.prepared
    assert order is not None
    assert (bench.holder, order.tenant, a.throttled) == ("b", "a", True)
    missing_ns = 100_000  # as for a hand-over since the order was given
    a.credit -= missing_ns * a.limit_ppm
    bench.now_ns = order.not_before_ns
    carried(bench)
    assert (bench.holder, a.ready_since_ns) == ("a", order.not_before_ns + Policy().resume_early_ns + missing_ns)


def test_an_order_that_was_not_given_is_a_bug_of_ours():
    bench = Bench(("a", 0.5), ("b", 0.5))
    bench.ask(1)
    bench.ask(2)
    with pytest.raises(ev.LocalProtocolError, match="prepared"):
        bench.do(ev.Carried(0, 1, 77))


def busy(count: int, **more: Any) -> Bench:
    """So many tenants with equal requests, all waiting; the first holds."""
    bench = Bench(*((chr(ord("a") + i), 1 / (count + 1)) for i in range(count)), **more)
    for client in range(1, count + 1):
        bench.ask(client)
    return bench


def orders(bench: Bench) -> list[ev.Prepare]:
    assert bench.machine.prepared is not None
    return [bench.machine.prepared, *bench.machine.behind]


def test_who_always_has_work_takes_turns_that_are_decided_in_a_row():
    bench = busy(6)
    assert [order.tenant for order in orders(bench)] == ["b", "c", "d", "e"]
    for before, order in pairwise(orders(bench)):
        assert (order.after, order.holder_epoch) == (before.epoch, before.epoch)
        assert (order.holder, order.holder_tenant) == (before.clients[0], before.tenant)
        assert order.wanting_from_ns == before.quota_ns - 2 * MS, "from the hand-over before on"
    assert len({order.epoch for order in orders(bench)}) == 4


def test_turns_that_were_decided_in_a_row_are_those_that_would_be_decided_one_by_one():
    ahead, singly = busy(7), busy(7, policy=Policy(ahead=1))
    for bench, taken in ((ahead, []), (singly, [])):
        for turn in range(1, 40):
            order = bench.machine.prepared
            assert order is not None
            bench.at(9.2 * turn)
            bench.do(ev.Carried(0, order.holder_epoch, order.epoch, followed=True))
            bench.do(ev.TokenReturned(order.holder, 0, order.holder_epoch, True))
            taken.append(bench.holder)
        bench.taken = taken  # type: ignore[attr-defined]
    assert ahead.taken == singly.taken  # type: ignore[attr-defined]


def test_what_was_carried_out_in_a_row_is_charged_as_it_was():
    bench = busy(5)
    first, second, *later = orders(bench)
    bench.at(9)
    bench.do(ev.Carried(0, first.holder_epoch, first.epoch, followed=True))
    bench.do(ev.TokenReturned(1, 0, first.holder_epoch, True, busy_ns=8 * MS, followed=True))
    assert bench.machine.prepared == second._replace(after=0, wanting_from_ns=(9 + 9 - 2) * MS)
    bench.at(18.5)
    actions = bench.do(ev.Carried(0, second.holder_epoch, second.epoch, followed=True))
    assert of(actions, ev.Charged)[0].held_ns == 9.5 * MS
    bench.do(ev.TokenReturned(2, 0, second.holder_epoch, True))
    assert bench.holder == "c"
    told = [order.epoch for order in orders(bench)]
    assert told[:2] == [order.epoch for order in later], "what its clients were told stands"
    assert [order.tenant for order in orders(bench)] == ["d", "e", "a"], "b had more than its turn: c is before it then"


def test_one_that_comes_back_owed_ends_what_was_decided_in_a_row():
    bench = busy(4)
    assert len(orders(bench)) == 3, "each tenant once: who holds cannot be told of a grant to come"
    epochs = {order.epoch for order in orders(bench)}
    bench.do(ev.TenantAdded(TenantSpec("rest", 200_000, 1_000_000, 0, False)))  # now all of the card is promised
    epochs |= {order.epoch for order in orders(bench)}
    actions = bench.at(1).do(ev.TenantAdded(TenantSpec("z", 0, 1_000_000, 0, False)))
    assert [action.epoch for action in of(actions, ev.Unprepare)] == [orders(bench)[0].epoch + 1]
    assert len(orders(bench)) == 1, "best effort comes when nobody else waits: that is decided when it is so"
    assert orders(bench)[0].epoch in epochs


@pytest.mark.parametrize("more", [(0.5,), (1.0, True)], ids=["a limit", "the latency class"])
def test_only_what_is_sure_is_decided_in_a_row(more: tuple[Any, ...]):
    bench = Bench(("a", 0.3), ("b", 0.3), ("c", 0.3), ("d", 0.1, *more))
    for client in (1, 2, 3):
        bench.ask(client)
    assert len(orders(bench)) == 1


def test_a_tenant_of_several_processes_ends_the_row():
    bench = Bench(("a", 0.2), ("b", 0.2), ("c", 0.2), ("d", 0.2))
    bench.do(ev.ClientJoined("c", 33, (0,)))
    for client in (1, 2, 3, 33, 4):
        bench.ask(client)
    assert [order.tenant for order in orders(bench)] == ["b", "c"], "who knows which of c's drains last"
