"""The daemon over real sockets: grants, the page, deaths, bad frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from libhook.core import lib
from tests.scheduler_backend.rig import MS, Rig, wait_for


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def test_a_tenant_alone_is_granted_at_once_and_its_page_shows_it(rig: Rig) -> None:
    rig.tenant("a")
    client = rig.client("a")
    assert client.shown() == 0
    client.ask()
    grant = client.grant()
    assert grant.device == client.device(0)
    assert client.shown() == grant.epoch
    assert grant.quota_ns == 50 * MS
    assert not grant.flags & lib.WIRE_GRANT_CONTENDED
    client.give_back(grant.epoch)
    wait_for(lambda: client.shown() == 0, what="closed page")
