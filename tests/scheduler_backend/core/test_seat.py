"""A tenant's place: its bucket and its members."""

from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.seat import Member, Seat, Standing
from scheduler_backend.core.tenant import TenantSpec


def test_the_bucket_fills_at_the_limit_and_no_further_than_its_depth():
    seat = Seat(TenantSpec("a", 100_000, 250_000), Policy(), 0)
    assert seat.credit_ns == 10 * MS
    seat.drain(14 * MS)
    assert seat.credit_ns == -4 * MS  # debt
    seat.fill(8 * MS, 10 * MS)
    assert seat.credit_ns == -2 * MS
    assert seat.full_enough_ns(5 * MS) == 36 * MS
    seat.fill(36 * MS, 10 * MS)
    assert seat.credit_ns == 5 * MS
    seat.fill(1000 * MS, 10 * MS)
    assert seat.credit_ns == 10 * MS


def test_members_are_told_apart_by_their_standing():
    seat = Seat(TenantSpec("a"), Policy(), 0)
    seat.members = {number: Member(number) for number in (3, 1, 2)}
    seat.members[1].standing = Standing.HOLDS
    assert [member.client for member in seat.with_standing(Standing.QUIET)] == [3, 2]
    assert seat.with_standing(Standing.HOLDS) == [seat.members[1]]


def test_best_effort_has_a_clock_of_its_own_weight():
    assert Seat(TenantSpec("a", 0), Policy(), 0).weight_ppm == 1_000_000
