"""gemini share: named shares with a daemon of their own, that outlive it and are CDI devices as long as they are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemini.cli.control import answers, ask
from gemini.cli.node import LOAD
from tests.gemini.cli.conftest import Place


def share(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gemini", "share", words[0], "--state-dir", str(place.node.state_dir), *words[1:]]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=place.environment(),
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def serve(place: Place, *options: str) -> subprocess.Popen[str]:
    process = place.start("serve", *options)
    deadline = time.monotonic() + 60
    while not answers(place.node):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def devices(place: Place) -> list[str]:
    files = (place.node.state_dir / "cdi").glob("*.json")
    return [device["name"] for file in files for device in json.loads(file.read_text())["devices"]]


def test_a_share_is_added_without_a_daemon_listed_and_removed(place: Place) -> None:
    added = share(place, "add", "train", "--request", "0.7", "--memory", "2GiB", f"--sim={place.sim}")
    assert (
        added.stdout
        == f"podman --cdi-spec-dir {place.node.state_dir}/cdi run --device gemini.io/share=train IMAGE CMD\n"
    )
    assert share(place, "add", "infer", "--limit", "30%", "--class", "latency").returncode == 0
    rows = [line.split() for line in share(place, "ls").stdout.splitlines()]
    assert rows[1:] == [
        ["train", "0.7", "1", "2", "GiB", "batch", "0", "0", "gemini.io/share=train"],
        ["infer", "0.3", "0.3", "whole", "card", "latency", "0", "0", "gemini.io/share=infer"],
    ]
    assert devices(place) == ["train", "infer"]
    assert share(place, "rm", "infer").returncode == 0
    assert devices(place) == ["train"]
    assert [one["name"] for one in json.loads(share(place, "list", "--json").stdout)] == ["train"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_shares_and_their_devices_are_there_again_after_a_restart_of_the_daemon(place: Place, number: int) -> None:
    config = place.dir / "gemini.toml"
    config.write_text("[tenants.fixed]\nrequest = 0.2\n")
    first = serve(place, "--config", str(config))
    assert share(place, "add", "train", "--request", "0.7").returncode == 0
    ask(place.node, "POST", "/tenants", {"name": "no-share", "request": 0.1})
    assert sorted(devices(place)) == ["fixed", "train"]
    first.send_signal(number)
    first.communicate(timeout=60)
    for left in (place.node.state_dir / "cdi").iterdir():
        left.write_text('{"devices": [{"name": "stale"}]}')
    serve(place, "--config", str(config))
    assert sorted(devices(place)) == ["fixed", "train"]
    assert {one["name"]: one["share"] for one in json.loads(share(place, "list", "--json").stdout)} == {
        "fixed": "config",
        "train": "added",
    }
    assert "config file" in share(place, "remove", "fixed").stderr


def test_a_share_in_use_is_removed_only_by_force(place: Place) -> None:
    serve(place)
    assert share(place, "add", "a", "--request", "0.5").returncode == 0
    user = place.start("run", "--name", "a", "--request", "0.5", "--", str(LOAD), "--seconds", "600")
    deadline = time.monotonic() + 60
    while not place.state()["tenants"][0]["clients"]:
        assert user.poll() is None, user.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    refused = share(place, "remove", "a")
    assert (refused.returncode, refused.stderr.splitlines()[0].split(" (")[0]) == (1, "gemini: a is used by 1 process")
    assert devices(place) == ["a"]
    assert share(place, "remove", "--force", "a").returncode == 0
    assert devices(place) == []


def test_a_share_of_more_memory_than_the_card_has_is_made_with_a_word(place: Place) -> None:
    added = share(place, "add", "vast", "--memory", "9GiB", f"--sim={place.sim}")
    assert added.returncode == 0
    assert "memory 9 GiB is more than NVIDIA H200 (simulated) has (8 GiB)" in added.stderr


def test_what_is_wrong_is_said_in_one_line(place: Place) -> None:
    serve(place)
    for words, hold in (
        (("add", "a", "--request", "2"), "2"),
        (("add", "a/b"), "a/b"),
        (("add", "a", "--gpu", "7"), "7"),
        (("remove", "nobody"), "nobody"),
    ):
        done = share(place, *words)
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert hold in done.stderr
    assert share(place, "list").stdout.startswith("no shares")


def test_a_folder_that_cannot_be_written_is_said_to_whoever_adds_a_share(place: Place) -> None:
    blocked = place.dir / "file"
    Path(blocked).write_text("")
    serve(place, "--cdi-dir", str(blocked))
    done = share(place, "add", "a")
    assert done.returncode == 1
    assert "--cdi-dir" in done.stderr
