"""Launches that the device holds until the gate opens: random programs get the same answers, and none stands still."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from bench.differential import MEMORY, build
from libhook import core
from libhook.core import lib
from tests.libhook.runtime.conftest import LIB, PATIENCE_S, Daemon, Run
from tests.libhook.runtime.test_on_sim import Keeper

CALLS = 160_000
MANY_CALLS = int(os.environ.get("GEMINI_AHEAD_CALLS", CALLS))  # for a long game
HELD_LEAST, GAMES_MOST = 10, 6


class Generous(Daemon):
    """Memory without end, as a program without the library has."""

    def welcome(self, peer: bytes, managed: int = 1) -> None:
        message = core.new(lib.WIRE_WELCOME, 1, incarnation=self.incarnation, device_count=1, tenant=b"test")
        message.device[0].managed = managed
        message.device[0].page_slot = 3
        message.device[0].memory_limit_bytes = MEMORY
        self.socket.send_multipart([peer, core.encode(message)])


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("play"))


def forget(sim: str) -> None:
    """The next program is the first on that machine: its card has no record of others' work."""
    for path in Path("/dev/shm").glob(f"gemini-sim-*-{sim}*"):
        path.unlink()


def bare(player: Path, words: list[str], sim: str) -> list[str]:
    env = {**os.environ, "GEMINI_SIM": f"id={sim}-bare", "LD_LIBRARY_PATH": f"{LIB / 'sim'}:{LIB}"}
    command = [player, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=10 * PATIENCE_S, check=True)
    forget(f"{sim}-bare")
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("seed", "threads", "shared"),
    [(1, 1, True), (2, 4, True), (3, 1, True), (4, 8, True), (5, 1, False), (6, 4, False)],
)
def test_a_gate_that_closes_at_any_moment_changes_no_answer(
    player: Path, sim: str, run: Run, folder: Path, seed: int, threads: int, shared: bool
) -> None:
    """Streams, events, graphs, captures, copies, frees, modules, contexts: what may be held is, and all of it runs.

    How much is held in a game is the machine's matter: games go on until more than HELD_LEAST launches were in one.
    """
    words = [str(seed), str(MANY_CALLS), str(threads), *([] if shared else ["--goes-away"])]
    answers, rng, held = bare(player, words, sim), random.Random(seed), list[int]()
    while max(held, default=0) <= HELD_LEAST:
        assert len(held) < GAMES_MOST, held
        assert play(player, words, sim, run, folder, shared, rng) == answers
        counts = re.findall(r"let go of (\d+) launches", (folder / "log").read_text())
        held.append(sum(map(int, counts)) - sum(held))


def play(
    player: Path, words: list[str], sim: str, run: Run, folder: Path, shared: bool, rng: random.Random
) -> list[str]:
    """The answers of one game, in which the gate closes whenever it likes."""
    daemon = Generous(folder / "tenant.sock")
    process = run(player, *words, LD_LIBRARY_PATH=f"{LIB / 'sim'}:{LIB}")
    keeper = Keeper(daemon, sim, quota_ms=2, shared=shared)
    if not shared:
        keeper.cap_ms = 0.5  # the least where the device holds what a host leaves behind

    def any_moment() -> None:
        keeper.quota_ms, keeper.pause_ms = rng.uniform(0.3, 4), rng.choice((0, 0.1, 1, 3))

    keeper.before_giving = any_moment
    keeper.serve(process)
    out, err = process.communicate(timeout=PATIENCE_S)
    daemon.close()
    assert process.returncode == 0, (out, err)
    assert [one for one in keeper.outside() if one.kernels] == []  # kernels are what is held
    forget(sim)
    return sorted(out.splitlines())
