"""Slots: ids that name cards, lists that fit, and which ones are preferred."""

from __future__ import annotations

from collections import Counter

import pytest

from gemini.kube.device import write_device
from gemini.placement.model import Device, Node
from gemini.plugin.slots import CORE, Card, TooManySlots, card_of, cards_of, check_size, choose, gpushare, slot_id
from tests.gemini.plugin.pods import GIB, all_slots, cards


def of_cards(chosen: list[str]) -> Counter[str]:
    return Counter(map(card_of, chosen))


def test_a_slot_names_its_card() -> None:
    assert slot_id("GPU-8d2c", 7) == "GPU-8d2c::7"
    assert card_of("GPU-8d2c::7") == "GPU-8d2c"


def test_cards_are_what_the_device_object_says() -> None:
    devices = (Device(1, uuid="GPU-b", memory=GIB, health=False), Device(0, uuid="GPU-a", memory=2 * GIB, numa="1"))
    given = write_device(Node("n", (*devices, Device(0, type="rdma", uuid="mlx5_0"))))
    given["spec"]["devices"][1]["topology"]["cpus"] = "0-3"
    found, faults = cards_of(given)
    assert found == [Card("GPU-a", 0, 2 * GIB, True, 1, "0-3"), Card("GPU-b", 1, GIB, False)]
    assert not faults


def test_a_card_has_a_hundred_slots_of_core_and_one_for_each_unit_of_its_memory() -> None:
    card = Card("GPU-a", 0, 16276 << 20)
    assert CORE.count(card) == 100
    assert gpushare("MiB").count(card) == 16276  # A1
    assert gpushare("GiB").count(card) == 15


def test_two_cards_of_16276_mib_list_32552_slots_and_that_fits_into_a_message() -> None:
    two = [Card(f"GPU-00000000-0000-0000-0000-00000000000{n}", n, 16276 << 20) for n in range(2)]
    check_size(gpushare("MiB"), two)
    assert sum(map(gpushare("MiB").count, two)) == 32552  # A2


def test_a_list_that_the_kubelet_could_not_take_is_refused_with_the_mend() -> None:
    eight = [Card(f"GPU-00000000-0000-0000-0000-00000000000{n}", n, 80 * GIB) for n in range(8)]
    with pytest.raises(TooManySlots, match="use --unit GiB"):
        check_size(gpushare("MiB"), eight)
    check_size(gpushare("GiB"), eight)
    check_size(CORE, eight)


def test_slots_of_the_wanted_card_are_chosen_lowest_number_first() -> None:
    chosen = choose(all_slots(cards(2)), [], 3, ("GPU-1",))
    assert chosen == ["GPU-1::0", "GPU-1::1", "GPU-1::2"]


def test_slots_are_spread_evenly_over_the_wanted_cards() -> None:
    assert of_cards(choose(all_slots(cards(3)), [], 60, ("GPU-2", "GPU-0"))) == {"GPU-2": 30, "GPU-0": 30}


def test_slots_that_must_be_in_are_in_and_count() -> None:
    chosen = choose(all_slots(cards(2)), ["GPU-1::40", "GPU-1::41"], 5, ("GPU-1",))
    assert len(set(chosen)) == 5
    assert chosen[:2] == ["GPU-1::40", "GPU-1::41"]
    assert of_cards(chosen) == {"GPU-1": 5}


def test_a_card_that_lacks_slots_is_filled_up_from_the_fullest_other() -> None:
    available = ["GPU-0::1", *(f"GPU-1::{n}" for n in range(5)), *(f"GPU-2::{n}" for n in range(3))]
    assert of_cards(choose(available, [], 4, ("GPU-0",))) == {"GPU-0": 1, "GPU-2": 3}


def test_without_a_wish_the_fullest_card_goes_first() -> None:
    available = [*(f"GPU-1::{n}" for n in range(5)), *(f"GPU-2::{n}" for n in range(3))]
    assert of_cards(choose(available, [], 2, ())) == {"GPU-2": 2}
