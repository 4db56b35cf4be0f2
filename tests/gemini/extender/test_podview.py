"""One pod object, as the extender sees it."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.extender import podview
from gemini.extender.podview import PodView, view_of
from gemini.kube import names
from tests.gemini.extender.world import pod_object

Object = dict[str, Any]


def seen(given: Object, *known: PodView) -> PodView:
    return view_of(given, {one.uid: one for one in known}, names.DEVICE_TYPES)


def test_pod_that_asks_for_nothing_of_ours_has_no_spec_and_waits_for_nothing() -> None:
    plain = seen(pod_object("p"))
    assert (plain.spec, plain.fault, plain.waits, plain.holds) == (None, None, False, False)
    assert seen(pod_object("p", gpu_request="0.5")).waits


def test_share_that_makes_no_sense_is_a_fault_and_the_pod_asks_for_nothing() -> None:
    bad = seen(pod_object("p", gpu_request="1.5"))
    assert bad.spec is None
    assert bad.fault is not None
    assert "gemini.io/gpu-request" in bad.fault


def test_news_of_a_pods_status_do_not_parse_its_share_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = seen(pod_object("p", gpu_request="0.5"))
    monkeypatch.setattr(podview, "parse_pod", lambda *_, **__: pytest.fail("parsed again"))
    later = pod_object("p", gpu_request="0.5")
    later["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    assert seen(later, before).spec is before.spec
    monkeypatch.undo()
    changed = seen(pod_object("p", gpu_request="0.6"), before)
    assert changed.spec != before.spec


def test_a_label_that_says_nothing_of_a_share_does_not_have_it_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its editor may change one as often as he likes: of 500 containers each change took 22 ms of everybody's time."""
    before = seen(pod_object("p", gpu_request="0.5"))
    monkeypatch.setattr(podview, "parse_pod", lambda *_, **__: pytest.fail("parsed again"))
    later = pod_object("p", gpu_request="0.5")
    later["metadata"]["labels"] = {"step": "2"}
    assert seen(later, before).spec is before.spec
    monkeypatch.undo()
    for label in ("sharedgpu/group_name", "gemini.io/gpu-request"):
        later["metadata"]["labels"] = {label: "0.5"}
        assert seen(later, before).fault


def test_containers_that_another_plugin_serves_are_named() -> None:
    given = pod_object("p")
    given["spec"]["containers"] += [{"name": "side", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    given["spec"]["containers"] += [{"name": "none", "resources": {"limits": {"nvidia.com/gpu": "0"}}}]
    assert seen(given).vendor == {"side"}


def test_only_a_pod_that_waits_is_nominated_and_odd_objects_are_harmless() -> None:
    given = pod_object("p", gpu_request="0.5")
    given["status"]["nominatedNodeName"] = "n1"
    assert seen(given).nominated == "n1"
    given["spec"]["nodeName"] = "n1"
    assert seen(given).nominated is None
    odd = seen({"metadata": {"uid": "u"}, "spec": {"containers": 3}, "status": []})
    assert (odd.uid, odd.spec, odd.priority) == ("u", None, 0)
