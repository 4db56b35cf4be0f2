"""The reporter's options: defaults, and one line for what cannot be."""

from __future__ import annotations

import argparse

import pytest

from gemini.cli.main import main
from gemini.reporter.health import IGNORED_XIDS, SECOND
from gemini.reporter.options import Settings, configure, settings_of


def read(*words: str) -> Settings:
    parser = argparse.ArgumentParser()
    configure(parser)
    return settings_of(parser.parse_args(words))


def test_without_options_the_defaults_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    assert read() == Settings("n1")
    assert read("--node", "n2").node == "n2"


def test_xids_and_recovery_are_read() -> None:
    assert read().ignored_xids == IGNORED_XIDS
    assert read("--ignore-xids", "13, 31").ignored_xids == {13, 31}
    assert 79 in read("--ignore-xids", "all").ignored_xids
    assert read("--recover-seconds", "1.5").recover_ns == 3 * SECOND // 2
    assert read("--recover-seconds", "0").recover_ns is None


@pytest.mark.parametrize(
    ("words", "status", "mend"),
    [
        (["--slots", "0"], 2, "give 1 or more"),
        (["--look-seconds", "nan"], 2, "give 0.1 or more"),
        (["--recover-seconds", "-1"], 2, "give 0 or more"),
        (["--sys", ""], 2, "'' is no folder; name one"),
        (["--ignore-xids", "13,x"], 2, "give numbers with commas"),
        (["--kubeconfig", "/nonexistent"], 1, "give --kubeconfig FILE"),
    ],
)
def test_bad_options_are_one_line_with_the_mend(
    words: list[str], status: int, mend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reporter", *words]) == status
    said = capsys.readouterr().err
    assert said.startswith("gemini: ")
    assert mend in said
    assert said.count("\n") == 1
