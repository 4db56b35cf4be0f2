"""Who wants a tenant keeps it; what clashes is refused in one line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scheduler_backend.rig import PATIENCE_S, ROOT, Rig, wait_for


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


@pytest.fixture(autouse=True)
def clean(rig: Rig) -> Iterator[None]:
    yield
    for tenant in rig.state()["tenants"]:
        rig.http("DELETE", f"/tenants/{tenant['name']}")


REGISTER = """
import sys
from pathlib import Path
from tests.scheduler_backend.rig import Rig
rig = Rig.__new__(Rig)
rig.state_dir = Path(sys.argv[1])
print(rig.http("POST", "/tenants", {"name": "a", "request": 0.25, "pid": 1})[0], flush=True)
if sys.stdin.readline().strip() == "leave":
    print(rig.http("DELETE", "/tenants/a")[0], flush=True)
"""


class Runner:
    """A process that registers tenant a for its lifetime, as `gemini run` does."""

    def __init__(self, rig: Rig) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", REGISTER, str(rig.state_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "200\n"

    def leave(self) -> None:
        self.process.communicate("leave\n", timeout=60)


def test_two_runs_of_one_name_share_the_tenant_and_the_last_takes_it_along(rig: Rig) -> None:
    one, two = Runner(rig), Runner(rig)
    one.leave()
    assert [tenant["name"] for tenant in rig.state()["tenants"]] == ["a"]
    two.leave()
    assert rig.state()["tenants"] == []


def test_a_run_that_is_killed_leaves_no_tenant_behind(rig: Rig) -> None:
    runner = Runner(rig)
    runner.process.kill()
    runner.process.communicate()
    wait_for(lambda: rig.state()["tenants"] == [], what="gone tenant")


SAY_AND_END = """
import json, socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
connection.connect(sys.argv[2])
body = json.dumps({"name": "a", "request": 0.25, "pid": 1})
connection.sendall(f"POST /tenants HTTP/1.1\\r\\nHost: h\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
"""


def test_a_run_that_has_ended_before_it_is_heard_is_given_no_tenant(rig: Rig) -> None:
    assert rig.daemon is not None
    with socket.socket(socket.AF_UNIX) as connection:  # the process's own, though we hear the answer
        rig.daemon.send_signal(signal.SIGSTOP)
        try:
            words = [str(connection.fileno()), str(rig.state_dir / "control.sock")]
            subprocess.run([sys.executable, "-c", SAY_AND_END, *words], pass_fds=(connection.fileno(),), check=True)
        finally:
            rig.daemon.send_signal(signal.SIGCONT)
        connection.settimeout(PATIENCE_S)
        heard = b""
        while b"}" not in heard and (more := connection.recv(4096)):
            heard += more
    assert b"has ended" in heard, heard
    assert rig.state()["tenants"] == []


def test_a_registration_without_a_pid_lasts_beside_a_run(rig: Rig) -> None:
    rig.tenant("a", 0.25)
    Runner(rig).leave()
    assert len(rig.state()["tenants"]) == 1


def test_equal_specs_share_and_others_conflict(rig: Rig) -> None:
    assert rig.tenant("a", 0.25) == rig.tenant("a", 0.25)
    status, answer = rig.http("POST", "/tenants", {"name": "a", "request": 0.3})
    assert status == 409
    assert "exists with request 0.25, not request 0.3;" in answer["error"]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"name": "a", "request": 1.5}, 422, "request 1.5 is not within 0..1"),
        ({"name": "a", "request": -0.1}, 422, "request -0.1 is not within 0..1"),
        ({"name": "a", "request": 0.5, "limit": 0.3}, 422, "request 0.5 is above limit 0.3"),
        ({"name": "a", "request": 0, "limit": 0}, 422, "limit 0 is not above 0"),
        ({"name": "a", "request": "much"}, 422, "'much' is no share"),
        ({"name": "../up", "request": 0.1}, 422, "'../up' is not valid"),
        ({"name": "a" * 64}, 422, "is not valid"),
        ({"name": 5}, 422, "5 is no name"),
        ({"name": "a", "gpus": [9]}, 422, "GPU 9 does not exist here"),
        ({"name": "a", "gpus": [0, 0]}, 422, "names one twice"),
        ({"name": "a", "gpus": "all"}, 422, "is no list"),
        ({"name": "a", "memory_bytes": -1}, 422, "-1 is no size"),
        ({"name": "a", "speed": 1}, 422, "'speed' is unknown"),
        ([], 422, "no JSON object"),
    ],
)
def test_bad_specs_are_refused_with_the_value(rig: Rig, body: Any, status: int, text: str) -> None:
    answered, answer = rig.http("POST", "/tenants", body)
    assert answered == status
    assert text in answer["error"]
    assert "\n" not in answer["error"]
    assert rig.state()["tenants"] == []


def test_requests_of_one_gpu_may_not_sum_above_the_whole(rig: Rig) -> None:
    rig.tenant("a", 0.7)
    status, answer = rig.http("POST", "/tenants", {"name": "b", "request": 0.4})
    assert status == 409
    assert "0.7 is promised already; ask at most 0.3" in answer["error"]
    rig.tenant("c", 0.3, gpus=[1])
    assert rig.http("PATCH", "/tenants/c", {"request": 0.31})[0] == 409
    assert rig.of("c")["request"] == 0.3


def test_changes_and_deletions_of_who_is_not_there(rig: Rig) -> None:
    assert rig.http("PATCH", "/tenants/none", {"request": 0.1})[0] == 404
    assert rig.http("DELETE", "/tenants/none")[0] == 404
    rig.tenant("a", 0.2)
    assert rig.http("PATCH", "/tenants/a", {"name": "b"})[0] == 422
    assert rig.http("PATCH", "/tenants/a", {"request": 0.9, "limit": 0.5})[0] == 422


def test_a_name_that_makes_the_socket_path_too_long_is_refused(rig: Rig) -> None:
    status, answer = rig.http("POST", "/tenants", {"name": "a" * 63})
    over = len(str(rig.state_dir / "tenants" / ("a" * 63) / "tenant.sock.page")) - 107
    assert (status == 422) == (over > 0)
    if over > 0:
        assert "too long for a Unix socket" in answer["error"]
