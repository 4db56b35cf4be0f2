"""Parts of the end-to-end tests may be built by several at once (tests/e2e/build.py): CI builds them beside tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.build import Builder


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
