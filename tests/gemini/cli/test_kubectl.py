"""kubectl gemini as a command: against an API server, and one line for what goes wrong."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from gemini.cli.main import main
from gemini.kube.device import write_device
from tests.gemini.extender.test_state import bound
from tests.gemini.extender.world import cards, node_object, pod_object

Object = dict[str, Any]


@pytest.fixture
def server() -> Iterator[dict[str, list[Object]]]:
    """Collections by path; of one that is not there the API server says no more than this."""
    collections: dict[str, list[Object]] = {
        "/api/v1/nodes": [node_object("n1")],
        "/apis/gemini.io/v1alpha1/devices": [write_device(cards("n1", model="H200"))],
        "/api/v1/pods": [bound("p", "n1"), pod_object("q", gpu_request="0.5", gpu_memory="64Gi")],
        "/api/v1/events": [],
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            items = collections.get(urlsplit(self.path).path)
            body = {"metadata": {"resourceVersion": "1"}, "items": items}
            text = json.dumps(body).encode() if items is not None else b"404 page not found\n"
            self.send_response(200 if items is not None else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=listening.serve_forever, daemon=True).start()
    collections["url"] = [{"url": f"http://127.0.0.1:{listening.server_port}"}]
    yield collections
    listening.shutdown()
    listening.server_close()


@pytest.fixture
def kubeconfig(server: dict[str, list[Object]], tmp_path: Path) -> str:
    path = tmp_path / "config"
    contexts = [{"name": "here", "context": {"cluster": "c", "user": "u"}}]
    config = {"current-context": "here", "contexts": contexts, "users": [{"name": "u", "user": {"token": "t"}}]}
    clusters = [{"name": "c", "cluster": {"server": server["url"][0]["url"]}}]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": clusters, **config}))
    return str(path)


def test_nodes_cards_and_waiting_pods_come_from_the_api_server(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubectl", "--kubeconfig", kubeconfig]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[1].split()[:4] == ["n1", "H200", "2", "1"]
    assert "ns/q" in text
    assert "64Gi asked" in text
    assert main(["kubectl", "n1", "--kubeconfig", kubeconfig]) == 0
    assert "ns/p" in capsys.readouterr().out


def test_json_holds_all_of_it(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubectl", "-o", "json", "--kubeconfig", kubeconfig, "--context", "here"]) == 0
    given = json.loads(capsys.readouterr().out)
    assert [node["name"] for node in given["nodes"]] == ["n1"]
    assert [pod["pod"] for pod in given["waiting"]] == ["ns/q"]
    assert [pod["pod"] for pod in given["not_enforced"]] == ["ns/p"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--kubeconfig", "/nowhere/config"], "/nowhere/config: there is no such file; give --kubeconfig FILE"),
        (["n9"], "there is no node n9; there are n1"),
        (["--context", "elsewhere"], "elsewhere"),
        (["-o", "yaml"], "invalid choice: 'yaml'"),
    ],
)
def test_what_goes_wrong_is_one_line(
    words: list[str], problem: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubectl", *(words if "--kubeconfig" in words else ["--kubeconfig", kubeconfig, *words])]) != 0
    told = capsys.readouterr().err
    assert problem in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("step", ["--plan", "--apply"])
def test_steps_of_defrag_are_of_no_other_call(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubectl", "n1", step]) == 1
    said = capsys.readouterr().err
    assert said == f"gemini: {step} is of defrag alone; write kubectl gemini defrag {step}\n"


def test_defrag_says_why_a_card_stays(
    server: dict[str, list[Object]], kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubectl", "defrag", "--kubeconfig", kubeconfig]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "n1 gpu/0: stays, ns/p is made anew by nothing", "0 cards can be freed by 0 evictions",
    ]  # fmt: skip


def test_a_cluster_without_device_objects_is_told_how_to_get_them(
    server: dict[str, list[Object]], kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del server["/apis/gemini.io/v1alpha1/devices"]
    assert main(["kubectl", "--kubeconfig", kubeconfig]) == 1
    assert "knows no Device objects; apply deploy/kustomize/base" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "this is no kubeconfig; give --kubeconfig FILE"),
        ("[]", "this is no kubeconfig; give --kubeconfig FILE"),
        (None, "this is no file; give --kubeconfig FILE"),
    ],
)
def test_a_kubeconfig_that_is_none_is_one_line(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.mkdir() if text is None else path.write_text(text)
    assert main(["kubectl", "--kubeconfig", str(path)]) == 1
    assert capsys.readouterr().err == f"gemini: {path}: {said}\n"


def test_a_server_that_is_down_is_one_line_with_the_mend(
    kubeconfig: str, server: dict[str, list[Object]], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as held:  # a port that nobody listens on
        held.bind(("127.0.0.1", 0))
        text = (
            Path(kubeconfig).read_text().replace(server["url"][0]["url"], f"http://127.0.0.1:{held.getsockname()[1]}")
        )
        Path(kubeconfig).write_text(text)
        assert main(["kubectl", "--kubeconfig", kubeconfig]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"; is it up, and does {kubeconfig} name the right one?")


def test_no_home_is_no_traceback() -> None:
    program = "import os, pwd; pwd.getpwuid = {}.__getitem__; del os.environ['HOME']; import gemini.cli.kubectl"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
