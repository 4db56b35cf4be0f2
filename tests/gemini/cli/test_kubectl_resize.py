"""kubectl gemini resize: one line for what goes wrong, and the wish that is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gemini.cli import kubectl_resize
from gemini.cli.kubectl_resize import Said, by_record, carried_out
from gemini.cli.main import main
from gemini.cli.problem import Problem
from gemini.kube.answer import Refused
from gemini.kube.resize import Amounts
from tests.gemini.extender.test_state import bound
from tests.gemini.extender.world import GIB, pod_object

Object = dict[str, Any]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["n1", "p"], "p is of resize alone; write kubectl gemini resize POD --request 0.3"),
        (["--memory", "4Gi"], "--memory is of resize alone; write kubectl gemini resize POD --request 0.3"),
        (["resize"], "resize of which pod? write kubectl gemini resize POD --request 0.3"),
        (["resize", "p"], "resize changes nothing; give --request, --limit or --memory"),
        (
            ["resize", "p", "--request", "0.333"],
            "--request: 0.333 is finer than one percent of a card; write 33% or 34%",
        ),
        (["resize", "p", "--request", "half"], "--request: half is not a number; write a share from 0 to 1"),
        (["resize", "p", "--limit", "0"], "--limit 0 lets nothing run; give one above 0"),
        (["resize", "p", "--memory", "8"], "memory '8' is 8 bytes, less than any program needs; write a unit"),
    ],
)
def test_what_makes_no_sense_is_one_line_before_anything_is_read(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubectl", *words, "--kubeconfig", "/nowhere"]) != 0
    err = capsys.readouterr().err
    assert err.startswith(f"gemini: {line}")
    assert err.count("\n") == 1


def test_what_is_not_named_stays_and_a_request_above_the_limit_is_refused() -> None:
    now = Amounts(50, 60, GIB)
    assert Said(30, None, None).beside(now) == Amounts(30, 60, GIB)
    assert Said(None, 100, 2 * GIB).beside(now) == Amounts(50, 100, 2 * GIB)
    with pytest.raises(Problem, match=r"request 0\.7 is above limit 0\.6; lower --request, or raise --limit"):
        Said(70, None, None).beside(now)


def test_the_share_of_before_is_that_of_the_record() -> None:
    assert by_record(bound("p", "n1", core=40)) == Amounts(40, 100, GIB)
    with pytest.raises(Problem, match="ns/q has no node yet; only pods that Gemini placed"):
        by_record(pod_object("q", gpu_request="0.5"))
    with pytest.raises(Problem, match=r"ns/plain has no share by gemini.io/allocation"):
        by_record({"metadata": {"name": "plain", "namespace": "ns"}, "spec": {"nodeName": "n1", "containers": []}})


class Api:
    """One pod, and its Resize: `answers` is what becomes of a wish."""

    def __init__(self, answers: Mapping[str, Any], before: Object | None = None) -> None:
        self.answers, self.object = answers, before
        self.writes: list[Object] = []

    async def pod(self, namespace: str, name: str) -> Object:
        if name != "p":
            raise Refused(404, name)
        return bound("p", "n1", core=40)

    async def resize(self, namespace: str, name: str) -> Object:
        if self.object is None:
            raise Refused(404, name)
        return self.object

    async def call(self, method: str, path: str, body: Object) -> Object:
        self.writes.append(body["spec"])
        before = self.object or {"metadata": {**body["metadata"], "uid": "r", "generation": 0}}
        metadata = {**before["metadata"], "generation": before["metadata"]["generation"] + 1}
        status = {"pod": "uid-p", "answered": metadata["generation"], **self.answers}
        status |= {key: body["spec"] for key in ("booked", "enforced") if status.get(key) == "the wish"}
        self.object = {"metadata": metadata, "spec": body["spec"], "status": status}
        return {**self.object, "status": before.get("status", {})}


def carry_out(api: Api, name: str = "p") -> list[str]:
    async def talk() -> list[str]:
        return [line async for line in carried_out(api, Said(30, None, None), "ns", name)]  # type: ignore[arg-type]

    return asyncio.run(talk())


DONE = {"booked": "the wish", "enforced": "the wish", "settled": True}
TOLD = "ns/p: request 0.3, limit 1, memory 1Gi"


def test_a_wish_that_comes_into_force_is_told_in_two_lines() -> None:
    api = Api(DONE)
    assert carry_out(api) == [f"{TOLD}: booked", f"{TOLD}: in force"]
    assert api.writes == [{"request": 30, "limit": 100, "memory": GIB}]


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"refused": "no room: x; ask for no more"}, None),
        ({"booked": "the wish", "waits": "9Gi are in use"}, "waits: 9Gi are in use; another resize takes its place"),
        ({"answered": 0}, "no answer in 0 s; does the extender run?"),
        ({"booked": "the wish"}, "no answer in 0 s; does the device plugin on its node run?"),
    ],
)
def test_a_wish_that_does_not_is_a_problem_of_one_line(
    answers: Object, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubectl_resize, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(Problem) as told:
        carry_out(Api(answers))
    assert str(told.value) == (f"{TOLD}: {why}" if why else f"ns/p: {answers['refused']}")


def test_a_wish_that_was_refused_is_asked_anew() -> None:
    api = Api({"refused": "no room"})
    with pytest.raises(Problem, match="no room"):
        carry_out(api)
    api.answers = DONE
    assert carry_out(api)[-1] == f"{TOLD}: in force"
    assert len({str(one) for one in api.writes}) == 2, "another wish between makes it one that is answered again"


def test_a_pod_that_is_not_there_is_named() -> None:
    with pytest.raises(Problem, match="there is no pod ns/other; kubectl get pods --all-namespaces has them"):
        carry_out(Api({}), "other")
