"""Which pod the kubelet means, as far as can be told."""

from __future__ import annotations

from gemini.plugin.claims import PodClaims, claims_of
from gemini.plugin.matching import admitting, candidates, meant
from gemini.plugin.slots import CORE
from tests.gemini.plugin.pods import all_slots, bound, cards

KNOWN = cards(3)


def claims(name: str, on: int, request: str = "0.5", **more: object) -> PodClaims:
    found = claims_of(bound(name, KNOWN, [on], gpu_request=request, **more), CORE, KNOWN)  # type: ignore[arg-type]
    assert found is not None
    return found


A, B, C = claims("a", 0), claims("b", 1), claims("c", 2)
OTHER = claims("other", 0, "0.3")
TWO = claims("two", 0, "0.5", containers=("main", "side"))


FREE = all_slots(KNOWN)


def named(found: object) -> str:
    assert found is not None
    return str(found.pod.name)  # type: ignore[attr-defined]


def test_candidates_ask_just_so_many_slots_and_have_none_the_one_promised_first_in_front() -> None:
    found = candidates([C, B, A, OTHER], {("uid-b", "main")}, 50)
    assert [named(one) for one in found] == ["a", "c"]


def test_the_next_container_of_a_pod_is_the_one_that_is_allocated() -> None:
    assert [one.claim.container for one in candidates([TWO], set(), 49)] == ["main"]
    assert [one.claim.container for one in candidates([TWO], {("uid-two", "main")}, 1)] == ["side"]
    assert not candidates([TWO], set(), 1)


def test_a_pod_that_the_kubelet_lists_is_being_admitted_whatever_was_promised_first() -> None:
    among = candidates([A, B, C], set(), 50)
    assert named(admitting(among, {("ns", "c"), ("ns", "elsewhere")}, FREE)) == "c"


def test_without_the_kubelets_word_the_one_promised_first_is() -> None:
    among = candidates([A, B, C], set(), 50)
    assert named(admitting(among, None, FREE)) == "a"
    assert named(admitting(among, set(), FREE)) == "a"
    assert admitting([], None, FREE) is None


def test_who_would_not_find_the_slots_of_its_card_is_not_taken_for_the_one() -> None:
    among = candidates([A, B, C], set(), 50)
    free = [slot for slot in FREE if not slot.startswith("GPU-0::") or slot in FREE[:49]]
    assert named(admitting(among, None, free)) == "b"
    assert named(admitting(among, {("ns", "a")}, free)) == "a"  # it is, whatever is left for it
    assert named(admitting(among, None, [])) == "a"


def test_slots_are_for_who_was_promised_their_card() -> None:
    among = candidates([A, B, C], set(), 50)
    assert named(meant(among, ["GPU-1::0", "GPU-1::1"], None)) == "b"


def test_of_several_on_one_card_the_one_just_preferred_is_meant() -> None:
    first, second = claims("first", 0), claims("second", 0)
    among = candidates([first, second], set(), 50)
    assert named(meant(among, ["GPU-0::0"], None)) == "first"
    assert named(meant(among, ["GPU-0::0"], ("uid-second", "main"))) == "second"


def test_slots_of_a_card_that_nobody_was_promised_are_for_the_one_just_preferred() -> None:
    among = candidates([A, B], set(), 50)
    assert named(meant(among, ["GPU-2::0"], ("uid-b", "main"))) == "b"
