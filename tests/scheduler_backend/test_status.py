"""HTTP on the control socket."""

from __future__ import annotations

import json
import re
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from libhook import info
from scheduler_backend import status
from tests.scheduler_backend.rig import ROOT, Rig, wait_for


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig("--metrics-port", "0") as made:
        yield made


def test_the_state_has_the_shape_of_ps(rig: Rig) -> None:
    rig.tenant("a", 0.5, 0.6, memory_bytes=1000)
    rig.tenant("b", 0.3)
    client = rig.client("a")
    client.ask()
    grant = client.grant()
    state = rig.state()
    assert set(state) >= {"device", "seconds", "window_s", "utilization", "handover_us", "tenants", "incarnation"}
    assert state["devices"][0]["holder"] == "a"
    assert state["devices"][0]["epoch"] == grant.epoch
    a, b = state["tenants"]
    assert (a["request"], a["limit"], a["memory_limit_bytes"], a["holding"]) == (0.5, 0.6, 1000, True)
    assert a["entitled"] == pytest.approx(0.6)
    assert b["entitled"] == pytest.approx(0.4)
    assert a["held_ns"] > 0
    assert a["clients"] == [client_pid for client_pid in a["clients"] if client_pid > 0]
    later = rig.of("a")["held_ns"]
    assert later > a["held_ns"]
    client.give_back(grant.epoch)
    for name in "ab":
        rig.http("DELETE", f"/tenants/{name}")


def test_what_this_build_is_was_found_out_before_anybody_asks() -> None:
    """In a checkout git is asked, for 20 to 30 ms: in the middle of work nobody would be granted anything meanwhile."""
    info.build.cache_clear()
    status.port_application(SimpleNamespace(outside=SimpleNamespace(look=None)))  # type: ignore[arg-type]  # only kept
    assert info.build.cache_info().currsize == 1


def test_health_version_and_what_is_not_there(rig: Rig) -> None:
    assert rig.http("GET", "/healthz") == (200, "ok\n")
    assert rig.http("GET", "/version")[1]["wire"] == 1
    status, answer = rig.http("GET", "/nothing")
    assert (status, answer["error"]) == (404, "GET /nothing: Not Found")
    assert rig.http("POST", "/state", {})[0] == 405


def test_the_control_socket_is_not_for_everybody(rig: Rig) -> None:
    assert stat.S_IMODE((rig.state_dir / "control.sock").stat().st_mode) == 0o660


def test_another_address_is_listened_on_and_one_that_is_not_ours_is_named(tmp_path: Path) -> None:
    with Rig("--metrics-port", "0", "--metrics-host", "127.0.0.2") as rig:
        wait_for(lambda: "metrics address=127.0.0.2:" in rig.log(), 60)
    serve = [sys.executable, "-m", "tests.scheduler_backend.serve", "--state-dir", str(tmp_path)]
    command = [*serve, "--metrics-port", "0", "--metrics-host", "192.0.2.1"]
    ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 1
    told = ended.stderr.splitlines()[-1]
    assert re.fullmatch(r"gemini: --metrics-host 192\.0\.2\.1 --metrics-port 0: .+; choose another", told)


def test_the_port_serves_the_reading_part_only(rig: Rig) -> None:
    found = re.search(r"metrics address=127\.0\.0\.1:(\d+)", rig.log())
    assert found is not None
    base = f"http://127.0.0.1:{found[1]}"
    assert urllib.request.urlopen(f"{base}/healthz", timeout=60).read() == b"ok\n"
    assert b"gemini_trace_lost_events" in urllib.request.urlopen(f"{base}/metrics", timeout=60).read()
    request = urllib.request.Request(f"{base}/shutdown", method="POST")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=60)


def test_a_daemon_that_is_ending_takes_no_tenant() -> None:
    body = json.dumps({"name": "late", "request": 0.1}).encode()
    head = f"POST /tenants HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    with Rig() as rig, socket.socket(socket.AF_UNIX) as late:
        late.settimeout(60)
        late.connect(str(rig.state_dir / "control.sock"))
        late.sendall(head.encode())
        assert late.recv(4096).startswith(b"HTTP/1.1 100 ")  # it reads the tenant now
        assert rig.http("POST", "/shutdown")[0] == 200
        answer = b""
        try:
            late.sendall(body)
            answer = late.recv(4096)
        except ConnectionError:
            pass  # it waits half a second for what is under way: this machine stood still for longer
        assert not answer or answer.startswith(b"HTTP/1.1 503 ")
        assert rig.daemon is not None
        assert rig.daemon.wait(60) == 0
        assert json.loads((rig.state_dir / "state.json").read_text())["tenants"] == []
