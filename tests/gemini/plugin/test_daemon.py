"""The plugin's words to a real daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemini.plugin.daemon import Daemon, DaemonFault
from tests.scheduler_backend.rig import Rig
from tests.scheduler_backend.serve import GPUS


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as one:
        yield one


def spec(name: str, **more: Any) -> dict[str, Any]:
    given = {"name": name, "request": 0.6, "limit": 1.0, "memory_bytes": 1 << 30, "latency": False}
    return {**given, "gpus": [GPUS[0].uuid], **more}


def test_tenants_are_registered_changed_and_removed(rig: Rig) -> None:
    async def work() -> None:
        daemon = Daemon(rig.state_dir)
        await daemon.register(spec("pod.ns.a-00000000"))
        await daemon.register(spec("pod.ns.a-00000000", request=0.3, latency=True))
        (tenant,) = (await daemon.tenants()).values()
        assert (tenant["request"], tenant["class"], tenant["memory_limit_bytes"]) == (0.3, "latency", 1 << 30)
        await daemon.register(spec("pod.ns.b-00000000"))
        with pytest.raises(DaemonFault) as clash:
            await daemon.register(spec("pod.ns.c-00000000"))
        assert clash.value.clash
        await daemon.remove("pod.ns.b-00000000")
        await daemon.remove("pod.ns.b-00000000")
        await daemon.register(spec("pod.ns.c-00000000"))
        assert set(await daemon.tenants()) == {"pod.ns.a-00000000", "pod.ns.c-00000000"}
        with pytest.raises(DaemonFault, match=r"refuses POST /tenants: .*does not exist here"):
            await daemon.register(spec("pod.ns.d-00000000", gpus=["GPU-9"]))

    asyncio.run(work())


def test_a_daemon_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DaemonFault, match=r"no answer from the daemon at .*see that gemini serve runs") as caught:
        asyncio.run(Daemon(tmp_path).tenants())
    assert "\n" not in str(caught.value)
    assert not caught.value.clash
