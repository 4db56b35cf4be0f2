"""What state.json is written from, and which epochs count as reserved by it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.keeper import Keeper, Registration
from scheduler_backend.peers import Peer, start_time
from scheduler_backend.persist import EPOCH_BLOCK, StateDir
from scheduler_backend.server import Server


class Bench:
    """A keeper on a state directory of its own, with as much of a server as it looks at."""

    def __init__(self, folder: Path) -> None:
        self.place = StateDir(folder)
        self.registrations: dict[str, Registration] = {}
        self.tenants: dict[str, TenantSpec] = {}
        self.endpoints: dict[str, Any] = {}
        self.epochs = SimpleNamespace(last=7)
        node = SimpleNamespace(epochs=self.epochs, tenants=self.tenants)
        self.server = SimpleNamespace(node=node, endpoints=self.endpoints, incarnation=3)
        self.keeper = Keeper(cast(Server, self.server), self.place, 0, self.registrations)

    def add(self, name: str, registration: Registration, owner: int | None = None) -> None:
        self.tenants[name] = TenantSpec(name)
        self.endpoints[name] = SimpleNamespace(owner=owner, kept="", by_nonce={})
        self.registrations[name] = registration


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.place.close()


def test_tenants_that_stay_and_those_of_living_processes_are_kept(bench: Bench) -> None:
    own = Peer.of_pid(os.getpid(), start_time(os.getpid()))
    assert own is not None
    bench.add("stays", Registration(lasting=True, share=True))
    bench.add("runs", Registration(peers={os.getpid(): own}), owner=1000)
    bench.add("configured", Registration(configured=True))
    bench.keeper.write()
    own.close()
    saved = bench.place.load()
    assert [spec.name for spec in saved.tenants] == ["stays", "runs"]
    assert saved.pids == {"runs": {os.getpid(): own.start_time}}
    assert (saved.owners, saved.shares, saved.incarnation) == ({"runs": 1000}, ["stays"], 3)


def test_epochs_are_reserved_ahead_and_again_before_they_run_out(bench: Bench) -> None:
    assert bench.keeper.runs_short()
    bench.keeper.write()
    assert bench.place.load().reserved_epoch == 7 + EPOCH_BLOCK
    assert not bench.keeper.runs_short()
    bench.epochs.last = 8 + EPOCH_BLOCK // 2
    assert bench.keeper.runs_short()


def test_what_could_not_be_written_reserves_nothing(bench: Bench) -> None:
    blocked = bench.place.path / "state.json"
    blocked.mkdir()
    bench.keeper.write()
    assert bench.keeper.runs_short()
    blocked.rmdir()
    bench.keeper.write()
    assert not bench.keeper.runs_short()
