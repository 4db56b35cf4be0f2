"""How a command is found and how its words are read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gemini.cli import main as entry
from gemini.cli.installed import with_extra
from gemini.cli.problem import Problem


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["--sim", "--name", "a"], ["--sim=", "--name", "a"]),
        (["--sim=gpus=2"], ["--sim=gpus=2"]),
        (["--sim", "gpus=2,memory=8GiB", "x"], ["--sim=gpus=2,memory=8GiB", "x"]),
        (["--sim", "--", "gpus=2"], ["--sim=", "--", "gpus=2"]),
        (["--sim"], ["--sim="]),
        (["--sim", "--", "cmd", "--sim"], ["--sim=", "--", "cmd", "--sim"]),
    ],
)
def test_a_bare_sim_takes_no_word_and_the_commands_own_options_stay(words: list[str], read: list[str]) -> None:
    assert entry.split_sim(words) == read


def test_a_problem_is_one_line_whatever_its_text() -> None:
    assert str(Problem("two\n  lines")) == "two lines"
    assert Problem("x", 2).status == 2


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = "{'numpy', 'rich', 'matplotlib', 'zmq', 'aiohttp'}"
    program = f"import sys, gemini.cli.main, gemini.cli.run; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "module", "extra"),
    [
        (["extender"], "orjson", "cluster"),
        (["reporter"], "orjson", "cluster"),
        (["kubectl"], "orjson", "cluster"),
        (["dashboards", "--out", "/proc/none"], "grafana_foundation_sdk", "dashboards"),
        (["dashboards", "--out", "/proc/none"], "yaml", "dashboards"),
        (["demo", "--plot", "a.png"], "matplotlib", "plots"),
    ],
)
def test_what_a_bare_installation_lacks_is_named_with_what_brings_it(words: list[str], module: str, extra: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from gemini.cli.main import main; sys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"{module} is not installed; {with_extra(extra)}" in done.stderr


def test_version_and_help_need_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gemini ")
    assert entry.main([]) == 2
    assert entry.main(["help"]) == 0
