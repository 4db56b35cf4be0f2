"""A card's health: tables of what is seen, and what follows."""

from __future__ import annotations

from gemini.reporter.health import RECOVER_NS, SECOND, Health

CARDS = ["GPU-a", "GPU-b"]
BOTH = {"GPU-a": True, "GPU-b": True}


def test_xid_takes_its_card_out_of_service_and_an_ignored_one_does_not() -> None:
    health = Health()
    assert health.xid("GPU-a", 31, CARDS, 0) == []
    assert health.fault("GPU-a") is None
    assert health.xid("GPU-a", 79, CARDS, 5) == ["GPU-a"]
    fault = health.fault("GPU-a")
    assert fault is not None
    assert (fault.reason, fault.message, fault.since_ns) == ("Xid", "Xid 79", 5)
    assert health.fault("GPU-b") is None


def test_xid_list_is_configurable() -> None:
    assert Health(ignored={79}).xid("GPU-a", 79, CARDS, 0) == []
    assert Health(ignored=()).xid("GPU-a", 31, CARDS, 0) == ["GPU-a"]


def test_xid_of_no_one_card_takes_all_out_of_service() -> None:
    health = Health()
    assert health.xid(None, 79, CARDS, 0) == CARDS
    assert all(health.fault(card) for card in CARDS)


def test_complaint_9_card_is_back_when_it_answers_and_was_quiet_long_enough() -> None:
    health = Health()
    health.xid("GPU-a", 79, CARDS, 0)
    assert health.seen(BOTH, RECOVER_NS - 1) == []
    assert health.seen(BOTH, RECOVER_NS) == ["GPU-a"]
    assert health.fault("GPU-a") is None


def test_each_further_xid_starts_the_quiet_time_again() -> None:
    health = Health()
    health.xid("GPU-a", 79, CARDS, 0)
    health.xid("GPU-a", 79, CARDS, RECOVER_NS - SECOND)
    assert health.seen(BOTH, RECOVER_NS) == []
    fault = health.fault("GPU-a")
    assert fault is not None
    assert fault.since_ns == 0
    assert health.seen(BOTH, 2 * RECOVER_NS - SECOND) == ["GPU-a"]


def test_card_that_an_xid_silenced_counts_its_quiet_time_from_its_first_answer() -> None:
    health = Health()
    health.xid("GPU-a", 79, CARDS, 0)
    health.seen({"GPU-a": False, "GPU-b": True}, RECOVER_NS)
    assert health.seen(BOTH, RECOVER_NS + SECOND) == []
    assert health.seen(BOTH, 2 * RECOVER_NS) == ["GPU-a"]


def test_without_a_time_to_recover_an_xid_is_for_good() -> None:
    health = Health(recover_ns=None)
    health.xid("GPU-a", 79, CARDS, 0)
    assert health.seen(BOTH, 10**6 * SECOND) == []


def test_silent_card_is_out_until_it_answers_and_lost_ones_until_they_are_back() -> None:
    health = Health()
    assert health.seen({"GPU-a": False, "GPU-b": True}, 0) == ["GPU-a"]
    assert health.seen(BOTH, 1) == ["GPU-a"]
    health.gone("GPU-b", 2)
    fault = health.fault("GPU-b")
    assert fault is not None
    assert fault.reason == "Gone"
    assert health.seen(BOTH, 3) == ["GPU-b"]
