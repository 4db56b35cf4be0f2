"""Parts of the end-to-end tests (tests/e2e/build.py): CI builds them beside tests, and compiles a library once."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.build import HERE, Builder

# JobSet's and KubeRay's webhooks do not compile with controller-runtime 0.23, and cert-controller 0.16 asks for that.
APART = {"github.com/open-policy-agent/cert-controller", "sigs.k8s.io/controller-runtime"}


def test_a_part_that_is_being_built_keeps_nobody_waiting_who_wants_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_E2E_CACHE", str(tmp_path))
    with ThreadPoolExecutor(1) as pool:

        def slow(_: Path) -> None:
            pool.submit(Builder()._once, "quick", lambda out: None).result(60)

        assert Builder()._once("slow", slow) == tmp_path / "slow"
    assert (tmp_path / "quick").is_dir()


def test_a_part_is_built_once_whoever_wants_it_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_E2E_CACHE", str(tmp_path))
    made: list[Path] = []
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(Builder()._once, "part", made.append) for _ in range(8)]
        assert {one.result(60) for one in asked} == {tmp_path / "part"}
    assert len(made) == 1


def test_modules_of_controllers_have_the_same_releases_of_what_both_use_so_that_it_is_compiled_once() -> None:
    def required(part: str) -> dict[str, str]:
        return dict(re.findall(r"^\t(\S+) (v\S+)", (HERE / part / "go.mod").read_text(), re.MULTILINE))

    ours, others = required("jobcontrollers"), required("controllers")
    both = ours.keys() & others.keys()
    assert "k8s.io/client-go" in both
    assert {name for name in both if ours[name] != others[name]} == APART
