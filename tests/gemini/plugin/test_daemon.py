"""The plugin's words to a real daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemini.plugin import daemon as module
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


def test_the_daemon_says_which_cards_there_are(rig: Rig) -> None:
    assert asyncio.run(Daemon(rig.state_dir).cards()) == {gpu.uuid: gpu.memory_bytes for gpu in GPUS}


def test_a_daemon_that_says_nothing_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.2)
    tmp_path.chmod(0o711)

    async def work() -> None:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_unix_server(say_nothing, tmp_path / "control.sock"):
            await Daemon(tmp_path).tenants()

    with pytest.raises(DaemonFault, match=r"control.sock \(no word within its time\); see that"):
        asyncio.run(work())


def test_a_daemon_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DaemonFault, match=r"no answer from the daemon at .*see that gemini serve runs") as caught:
        asyncio.run(Daemon(tmp_path).tenants())
    assert "\n" not in str(caught.value)
    assert not caught.value.clash
