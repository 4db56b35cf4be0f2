"""Completion as the shells themselves do it, and manual pages as groff reads them."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gemini.cli import main as entry

pytest.importorskip("shtab", reason="needs the extra `shell`")
CASES = [("gemini run --me", "--memory"), ("gemini ru", "run"), ("gemini run --class lat", "latency")]


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert entry.main(["completion", shell]) == 0
    return capsys.readouterr().out


def needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")


@pytest.mark.parametrize(("typed", "completed"), CASES)
def test_bash_completes(typed: str, completed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gemini").write_text(script("bash", capsys))
    words = typed.split()
    asked = (
        f"source {tmp_path}/gemini; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; "
        f'_shtab_gemini gemini {words[-1]} {words[-2]}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.parametrize(("typed", "completed"), CASES)
def test_fish_completes(typed: str, completed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("fish")
    (tmp_path / "gemini.fish").write_text(script("fish", capsys))
    asked = f"source {tmp_path}/gemini.fish; complete -C '{typed}'"
    done = subprocess.run(
        ["fish", "-c", asked], capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [completed], done.stderr


@pytest.mark.parametrize(("typed", "completed"), CASES)
def test_zsh_completes(typed: str, completed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("zsh")
    (tmp_path / "_gemini").write_text(script("zsh", capsys))
    (tmp_path / ".zshrc").write_text("fpath=($ZDOTDIR $fpath)\nautoload -Uz compinit\ncompinit -u\nPS1='ready> '\n")
    shell, terminal = pty.fork()
    if shell == 0:
        os.execvpe("zsh", ["zsh", "-i"], {**os.environ, "ZDOTDIR": str(tmp_path), "TERM": "dumb"})
    try:
        shown(terminal, "ready> ")
        os.write(terminal, f"{typed}\t".encode())
        shown(terminal, completed)
    finally:
        os.kill(shell, 9)
        os.waitpid(shell, 0)
        os.close(terminal)


def shown(terminal: int, wanted: str) -> None:
    """Read until that stands there."""
    said, deadline = "", time.monotonic() + 60
    while wanted not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", said):
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], said
        said += os.read(terminal, 4096).decode(errors="replace")


def test_each_command_has_a_manual_page_with_all_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("argparse_manpage", reason="needs the extra `shell`")
    assert entry.main(["completion", "man", "--out", str(tmp_path / "man1")]) == 0
    capsys.readouterr()
    assert {path.name for path in (tmp_path / "man1").iterdir()} == {
        "gemini.1", *(f"gemini-{name}.1" for name in entry.COMMANDS)}  # fmt: skip
    for name in entry.COMMANDS:
        page = (tmp_path / "man1" / f"gemini-{name}.1").read_text().replace("\\-", "-")
        assert f"gemini-{name} - {entry.COMMANDS[name][1]}" in page
        for action in entry.parser_of(name)._actions:
            assert all(option in page for option in action.option_strings if action.dest != "help"), name


def test_groff_finds_nothing_wrong_in_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argparse_manpage", reason="needs the extra `shell`")
    needs("groff")
    assert entry.main(["completion", "man", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    for page in sorted(tmp_path.iterdir()):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", str(page)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), page.name


def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for words, status, said in (
        (["bash", "--out", str(tmp_path)], 2, "gemini completion man needs --out DIR; a shell's completion is printed"),
        (["man"], 2, "gemini completion man needs --out DIR"),
        (["man", "--out", str(tmp_path / "file/x")], 1, "Not a directory; name a folder that you may write"),
        (["tcsh"], 2, "invalid choice: 'tcsh'"),
    ):
        assert entry.main(["completion", *words]) == status
        line = capsys.readouterr().err
        assert said in line
        assert len(line.splitlines()) == 1
