"""The memory account: never above the limit, never a refusal while a sibling sits on unused credit."""

from __future__ import annotations

from scheduler_backend.core import events as ev
from scheduler_backend.core.ledger import AGAIN, MOST_WAITING, Account

MS = 1_000_000


def account(limit: int, *clients: int) -> Account:
    made = Account(0, limit, 20 * MS)
    for client in clients:
        made.join(client, 0)
    return made


def ask(made: Account, client: int, needed: int, credit: int = 0, now_ns: int = 0) -> list[ev.Action]:
    return made.ask(ev.MemoryAsked(client, 0, needed, credit, 9), now_ns)


def test_credit_is_given_where_it_costs_nobody_anything():
    made = account(100, 1)
    assert ask(made, 1, 40, 50) == [ev.MemReply(1, 0, 9, True, 50, 100, 90)]
    made = account(100, 1, 2)
    assert ask(made, 1, 40, 50) == [ev.MemReply(1, 0, 9, True, 30, 100, 70)]  # half of what is left
    assert account(0, 1).ask(ev.MemoryAsked(1, 0, 1 << 50, 5, 9), 0) == [
        ev.MemReply(1, 0, 9, True, 5, 0, (1 << 50) + 5)
    ]


def test_asking_for_nothing_tells_the_figures():
    made = account(100, 1)
    ask(made, 1, 30)
    assert ask(made, 1, 0, 50) == [ev.MemReply(1, 0, 9, True, 0, 100, 30)]


def test_beside_siblings_that_hold_nothing_a_refusal_comes_at_once():
    made = account(100, 1, 2)
    ask(made, 1, 100)
    assert ask(made, 1, 1) == [ev.MemReply(1, 0, 9, False, 0, 100, 100)]


def test_a_siblings_unused_credit_is_recalled_before_anyone_is_refused():
    made = account(100, 1, 2)
    ask(made, 1, 40, 60)  # gets 30 of credit
    assert ask(made, 2, 50) == [ev.MemRecall(1, 0, 20)]
    assert made.release(ev.MemoryReleased(1, 0, 30, True), 1) == [ev.MemReply(2, 0, 9, True, 0, 100, 90)]
    assert ask(made, 2, 20) == [ev.MemRecall(1, 0, 10)]  # again: it may have kept what it freed since
    assert made.release(ev.MemoryReleased(1, 0, 0, True), 2) == [ev.MemReply(2, 0, 9, False, 0, 100, 90)]


def test_a_sibling_is_asked_once_at_a_time_whoever_asks():
    made = account(100, 1, 2, 3)
    made.join(1, 50)
    made.join(2, 50)
    assert ask(made, 3, 10) == [ev.MemRecall(1, 0, 10), ev.MemRecall(2, 0, 10)]
    assert ask(made, 3, 20) == []  # for what it lacks, once they have answered
    assert ask(made, 1, 5) == []
    assert made.release(ev.MemoryReleased(2, 0, 0, True), 1) == [ev.MemRecall(2, 0, 35)]
    assert made.release(ev.MemoryReleased(2, 0, 40, True), 2) == [
        ev.MemReply(3, 0, 9, True, 0, 100, 70),
        ev.MemReply(3, 0, 9, True, 0, 100, 90),
        ev.MemReply(1, 0, 9, True, 0, 100, 95),
    ]
    made.check()


def test_who_was_asked_for_another_is_asked_again_before_a_refusal():
    made = account(100, 1, 2)
    ask(made, 1, 40, 60)
    made.join(1, 100)
    ask(made, 2, 20)
    ask(made, 2, 30)
    assert made.release(ev.MemoryReleased(1, 0, 20, True), 1) == [
        ev.MemReply(2, 0, 9, True, 0, 100, 100),
        ev.MemRecall(1, 0, 30),
    ]
    assert made.release(ev.MemoryReleased(1, 0, 0, True), 2) == [ev.MemReply(2, 0, 9, False, 0, 100, 100)]


