"""What tells objects of a kind apart."""

from __future__ import annotations

import pytest

from gemini.extender.kinds import BUDGET, CLAIM, KINDS, NODE, POD, RESIZE, UID_KINDS, full_name_of, key_of, version_of

OBJECT = {"metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "7"}}


def test_names_come_again_so_pods_claims_and_resizes_go_by_their_uids() -> None:
    assert {kind: key_of(kind, OBJECT) for kind in (NODE, POD, CLAIM, RESIZE, BUDGET)} == {
        NODE: "x", POD: "u", CLAIM: "u", RESIZE: "u", BUDGET: "ns/x",
    }  # fmt: skip
    assert set(UID_KINDS) < set(KINDS)
    assert full_name_of(OBJECT) == ("ns", "x")


@pytest.mark.parametrize("given", [None, [], {}, {"metadata": 1}, {"metadata": {"name": 7, "uid": ""}}])
def test_what_is_no_object_has_no_key(given: object) -> None:
    assert all(key_of(kind, given) is None for kind in KINDS)


def test_a_version_that_is_no_number_is_none_to_compare() -> None:
    assert version_of(OBJECT) == 7
    assert version_of({"metadata": {"resourceVersion": "x"}}) == version_of({}) == 0
