"""gemini serve: the daemon in the foreground, from its first answer to its clean end."""

from __future__ import annotations

import signal
import subprocess
import time

from gemini.cli.control import answers, ask
from tests.gemini.cli.conftest import Place


def started(place: Place) -> subprocess.Popen[str]:
    process = place.start("serve")
    deadline = time.monotonic() + 60
    while not answers(place.node):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_sigterm_ends_it_cleanly_and_leaves_no_socket(place: Place) -> None:
    process = started(place)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert not place.node.control.exists()
    assert not answers(place.node)


def test_tenants_without_a_process_are_there_again_after_a_restart(place: Place) -> None:
    first = started(place)
    ask(place.node, "POST", "/tenants", {"name": "kept", "request": 0.4})
    first.kill()
    first.wait()
    started(place)
    assert [(t["name"], t["request"]) for t in place.state()["tenants"]] == [("kept", 0.4)]
