"""Pods that another scheduler places, with the webhooks of an installation, against an editor of their namespace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.api import Api, ApiError, Object
from tests.e2e.injector import Kind, injector
from tests.e2e.plane import Plane
from tests.e2e.process import free_port
from tests.e2e.test_beside import NVIDIA, plain
from tests.e2e.test_extender import crd, gemini

__all__ = ["crd"]
PLACED, EDITOR = "gemini.io/placed", "editor"
SCHEDULER = "system:serviceaccount:kube-system:hami-scheduler"
RECORD = "hami.io/vgpu-devices-to-allocate"
HAMIS = plain("p", {NVIDIA: 1, "nvidia.com/gpucores": 30, "nvidia.com/gpumem": 3000}, schedulerName="hami-scheduler")


@pytest.fixture
def team(plane: Plane, namespace: str, crd: None) -> Iterator[str]:
    """A namespace that opted in, with an editor."""
    plane.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {PLACED: "enforce"}}})
    for name, user in ((EDITOR, EDITOR), ("hami", SCHEDULER)):
        plane.kubectl("create", "rolebinding", name, "-n", namespace, "--clusterrole=edit", f"--user={user}")
    with gemini(plane, installed=True, webhook_port=free_port()):
        yield f"/api/v1/namespaces/{namespace}/pods"


def asks(pod: Object) -> dict[str, list[str]]:
    """What each container asks for."""
    return {one["name"]: sorted(one["resources"].get("limits") or ()) for one in pod["spec"]["containers"]}


def test_no_container_runs_free_for_which_a_webhook_behind_ours_asks_for_a_card(plane: Plane, team: str) -> None:
    """Ours is not asked about a pod without a card, nor a second time when it has got one."""
    with injector(plane, "z-late", Kind("late", asks=NVIDIA)):
        with pytest.raises(ApiError, match="container late asks for another plugin's card, and this was not written"):
            plane.api.post(team, plain("free"))
        both = plane.api.post(team, plain("both", {NVIDIA: 1, "nvidia.com/gpucores": 30}))
        assert asks(both) == {"main": [PLACED, NVIDIA, "nvidia.com/gpucores"], "late": [PLACED, NVIDIA]}
    assert asks(plane.api.post(team, plain("none"))) == {"main": []}


def test_an_editor_does_not_say_in_the_schedulers_place_what_a_pod_is_given(plane: Plane, team: str) -> None:
    """By these annotations HAMi's plugin tells the container how much memory it has, and on which card."""
    editor, scheduler = (Api(plane.server, plane.authority.client_context(user)) for user in (EDITOR, SCHEDULER))
    with pytest.raises(ApiError, match="is written by the scheduler alone; remove it"):
        editor.post(team, {**HAMIS, "metadata": {"name": "p", "annotations": {RECORD: "GPU-a,NVIDIA,81920,30:;"}}})
    editor.post(team, HAMIS)
    for given in ("GPU-a,NVIDIA,3000,30:;", ";"):  # as it is placed, and as its plugin has read it
        scheduler.patch(f"{team}/p", {"metadata": {"annotations": {RECORD: given}}})
    for mine in ("GPU-a,NVIDIA,81920,30:;", None):
        with pytest.raises(ApiError, match="in a pod that exists; leave it to the scheduler, which writes it"):
            editor.patch(f"{team}/p", {"metadata": {"annotations": {RECORD: mine}}})
    editor.patch(f"{team}/p", {"metadata": {"annotations": {"mine": "x"}, "labels": {"mine": "x"}}})
