"""How a page is read: what is typed, what is saved, and when an answer has the form that is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Block, Step, blocks, commands, missing, steps


def test_blocks_of_a_page_have_their_language_and_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Head\n\n```sh\nmake\n```\n\n~~~\nplain\n~~~\n")
    assert blocks(page) == [Block("page.md", 4, "sh", "make"), Block("page.md", 8, "", "plain")]


def test_console_has_commands_their_further_lines_root_and_answers() -> None:
    block = Block("p", 1, "console", "# apt-get install x\n$ cat <<E\n> a\n> E\na\n$ true")
    assert steps(block) == [
        Step("p:1", "apt-get install x", root=True),
        Step("p:1", "cat <<E\na\nE", ("a",)),
        Step("p:1", "true"),
    ]
    with pytest.raises(ValueError, match="begins with"):
        steps(Block("p", 1, "console", "answer without a question"))


def test_script_is_typed_command_by_command() -> None:
    assert commands("# why\na \\\n  b\n\ncat <<'E' > f\nx\n\nE\nc  # d") == [
        "a \\\n  b",
        "cat <<'E' > f\nx\n\nE",
        "c  # d",
    ]


def test_block_that_begins_with_a_files_name_is_saved() -> None:
    assert steps(Block("p", 1, "yaml", "# pods/a.yaml\nkind: Pod")) == [
        Step("p:1", file="pods/a.yaml", content="kind: Pod\n")
    ]
    assert steps(Block("p", 1, "yaml", "kind: Pod")) == []


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("train  0.7   70.0 %", "train      0.5    3 %"),
        ("p99 20.3 ms", "p99 900 us"),
        ("4.03 GiB / 20 GiB", "32 MiB / 1 TiB"),
        ("GPU-98583a5c-c155-9cf6-f955-03c189d3dbfb  ok", "GPU-7f6410b9-bdf7-f9a5-de09-aa5ec31a7124 ok"),
        ("library: .../libgemini_hook.so loads", "library: /home/a/libgemini_hook.so loads"),
        ("pod.default.train-1a2b3c4d 0.7", "pod.default.train-12345678 0.3"),
        ("a 2026-11-21T19:09:43Z b", "a 2027-01-02T03:04:05Z b"),
        ("Running 0 60s", "Running   2   2m3s"),
        ("gemini-node-...  3/3", "gemini-node-x7k2p   2/3"),
        ("...", "anything"),
    ],
)
def test_same_form(shown: str, said: str) -> None:
    assert missing((shown,), f"before\n{said}\nafter") is None


@pytest.mark.parametrize(
    ("shown", "said"),
    [("ENFORCED yes", "ENFORCED no process"), ("a 0.5", "b 0.5"), ("a 0.5", "a -"), ("a 1 2", "a 1")],
)
def test_other_form(shown: str, said: str) -> None:
    assert missing((shown,), said) == shown


def test_each_shown_line_needs_one_of_its_own_in_any_order() -> None:
    assert missing(("a", "b"), "b\nx\na") is None
    assert missing(("a 1", "a 2"), "a 3\nb") == "a 2"
