"""gemini migrate on files: all of them or none, and nothing but what has a share."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from gemini.cli.main import main

SHARE = """# the first
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  schedulerName: kai-scheduler
  containers: [{name: main, image: x}]
"""
PLAIN = "---\n# stays as it is\nkind: Service\nmetadata: {name:   s}\n"


def share(fraction: str = "0.5") -> str:
    return SHARE.replace("{name: a}", f'{{name: a, annotations: {{gpu-fraction: "{fraction}"}}}}')


def call(*words: object) -> int:
    return main(["migrate", "--from", "kai", *map(str, words)])


def test_a_folder_is_rewritten_and_documents_without_a_share_keep_every_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/a.yaml").write_text(share() + PLAIN)
    (tmp_path / "b.yml").write_text(PLAIN)
    (tmp_path / "c.json").write_text(json.dumps(yaml.safe_load(share())))
    (tmp_path / "c.json").chmod(0o640)
    (tmp_path / "notes.txt").write_text("gpu-fraction")
    assert call("-f", tmp_path, "--write") == 0
    assert capsys.readouterr().out.splitlines() == [f"rewrote {tmp_path}/c.json", f"rewrote {tmp_path}/deep/a.yaml"]
    made = (tmp_path / "deep/a.yaml").read_text()
    assert made.endswith(PLAIN)
    for one in (next(yaml.safe_load_all(made)), json.loads((tmp_path / "c.json").read_text())):
        assert one["metadata"]["annotations"] == {"gemini.io/gpu-request.main": "50%"}
        assert one["spec"] == {"containers": [{"name": "main", "image": "x"}]}
    assert (tmp_path / "b.yml").read_text() == PLAIN
    assert (tmp_path / "c.json").stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.rglob("*")} == {"deep", "a.yaml", "b.yml", "c.json", "notes.txt"}
    assert call("-f", tmp_path, "--write") == 0
    assert capsys.readouterr().out == ""  # there is nothing left to do


def test_without_write_it_is_printed_as_one_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(share())
    (tmp_path / "b.yaml").write_text(PLAIN)
    assert call("-f", tmp_path) == 0
    kinds = [one["kind"] for one in yaml.safe_load_all(capsys.readouterr().out)]
    assert kinds == ["Pod", "Service"]
    assert (tmp_path / "a.yaml").read_text() == share()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (PLAIN + "---\n" + share("0.505"), "b.yaml: line 5: Pod a: gpu-fraction: "),
        (PLAIN + "---\nkind: Pod\na: {{ .Values.x }}\n", "b.yaml: line 7: is no YAML: "),
    ],
)
def test_where_one_cannot_be_rewritten_none_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str, said: str
) -> None:
    (tmp_path / "a.yaml").write_text(share())
    (tmp_path / "b.yaml").write_text(bad)
    assert call("-f", tmp_path, "--write") == 1
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1
    assert (tmp_path / "a.yaml").read_text() == share()


def test_words_that_make_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, hold in (
        (("-f", tmp_path / "none"), "No such file"),
        (("-f", tmp_path), "there is no manifest below it"),
        (("-f", "-", "--write"), "standard input is no file"),
    ):
        assert call(*words) == 2
        assert hold in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date.yaml", "kind: Pod\nx: 2001-99-99\n"),
        ("deep.yaml", "kind: Pod\nx: " + "[" * 3_000 + "]" * 3_000),
        ("deep.json", '{"x":' + "[" * 200_000 + "]" * 200_000 + "}"),
        ("digits.yaml", "x: " + "9" * 6_000),
        ("number.yaml", "x: !!int abc\n"),
        ("truth.yaml", "x: !!bool abc\n"),
        ("stamp.yaml", "x: !!timestamp abc\n"),
        ("surrogate.json", '{"kind": "ConfigMap", "x": "\\ud800"}'),
        ("key.yaml", "kind: Pod\nmetadata: {annotations: {1: a}}\n"),
        ("itself.yaml", "kind: ConfigMap\nmetadata: &m {x: *m}\n"),
        ("list.yaml", "&l\nkind: List\nitems: [*l]\n"),
        ("laughs.yaml", "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10) if i else 'x'}]\n" for i in range(9))),
    ],
    ids=lambda given: given if given.endswith((".yaml", ".json")) else "text",
)
def test_a_strangers_manifest_is_refused_in_one_line(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of these gave a traceback, or no end."""
    (tmp_path / name).write_text(text)
    assert call("-f", tmp_path / name) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert name in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.yaml", "kind: Pod\nx: " + "[" * 3_000 + "]" * 3_000),
        ("deep.json", '{"x":' + "[" * 3_000 + "]" * 3_000 + "}"),
    ],
    ids=("deep.yaml", "deep.json"),
)
def test_depth_is_bounded_whatever_the_process_may_recurse(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a library had raised Python's bound, a manifest of 3,000 lists was taken."""
    (tmp_path / name).write_text(text)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        assert call("-f", tmp_path / name) == 1
    finally:
        sys.setrecursionlimit(before)
    assert "more than 100 lists and maps in each other" in capsys.readouterr().err
