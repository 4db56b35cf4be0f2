"""The reader types into a shell that remembers, compares, looks again, and interrupts what does not end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Step
from tests.docs.reader import Reader, Wrong
from tests.e2e.process import until


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    shell = ["bash", "--noprofile", "--norc", "-c", f"cd {tmp_path}; exec bash --noprofile --norc"]
    with Reader(shell, tmp_path, limit=60) as one:
        yield one


def test_what_is_typed_lasts_files_are_saved_and_answers_are_compared(reader: Reader) -> None:
    reader.follow(
        [
            Step("p:1", file="sub/f.txt", content="saved\n"),
            Step("p:2", "cd sub; export A=b"),
            Step("p:3", "cat f.txt; echo $A", ("saved", "b")),
            Step("p:4", "cat <<E\nhere\nE", ("here",)),
        ]
    )
    with pytest.raises(Wrong, match=r"p:5: `echo no` did not show 'yes'"):
        reader.take(Step("p:5", "echo no", ("yes",)))
    with pytest.raises(Wrong, match=r"p:6: `false` ended with status 1"):
        reader.take(Step("p:6", "false"))


def test_looks_again_until_it_is_there(reader: Reader) -> None:
    reader.follow(
        [
            Step("p:1", "gemini() { [ -e late ] && echo there || { touch late; echo nothing; }; }"),
            Step("p:2", "gemini ps", ("there",)),
        ]
    )


def test_what_does_not_end_is_interrupted_once_it_has_shown_its_form(reader: Reader, tmp_path: Path) -> None:
    endless = tmp_path / "gemini"
    endless.write_text("#!/bin/sh\ntrap 'exit 130' INT\nn=0\nwhile :; do n=$((n + 1)); echo look $n; sleep 0.1; done\n")
    endless.chmod(0o755)
    reader.follow([Step("p:1", f"PATH={tmp_path}:$PATH"), Step("p:2", "gemini top", ("look 1", "look 2"))])
    reader.take(Step("p:3", "echo alive", ("alive",)))


def test_what_is_left_in_the_background_ends_with_the_reader(tmp_path: Path) -> None:
    with Reader(["bash", "--noprofile", "--norc"], tmp_path, limit=60) as one:
        pid = int(one.type("sleep 1000 & echo $!")[1])
        assert Path(f"/proc/{pid}").exists()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of what it left")
