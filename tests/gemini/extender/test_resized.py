"""What pods count with besides their record, where another share was wished for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemini.extender.podview import PodView, view_of
from gemini.extender.resized import Resized
from gemini.kube import names
from gemini.kube.resize import Amounts, Resize
from tests.gemini.extender.world import pod_object

LESS, MORE, MOST = Amounts(10, 20, 1 << 30), Amounts(30, 20, 1 << 30), Amounts(30, 40, 2 << 30)


def made(*uids: str) -> tuple[Resized, dict[str, PodView]]:
    pods = {uid: view_of(pod_object("p", uid), {}, names.DEVICE_TYPES, None) for uid in uids}
    return Resized(pods), pods


def wish(pod: PodView, own: str, **more: Any) -> Resize:
    seen = {"metadata": {"uid": own}}
    plain = Resize(pod.uid, pod.namespace, pod.name, 1, MORE, 0, "", None, None, False, "", "", seen)
    return replace(plain, **more)


def test_a_wish_counts_for_its_pod_until_it_goes() -> None:
    resized, pods = made("u")
    resize = wish(pods["u"], "r")
    assert resized.put("r", resize) == {"u"}
    assert resized.of(pods["u"]) == resized.by_pod[pods["u"].full_name] == resize
    assert resized.put("r", None) == {"u"}
    assert resized.of(pods["u"]) is None, "nothing was booked"


def test_one_that_goes_before_its_pod_leaves_what_the_pod_was_given() -> None:
    resized, pods = made("u")
    resized.put("r", wish(pods["u"], "r", booked=MORE, enforced=LESS))
    resized.put("r", None)
    left = resized.of(pods["u"])
    assert left is not None
    assert (left.enforced, left.waiting) == (MORE.most(LESS), False)
    fresh = wish(pods["u"], "s")
    resized.put("s", fresh)
    assert resized.of(pods["u"]) == replace(fresh, enforced=MORE.most(LESS))
    resized.drop(pods["u"])
    assert resized.of(pods["u"]) == fresh


def test_one_of_the_same_pod_that_went_later_takes_nothing_away() -> None:
    resized, pods = made("u")
    resized.put("r", wish(pods["u"], "r"))
    second = wish(pods["u"], "s")
    resized.put("s", second)
    resized.put("r", None)
    assert resized.of(pods["u"]) == second


def test_what_a_lease_says_counts_where_no_resize_was_seen_and_only_grows() -> None:
    resized, pods = made("u", "v")
    name = pods["u"].full_name
    assert resized.grow({name: MORE, pods["v"].full_name: MORE}, {"v"}) == ["u"]
    assert resized.grow({name: MORE}, ()) == []
    assert resized.grow({name: MOST}, ()) == ["u"]
    counted = resized.of(pods["u"])
    assert counted is not None
    assert counted.enforced == MOST
    assert resized.of(pods["v"]) is None, "it has ended"
    booked = wish(pods["u"], "r", booked=LESS)
    resized.put("r", booked)
    assert resized.of(pods["u"]) == booked


def test_wishes_that_wait_are_asked_in_the_order_in_which_their_pods_came() -> None:
    resized, pods = made("u", "v")
    waiting = {uid: replace(pod, resize=wish(pod, f"r-{uid}")) for uid, pod in pods.items()}
    for uid in ("v", "u"):
        resized.note(waiting[uid])
    assert list(resized.asked) == [pods["v"].full_name, pods["u"].full_name]
    resized.note(replace(pods["v"], resize=wish(pods["v"], "r-v", answered=1)))
    assert list(resized.asked) == [pods["u"].full_name]
