"""kube-scheduler's JSON in and out, by names and by whole nodes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemini.extender import codec
from gemini.extender.codec import BadRequest, BindRequest, Victims
from gemini.placement.written import Written

POD = {"metadata": {"name": "p"}}


def body(**given_keys: Any) -> bytes:
    return json.dumps(given_keys).encode()


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"x": "y"}}}


def test_names_are_answered_with_names() -> None:
    request = codec.read_filter(body(Pod=POD, NodeNames=["b", "a", "c"], Nodes=None))
    assert (request.pod, request.names, request.nodes) == (POD, ("b", "a", "c"), None)
    failed = {"b": ("InsufficientMemory", "no room"), "c": ("ModelMismatch", "V100")}
    answer = json.loads(codec.write_filter(request, ["a"], failed))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": {"b": "InsufficientMemory: no room"},
        "FailedAndUnresolvableNodes": {"c": "ModelMismatch: V100"},
        "Error": "",
    }


def test_whole_nodes_are_answered_with_whole_nodes() -> None:
    request = codec.read_filter(body(Pod=POD, Nodes={"items": [node("a"), node("b")]}))
    assert request.names == ("a", "b")
    answer = json.loads(codec.write_filter(request, ["b"], {"a": ("InsufficientCore", "full")}))
    assert (answer["NodeNames"], answer["Nodes"]["items"]) == (None, [node("b")])


def test_names_are_read_in_any_case_as_go_does() -> None:
    assert codec.read_filter(body(pod=POD, nodenames=["a"])).names == ("a",)


MANY = [f"node-{i}" for i in range(2000)]


def plain(**given_keys: Any) -> bytes:
    return json.dumps(given_keys, separators=(",", ":")).encode()


def test_many_names_are_answered_as_they_are_written() -> None:
    request = codec.read_filter(plain(Pod=POD, Nodes=None, NodeNames=MANY))
    assert isinstance(request.names, Written)
    assert (request.pod, list(request.names), request.nodes) == (POD, MANY, None)
    assert json.loads(codec.write_filter(request, request.names, {}))["NodeNames"] == MANY
    even, odd = request.names.parted(np.arange(len(MANY), dtype=np.int8) % 2, 2)
    answer = json.loads(codec.write_filter(request, even, {}, odd))
    no_room = ": ".join(codec.NO_ROOM)
    assert (answer["NodeNames"], answer["FailedNodes"]) == (MANY[::2], dict.fromkeys(MANY[1::2], no_room))
    both = json.loads(codec.write_filter(request, [], {MANY[0]: ("Full", "it is")}, odd))
    assert both["FailedNodes"] == {MANY[0]: "Full: it is"} | dict.fromkeys(MANY[1::2], no_room)
    scores = json.loads(codec.write_scores(request, np.array([0, *[1] * (len(MANY) - 2), -1])))
    assert scores == [{"Host": MANY[0], "Score": 10}]


@pytest.mark.parametrize(
    "given_body",
    [
        plain(Pod=POD, NodeNames=MANY, Nodes=None),
        plain(NodeNames=MANY, Pod=POD),
        plain(Pod={**POD, "NodeNames": MANY}, NodeNames=MANY[:3]),
        plain(NodeNames=MANY[:3], Pod={**POD, "NodeNames": MANY}),
        plain(Pod={**POD, "NodeNames": MANY}, nodenames=["a"]),
        plain(Pod={**POD, "text": plain(NodeNames=MANY).decode()}, NodeNames=MANY[:3]),
        plain(Pod=POD, NodeNames=MANY, nodenames=["a"]),
        plain(nodenames=["a"], Pod=POD, NodeNames=MANY),
        plain(Pod=POD, NodeNames=[*MANY, 'a"b', "a\\b", "\u00e4", "a]b", "\n"]),
        plain(Pod=POD, NodeNames=[*MANY, "a]b"]),
        body(Pod=POD, NodeNames=MANY),
        json.dumps({"Pod": POD, "NodeNames": MANY}, indent=1).encode(),
        plain(Pod=POD, NodeNames=MANY).replace(b'"NodeNames":[', b'"NodeNames":["x"],"NodeNames":['),
        plain(Pod={**POD, "NodeNames": MANY}, NodeNames=codec.CUT.decode()),
    ],
)
def test_names_as_they_are_written_are_those_of_json(given_body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    for many in (1 << 10, 1 << 30):
        monkeypatch.setattr(codec, "MANY", many)
        try:
            request = codec.read_filter(given_body)
            found.append((request.pod, list(request.names), request.nodes))
        except BadRequest as problem:
            found.append(str(problem))
    assert found[0] == found[1]


def test_scores_put_the_best_alone_on_top_and_leave_out_who_has_none() -> None:
    request = codec.read_filter(body(Pod=POD, NodeNames=["a", "b", "c", "d"]))
    scores = json.loads(codec.write_scores(request, np.array([2, 0, 1, -1])))
    assert [(s["Host"], s["Score"]) for s in scores] == [("b", 10), ("c", 4)]
    assert json.loads(codec.write_scores(request, np.zeros(4, dtype=np.int64))) == []
    assert json.loads(codec.write_scores(request, np.full(4, -1))) == []


@pytest.mark.parametrize("names", [MANY, [f"n{i}" for i in range(len(MANY))], [f"\u00e4{i}" for i in range(40)], ["a"]])
def test_scores_are_those_of_each_name_however_it_is_written(names: list[str]) -> None:
    ranks = np.random.default_rng(1).integers(-1, 20, len(names))
    ranks[0] = 0
    worst = ranks.max()
    said = [10 if rank == 0 else 0 if rank < 0 else 9 * (worst - rank) // worst for rank in ranks.tolist()]
    scored = [(name, score) for name, score in zip(names, said, strict=True) if score]
    expected = sorted(scored, key=lambda one: -one[1])
    for text in (plain(Pod=POD, NodeNames=names), body(Pod=POD, NodeNames=names)):
        answer = json.loads(codec.write_scores(codec.read_filter(text), ranks))
        assert [(one["Host"], one["Score"]) for one in answer] == (expected if worst > 0 else [])


def test_a_bind_names_pod_and_node() -> None:
    read = codec.read_bind(body(PodName="p", PodNamespace="default", PodUID="u", Node="n"))
    assert read == BindRequest("p", "default", "u", "n")
    assert json.loads(codec.write_bind("full")) == {"Error": "full"}


def test_victims_come_as_uids_or_as_pods_and_go_as_uids() -> None:
    meta = codec.read_preempt(
        body(Pod=POD, NodeNameToMetaVictims={"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}})
    )
    pods = {"n": {"Pods": [{"metadata": {"uid": "u"}}], "NumPDBViolations": 1}}
    whole = codec.read_preempt(body(Pod=POD, NodeNameToVictims=pods))
    assert meta.victims == whole.victims == {"n": Victims(("u",), 1)}
    answer = json.loads(codec.write_preempt(meta.victims))
    assert answer == {"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}}


@pytest.mark.parametrize(
    ("read", "given_body", "problem"),
    [
        (codec.read_filter, b"{", "the body is not JSON"),
        (codec.read_filter, b"[]", "the body is not an object"),
        (codec.read_filter, b"\xff", "the body is not JSON"),
        (codec.read_filter, body(NodeNames=["a"]), "Pod is not an object"),
        (codec.read_filter, body(Pod=POD), "there are neither NodeNames nor Nodes"),
        (codec.read_filter, body(Pod=POD, NodeNames="a"), "NodeNames is not a list of names"),
        (codec.read_filter, body(Pod=POD, Nodes={"items": [{}]}), "Nodes.items.metadata is not an object"),
        (codec.read_bind, body(PodName="p"), "podnamespace is not a name"),
        (
            codec.read_preempt,
            body(Pod=POD, NodeNameToVictims={"n": {"Pods": [{}]}}),
            "uid of a victim of n is not a name",
        ),
        (
            codec.read_preempt,
            body(Pod=POD, NodeNameToVictims={"n": {"NumPDBViolations": "x"}}),
            "NumPDBViolations of n",
        ),
    ],
)
def test_what_is_no_request_is_one_line(read: Any, given_body: bytes, problem: str) -> None:
    with pytest.raises(BadRequest, match="^" + problem):
        read(given_body)


KEYS = st.sampled_from(["Pod", "Nodes", "items", "metadata", "name", "Pods", "UID"])
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
)


@given(JSON, JSON, JSON)
def test_no_body_makes_it_raise_anything_else(pod: Any, nodes: Any, victims: Any) -> None:
    given_body = body(Pod=pod, Nodes=nodes, NodeNameToVictims=victims, PodName=pod)
    for read in (codec.read_filter, codec.read_bind, codec.read_preempt):
        with suppress(BadRequest):
            read(given_body)
