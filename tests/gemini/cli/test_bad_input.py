"""Every mistake of a person is one line on stderr with the value and the mend, and never a traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GEMINI = [sys.executable, "-m", "gemini"]
MACHINE = f"bad-input-{os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    yield
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{MACHINE}*"):
        path.unlink(missing_ok=True)


def gemini(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a folder of no worth: what is taken by mistake may write there."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GEMINI_")} | environment
    env["PYTHONPATH"] = str(ROOT)
    if "--sim" in words:  # a card of this run's own: one has one daemon, and others may test on this machine
        env.setdefault("GEMINI_SIM", f"id={MACHINE}")
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [*GEMINI, *words], capture_output=True, text=True, env=env, timeout=120, check=False, cwd=folder
        )


def refused(done: subprocess.CompletedProcess[str], status: int, *holds: str) -> None:
    assert done.returncode == status, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("gemini")
    for text in holds:
        assert text in lines[0]


@pytest.mark.parametrize(
    ("words", "status", "holds"),
    [
        (["nonsense"], 2, ["nonsense", "--help"]),
        (["ps", "--nonsense"], 2, ["--nonsense", "--help"]),
        (["run", "--nonsense", "--", "true"], 125, ["--nonsense"]),
        (["run"], 125, ["no command"]),
        (["run", "--"], 125, ["no command"]),
        (["run", "--request", "1.5", "--", "true"], 125, ["1.5", "0..1"]),
        (["run", "--request", "-0.1", "--", "true"], 125, ["-0.1"]),
        (["run", "--request=-0.1", "--", "true"], 125, ["-0.1", "0..1"]),
        (["run", "--request", "x", "--", "true"], 125, ["'x'", "30%"]),
        (["run", "--limit", "0", "--", "true"], 125, ["'0'", "above 0"]),
        (["run", "--request", "0.5", "--limit", "0.4", "--", "true"], 125, ["0.5", "0.4", "lower"]),
        (["run", "--memory", "lots", "--", "true"], 125, ["lots", "4GiB"]),
        (["run", "--class", "fast", "--", "true"], 125, ["fast", "latency"]),
        (["run", "--cpu-bind", "100000", "--sim", "--", "true"], 125, ["100000", "cores"]),
        (["run", "--", "no-such-command-here"], 127, ["no-such-command-here"]),
        (["run", "--", "/etc/passwd"], 126, ["/etc/passwd", "chmod"]),
        (["load", "--alloc", "some"], 2, ["some", "4GiB"]),
        (["demo", "--tenants", "a:2"], 2, ["'2'", "0..1"]),
        (["demo", "--tenants", "a"], 2, ["'a'", "name:request:limit"]),
        (["demo", "--tenants", "a:0.1,a:0.1"], 2, ["a:0.1,a:0.1", "twice"]),
        (["demo", "--tenants", "a:0.8,b:0.4"], 2, ["1.2", "lower"]),
        (["demo", "--seconds", "0"], 2, ["--seconds 0"]),
        (["demo", "--sim", "--seconds", "1", "--kernel-us", "nan"], 2, ["--kernel-us nan"]),
        (["demo", "--sim", "--seconds", "1", "--plot", "x.xyz"], 2, ["--plot x.xyz", ".png"]),
        (["demo", "--sim", "--seconds", "1", "--json", "/tmp"], 1, ["--json /tmp", "cannot be written"]),
        (["demo", "--sim", "--seconds", "1", "--plot", "/etc/passwd/x.png"], 1, ["--plot /etc/passwd/x.png"]),
        (["dashboards", "--out", "/proc/none", "--kubernetes", "--namespace", "No Such"], 2, ["--namespace 'No Such'"]),
        (["set", "a"], 2, ["nothing to change"]),
        (["set", "a", "--request", "0.6", "--limit", "0.5"], 2, ["0.6", "0.5"]),
        (["set", "\udcff", "--request", "0.1", "--state-dir", "/none"], 1, ["no daemon"]),
        (["ps", "--state-dir="], 2, ["--state-dir", "''", "folder"]),
        (["dashboards", "--out="], 2, ["--out", "''", "folder"]),
        (["dashboards", "--out", "/proc/none", "--namespace", "y"], 2, ["--namespace y", "--kubernetes"]),
        (["run", "--sim=\udcff", "--", "true"], 125, ["--sim", "gpus=2"]),
        (["load", "--sim=nonsense"], 2, ["--sim='nonsense'", "gpus=2"]),
        (["trace", "replay", "a\nb"], 1, ["a b", "No such file"]),
        (["demo", "--sim", "--seconds", "1", "--json", "a" * 300], 1, ["--json aaa", "name a file"]),
        (["top", "--interval", "0"], 2, ["--interval 0"]),
        (["top", "--interval", "nan"], 2, ["--interval nan"]),
        (["top", "--interval", "1e400"], 2, ["--interval inf"]),
        (["top", "--count", "-1"], 2, ["--count -1"]),
        (["extender", "--policies", "nonsense"], 2, ["--policies", "nonsense"]),
        (["extender", "--tls-cert", "x"], 2, ["--tls-cert and --tls-key"]),
        (["extender", "--client-ca", "x"], 2, ["--client-ca needs"]),
        (["extender", "--port", "65536"], 2, ["--port", "65536", "65535"]),
        (["webhook"], 2, ["--tls-cert and --tls-key"]),
        (["webhook", "--tls-cert", "/none", "--tls-key", "/none"], 1, ["/none"]),
        (["webhook", "--port", "-1"], 2, ["--port", "-1"]),
        (["device-plugin"], 2, ["--node NAME"]),
        (["device-plugin", "--node", "n", "--port", "x"], 2, ["--port", "'x'"]),
        (["device-plugin", "--node", "n", "--kubelet-dir", "/none"], 1, ["/none"]),
        (["device-plugin", "--node", "n", "--kubelet-dir", "a" * 300], 1, ["aaa", "File name too long", "shorter"]),
        (["reporter", "--slots", "0"], 2, ["--slots"]),
        (["reporter", "--look-seconds", "nan"], 2, ["--look-seconds"]),
        (["reporter", "--recover-seconds", "-1"], 2, ["--recover-seconds"]),
        (["reporter", "--ignore-xids", "x"], 2, ["--ignore-xids", "'x'"]),
        (["share", "add", "a", "--sim=gpus=nine"], 2, ["--sim=gpus=nine"]),
        (["run", "--sim", "--gpu", "\N{SUPERSCRIPT TWO}", "--", "true"], 125, ["GPU", "\N{SUPERSCRIPT TWO}"]),
    ],
)
def test_bad_options_are_one_line(words: list[str], status: int, holds: list[str]) -> None:
    refused(gemini(*words), status, *holds)


def test_no_daemon_is_said(tmp_path: Path) -> None:
    for words in (["ps"], ["set", "a", "--request", "0.1"]):
        refused(gemini(*words, "--state-dir", str(tmp_path)), 1, str(tmp_path), "gemini serve")


def test_a_socket_that_does_not_answer_is_said(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "control.sock"))
    refused(gemini("ps", "--state-dir", str(tmp_path)), 1, str(tmp_path))


def test_a_socket_path_that_is_too_long_is_said(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    refused(gemini("run", "--sim", "--state-dir", str(deep), "--", "true"), 125, str(deep), "--state-dir")
    assert not deep.exists()


def test_a_state_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(gemini("run", "--sim", "--state-dir", str(tmp_path / "file" / "x"), "--", "true"), 125, "--state-dir")


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver_and_no_simulation_is_said(tmp_path: Path) -> None:
    refused(gemini("run", "--state-dir", str(tmp_path), "--", "true"), 125, "driver", "--sim")


@pytest.mark.parametrize(
    ("words", "status", "hold"),
    [
        (["--metrics-port", "99999999"], 2, "99999999"),
        (["--idle-exit", "never"], 2, "--idle-exit 'never'"),
        (["--log", "loud"], 2, "'loud'"),
        (["--config", "/nonexistent.toml"], 2, "/nonexistent.toml"),
        (["--config", "/etc/passwd"], 2, "/etc/passwd is no TOML"),
        (["--sim=gpus=nine"], 2, "nine"),
        (["--nonsense"], 2, "--nonsense"),
        (["--state-dir="], 2, "--state-dir: ''"),
        (["--metrics-host", "192.0.2.1", "--metrics-port", "0"], 1, "192.0.2.1"),
    ],
)
def test_the_daemon_refuses_in_one_line(tmp_path: Path, words: list[str], status: int, hold: str) -> None:
    refused(
        gemini("serve", "--state-dir", str(tmp_path / "s"), "--sim", *words, GEMINI_SIM=f"id={MACHINE}-serve"),
        status,
        hold,
    )


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("[tenants.a]\nrequest = 0.6\n[tenants.b]\nrequest = 0.6\n", ["a 0.6 + b 0.6", "1.2", "lower"]),
        ("[tenants.a]\nrequest = 1.5\n", ["tenants.a", "1.5", "0..1"]),
        ("trace_bytes = 1\n", ["trace_bytes 1 ", "64KiB"]),
    ],
)
def test_a_config_file_that_is_wrong_in_itself_is_wrong_use(tmp_path: Path, text: str, holds: list[str]) -> None:
    file = tmp_path / "gemini.toml"
    file.write_text(text)
    done = gemini(
        "serve", "--state-dir", str(tmp_path / "s"), "--sim", "--config", str(file), GEMINI_SIM=f"id={MACHINE}-serve"
    )
    refused(done, 2, str(file), *holds)


def test_the_load_generator_refuses_in_one_line() -> None:
    for words in (["--seconds", "x"], ["--streams", "0"], ["--kernel-us", "nan"], ["word"]):
        done = gemini("load", *words)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("shell", "status", "hold"),
    [
        ("place - <&-", 2, "JSON"),
        ("place - < /dev/null > /dev/full", 2, "JSON"),
        ("--help > /dev/full", 1, "No space left on device"),
        ("place /dev/fd/3 3<<< '{}' > /dev/full", 1, "No space left on device"),
    ],
)
def test_streams_that_are_closed_or_full_are_one_line(shell: str, status: int, hold: str) -> None:
    command = ["bash", "-c", f'exec "$0" -m gemini {shell}', sys.executable]
    refused(subprocess.run(command, capture_output=True, text=True, timeout=120, check=False), status, hold)


@pytest.mark.parametrize("limit", [7, 9, 10, 11, 12, 14, 16, 40])
def test_a_daemon_that_may_open_too_few_files_says_so(tmp_path: Path, limit: int) -> None:
    script = f'ulimit -n {limit}; exec "$0" -m gemini serve --sim --state-dir "$1"'
    command = ["bash", "-c", script, sys.executable, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    refused(done, 1, "Too many open files", "ulimit -n")


def test_help_says_that_sim_may_stand_alone() -> None:
    for command in ("run", "serve", "ps", "load", "demo", "reporter", "device-plugin"):
        assert "--sim [SPEC]" in gemini(command, "--help").stdout


def test_help_lists_every_command_and_each_has_help() -> None:
    from gemini.cli.main import COMMANDS

    listing = gemini("--help")
    assert listing.returncode == 0
    for name in COMMANDS:
        assert f"  {name} " in listing.stdout
        shown = gemini(name, "--help")
        assert shown.returncode == 0, shown.stderr
        assert f"gemini {name}" in shown.stdout
    assert gemini("help", "run").stdout == gemini("run", "--help").stdout
