"""What users owe whose tenants have ended with more of a card than was theirs."""

from __future__ import annotations

from scheduler_backend.debts import Debts

MS = 1_000_000


def test_a_user_waits_for_the_largest_of_what_his_tenants_owed_and_nobody_else_does() -> None:
    debts = Debts()
    debts.add(1000, 30 * MS, 5 * MS)
    debts.add(1000, 10 * MS, 6 * MS)  # both are paid back meanwhile
    assert debts.left_ns(1000, 15 * MS) == 20 * MS
    assert debts.left_ns(1001, 15 * MS) == 0


def test_what_is_paid_is_forgotten() -> None:
    debts = Debts()
    debts.add(1000, 30 * MS, 0)
    debts.add(1001, MS, 40 * MS)
    assert debts.left_ns(1000, 40 * MS) == 0
    debts.add(1000, MS, 50 * MS)
    assert debts.left_ns(1000, 50 * MS) == MS