def test_who_has_given_all_back_is_not_asked_again():
    made = account(100, 1, 2, 3)
    made.join(1, 50)
    made.join(2, 50)
    ask(made, 3, 90)
    ask(made, 3, 80)
    assert made.release(ev.MemoryReleased(1, 0, 50, True), 1) == []
    assert made.release(ev.MemoryReleased(2, 0, 10, True), 2) == [
        ev.MemReply(3, 0, 9, False, 0, 100, 40),
        ev.MemRecall(2, 0, 20),
    ]
    made.check()


def test_one_that_never_answered_is_asked_again_once_it_is_back():
    made = account(100, 1, 2)
    ask(made, 1, 100)
    ask(made, 2, 60)
    made.settle(20 * MS)
    assert ask(made, 2, 60, now_ns=20 * MS) == []
    made.join(1, 100)
    assert ask(made, 2, 60, now_ns=21 * MS) == [ev.MemRecall(1, 0, 120)]
    made.check()


def test_one_that_owes_an_answer_for_long_is_asked_again_now_and_then():
    made = account(100, 1, 2)
    ask(made, 1, 100)
    assert ask(made, 2, 60) == [ev.MemRecall(1, 0, 60)]  # this is lost
    made.settle(20 * MS)
    assert ask(made, 2, 60, now_ns=AGAIN * 20 * MS - 1) == []
    made.settle(AGAIN * 20 * MS + 20 * MS)
    assert ask(made, 2, 60, now_ns=AGAIN * 20 * MS + 20 * MS) == [ev.MemRecall(1, 0, 60)]
    assert ask(made, 2, 10, now_ns=AGAIN * 20 * MS + 30 * MS) == []
    assert made.release(ev.MemoryReleased(1, 0, 80, True), AGAIN * 20 * MS + 31 * MS) == [
        ev.MemReply(2, 0, 9, True, 0, 100, 80),
        ev.MemReply(2, 0, 9, True, 0, 100, 90),
    ]
    made.check()


def test_the_late_answer_to_the_first_of_two_recalls_refuses_nobody():
    made = account(100, 1, 2)
    ask(made, 1, 100)
    ask(made, 2, 10)
    made.settle(20 * MS)
    assert ask(made, 2, 90, now_ns=AGAIN * 20 * MS) == [ev.MemRecall(1, 0, 90)]
    assert made.release(ev.MemoryReleased(1, 0, 10, True), AGAIN * 20 * MS + 1) == [ev.MemRecall(1, 0, 80)]
    assert made.release(ev.MemoryReleased(1, 0, 80, True), AGAIN * 20 * MS + 2) == [
        ev.MemReply(2, 0, 9, True, 0, 100, 100)
    ]
    made.check()


def test_only_so_many_wait_for_a_recall():
    made = account(100, 1, 2)
    ask(made, 1, 100)
    for _ in range(MOST_WAITING):
        assert not any(isinstance(action, ev.MemReply) for action in ask(made, 2, 1))
    assert ask(made, 2, 1) == [ev.MemReply(2, 0, 9, False, 0, 100, 100)]
    assert len(made.settle(20 * MS)) == MOST_WAITING


def test_a_sibling_that_died_unnoticed_is_waited_for():
    made = account(100, 1, 2)
    ask(made, 1, 100)
    assert ask(made, 2, 60) == [ev.MemRecall(1, 0, 60)]
    assert made.leave(1, 1) == [ev.MemReply(2, 0, 9, True, 0, 100, 60)]


def test_an_ordinary_release_is_not_taken_for_the_answer():
    made = account(100, 1, 2)
    ask(made, 1, 40, 60)
    ask(made, 2, 60)
    assert made.release(ev.MemoryReleased(1, 0, 5, False), 1) == []
    assert made.release(ev.MemoryReleased(1, 0, 25, True), 1) == [ev.MemReply(2, 0, 9, True, 0, 100, 100)]


def test_a_frozen_sibling_delays_a_refusal_only_so_long():
    made = account(100, 1, 2)
    ask(made, 1, 40, 60)
    ask(made, 2, 60, now_ns=5)
    assert made.wake_ns == 20 * MS + 5
    assert made.settle(19 * MS) == []
    assert made.settle(20 * MS + 5) == [ev.MemReply(2, 0, 9, False, 0, 100, 70)]
    assert made.wake_ns == 0


