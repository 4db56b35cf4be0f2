"""Each fast path can be switched off, and changes nothing but how long an answer takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from bench import compiled_paths
from bench.bed import Bed
from bench.compiled_paths import CASES, extender, filled, interpreted
from bench.extender.served import node_name, pod
from gemini.extender import codec

NODES = 400  # their names are many enough to be left as they are written


@pytest.fixture(scope="module")
def few() -> Iterator[None]:
    """A smaller cluster than the bench's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_paths, "NODES", NODES)
        patch.setattr(compiled_paths, "SOME", NODES // 10)
        filled.cache_clear()
        filled()[0].service.shortlist = 0  # all that will do are named, and nothing is held for the pod
        yield
    filled.cache_clear()


def answers() -> list[object]:
    """What filter and prioritize say of pods of each share."""
    app, names = filled()[0], [node_name(n) for n in range(NODES)]
    found: list[object] = []
    for i in range(6):
        given = pod(i)
        given["metadata"]["uid"] = ""  # nobody waits for its binding
        body = orjson.dumps({"Pod": given, "Nodes": None, "NodeNames": names})
        assert len(body) > codec.MANY or codec.MANY > 1 << 20
        for answer in (app.filter(body), app.prioritize(body)):
            assert isinstance(answer, bytes)
            found.append(orjson.loads(answer))
    return found


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.measure is extender])
def test_without_a_fast_path_the_answers_are_the_same(few: None, name: str) -> None:
    before = answers()
    with CASES[name].without():
        assert answers() == before
    assert answers() == before


def test_a_run_gives_its_figures(few: None) -> None:
    assert set(extender(0.2)) == {"filter", "filter_worst", "some"}


def test_the_interpreted_daemon_has_a_tree_with_nothing_compiled() -> None:
    with interpreted():
        folder = Path(Bed.around[2])
        assert list(folder.rglob("*.cpython-*.so")) == []
        assert (folder / "scheduler_backend" / "core" / "machine.py").exists()
        assert (folder / "libhook" / "lib" / "libgemini_hook.so").exists()
    assert Bed.around == ()
    assert not folder.exists()
