"""The program: what a person's mistakes get, registration through a kubelet's restarts, what is shown."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from gemini.cli.main import main
from gemini.plugin.app import Metrics
from gemini.plugin.turn import Turn
from tests.e2e.pki import Authority, write_kubeconfig
from tests.e2e.process import free_port, until
from tests.gemini.plugin.pods import bound, cards
from tests.gemini.plugin.rig import Rig, running

KNOWN = cards(2)


@pytest.fixture
def rig() -> Iterator[Rig]:
    short = tempfile.TemporaryDirectory(prefix="gemini-", dir="/tmp", ignore_cleanup_errors=True)
    with short as folder, running(Path(folder), KNOWN) as one:
        yield one


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give --node NAME"),
        (["--node", "n", "--kubelet-dir", "/nowhere"], "/nowhere: there is no such folder"),
        (["--node", "n", "--kubelet-dir", "/tmp", "--install-dir", "/proc/x"], "give another --install-dir"),
        (["--node", "n", "--kubelet-dir", "/tmp", "--kubeconfig", "/nowhere"], "give --kubeconfig FILE"),
        (["--mode", "card"], "invalid choice: 'card'"),
        (["--unit", "TiB"], "invalid choice: 'TiB'"),
        (["--node", "n", "--state-dir", ""], "argument --state-dir: '' is no folder; name one"),
        (["--node", "n", "--kubelet-dir", ""], "argument --kubelet-dir: '' is no folder; name one"),
    ],
)
def test_bad_options_are_one_line_with_the_mend(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    install = [] if "--install-dir" in words else ["--install-dir", str(tmp_path)]
    assert main(["device-plugin", *words, *install]) != 0
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("gemini: ")
    assert told in line


def test_a_kubelet_that_was_away_for_long_is_registered_with_when_it_comes(rig: Rig) -> None:
    rig.kubelet.stop()
    (rig.kubelet.plugin_folder / "kubelet.sock").unlink(missing_ok=True)
    rig.kubelet.start()
    rig.wait_slots()


def test_a_plugin_that_starts_again_serves_pods_of_before_and_after(rig: Rig) -> None:
    for name, on in (("before", 0), ("after", 1)):
        rig.api.put(bound(name, KNOWN, [on], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("before"))
    rig.stop_plugin()
    rig.start_plugin()
    rig.wait_slots()
    rig.kubelet.admit(rig.now("after"))
    rig.kubelet.start_container("uid-before", "main")  # its container was started again
    for name in ("before", "after"):
        rig.check(name)


def test_metrics_and_readiness_say_how_it_stands(rig: Rig) -> None:
    rig.api.put(bound("p", KNOWN, [0], gpu_request="0.5"))
    rig.kubelet.admit(rig.now("p"))
    rig.loop.call_soon_threadsafe(rig.report, ("GPU-1",))
    rig.wait_slots(100)

    async def asked() -> tuple[str, int]:
        async with TestClient(TestServer(Metrics(rig.service, rig.shell).application())) as client:
            text = await (await client.get("/metrics")).text()
            ready = (await client.get("/readyz")).status
            assert (await client.get("/healthz")).status == 200
        return text, ready

    text, ready = rig.call(asked())
    assert ready == 200
    assert 'gemini_plugin_calls_total{result="ok",what="start"} 1.0' in text
    assert 'gemini_plugin_calls_total{result="nobody",what="allocate"} 0.0' in text
    assert 'gemini_plugin_slots{health="Unhealthy"} 100.0' in text
    assert "gemini_plugin_registered 1.0" in text


def test_a_plugin_that_waits_for_its_turn_is_ready_to_take_it(rig: Rig, tmp_path: Path) -> None:
    async def asked(turn: Turn | None) -> int:
        rig.shell.registered.clear()
        async with TestClient(TestServer(Metrics(rig.service, rig.shell, turn).application())) as client:
            return (await client.get("/readyz")).status

    turn = Turn(tmp_path / "lock")
    assert [rig.call(asked(None)), rig.call(asked(turn))] == [503, 503]
    turn.waiting = True
    assert rig.call(asked(turn)) == 200


def test_connections_that_say_nothing_take_no_descriptor_that_the_plugin_needs(tmp_path: Path) -> None:
    """Any pod reaches its port: 400 silent connections took all of 256 descriptors, the kubelet's record had none."""
    kubeconfig = write_kubeconfig(
        tmp_path / "kubeconfig", "https://127.0.0.1:1", Authority(tmp_path / "ca").certificate, {"token": "t"}
    )
    port = free_port()
    command = [
        "prlimit", "--nofile=256", sys.executable, "-m", "gemini", "device-plugin", "--node", "n", "--no-claims",
        "--kubeconfig", str(kubeconfig), "--kubelet-dir", str(tmp_path), "--install-dir", str(tmp_path / "library"),
        "--state-dir", str(tmp_path / "state"), "--port", str(port),
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as plugin, ExitStack() as silent:
        try:
            until(lambda: answers(port), "the plugin answers")
            plugin.send_signal(signal.SIGSTOP)  # so that it finds them all at once, as on a machine without time for it
            for _ in range(400):
                silent.enter_context(closing(socket.create_connection(("127.0.0.1", port), 60)))
            plugin.send_signal(signal.SIGCONT)
            assert answers(port)
            assert len(os.listdir(f"/proc/{plugin.pid}/fd")) < 200
        finally:
            plugin.terminate()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