def test_a_death_gives_all_back_and_answers_who_waits():
    made = account(100, 1, 2)
    ask(made, 1, 40, 60)
    ask(made, 2, 60)
    assert made.leave(1, 1) == [ev.MemReply(2, 0, 9, True, 0, 100, 60)]
    made.leave(2, 1)
    assert made.used_bytes == 0
    made.check()


def test_what_the_dead_exported_is_back_when_no_process_is_left():
    made = account(100, 1, 2)
    ask(made, 1, 60, 10)
    made.ask(ev.MemoryAsked(1, 0, 0, 0, 9, 40), 0)
    assert made.leave(1, 0) == []
    assert (made.used_bytes, made.orphaned_bytes, made.times_left) == (40, 40, 0)
    assert ask(made, 2, 61) == [ev.MemReply(2, 0, 9, False, 0, 100, 40)]
    assert ask(made, 2, 60) == [ev.MemReply(2, 0, 9, True, 0, 100, 100)]
    made.check()
    made.leave(2, 0)
    assert (made.used_bytes, made.orphaned_bytes, made.times_left) == (0, 0, 1)
    made.check()


def test_nobody_leaves_more_than_it_held():
    made = account(100, 1, 2)
    ask(made, 1, 60)
    made.ask(ev.MemoryAsked(1, 0, 0, 0, 9, 1 << 60), 0)
    made.leave(1, 0)
    assert made.used_bytes == 60


def test_who_dies_waiting_is_answered_nothing():
    made = account(100, 1, 2)
    ask(made, 1, 40, 60)
    ask(made, 2, 60)
    assert made.leave(2, 1) == []
    made.check()


def test_a_limit_below_what_is_used_refuses_and_takes_nothing_away():
    made = account(100, 1)
    ask(made, 1, 80)
    made.limit_bytes = 50
    assert ask(made, 1, 1) == [ev.MemReply(1, 0, 9, False, 0, 50, 80)]
    made.release(ev.MemoryReleased(1, 0, 500), 1)
    assert made.used_bytes == 0


def test_what_a_process_says_it_holds_in_all_sets_the_book_right():
    account = Account(0, 100, 20)
    account.join(1, 0)
    account.ask(ev.MemoryAsked(1, 0, 60, 0, 1), 0)
    account.release(ev.MemoryReleased(1, 0, 60), 0)
    account.release(ev.MemoryReleased(1, 0, 10), 0)  # a message that came twice
    assert account.used_bytes == 0
    account.release(ev.MemoryReleased(1, 0, 40, whole=True), 0)
    assert account.used_bytes == 40
    (reply,) = account.ask(ev.MemoryAsked(1, 0, 61, 0, 2), 0)
    assert isinstance(reply, ev.MemReply)
    assert not reply.granted


def test_who_uses_more_than_he_is_to_have_is_asked_for_what_he_does_not_use():
    made = account(100, 1, 2, 3)
    ask(made, 1, 40, 60)  # gets 20 of credit
    ask(made, 2, 10)
    assert made.recall(70, 0) == []
    assert made.recall(60, 0) == [ev.MemRecall(1, 0, 10), ev.MemRecall(2, 0, 10)]
    assert made.release(ev.MemoryReleased(1, 0, 10, True), 1) == []
    assert made.release(ev.MemoryReleased(2, 0, 0, True), 1) == []
    assert made.used_bytes == 60
    assert made.recall(60, 2) == []
    made.check()


def test_an_answer_that_is_owed_is_not_asked_for_again_before_it_may_be_lost():
    made = account(100, 1, 2)
    ask(made, 1, 60)
    assert made.recall(50, 0) == [ev.MemRecall(1, 0, 10)]
    assert made.recall(40, 1) == []
    assert made.recall(40, AGAIN * 20 * MS) == [ev.MemRecall(1, 0, 20)]
    assert ask(made, 2, 50, now_ns=AGAIN * 20 * MS) == []  # behind that
    assert made.release(ev.MemoryReleased(1, 0, 0, True), AGAIN * 20 * MS) == [ev.MemRecall(1, 0, 10)]
    assert made.release(ev.MemoryReleased(1, 0, 10, True), AGAIN * 20 * MS) == [ev.MemReply(2, 0, 9, True, 0, 100, 100)]
