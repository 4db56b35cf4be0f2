"""The plugin's two sockets, over real gRPC, as a kubelet calls them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from gemini.kube.kubelet_api import DRA, dra, registration, stub
from gemini.plugin.draserver import DraServer
from tests.gemini.plugin.test_dra import TENANT, Rig


def called(talk: Callable[[Rig, DraServer, Any, Any], Awaitable[None]]) -> None:
    """Runs `talk` with stubs of registration and of the claims' verbs, found as a kubelet finds them."""

    async def run(folder: Path) -> None:
        rig = Rig(folder)
        (folder / "registry").mkdir()
        server = DraServer(rig.claims, folder / "registry", folder / "driver")
        await server.start()
        try:
            (entry,) = (folder / "registry").iterdir()
            async with grpc.aio.insecure_channel(f"unix://{entry}") as channel:
                who = stub(channel, "pluginregistration.Registration")
                info = await who.GetInfo(registration.InfoRequest(), timeout=60)
                assert (info.type, info.name, list(info.supported_versions)) == (
                    "DRAPlugin", "gemini.io", ["v1.DRAPlugin"]
                )  # fmt: skip
                async with grpc.aio.insecure_channel(f"unix://{info.endpoint}") as own:
                    await talk(rig, server, who, stub(own, f"{DRA}.DRAPlugin"))
        finally:
            await server.stop()
        assert list((folder / "registry").iterdir()) == []

    with tempfile.TemporaryDirectory(prefix="gemini-", dir="/tmp") as folder:  # a short path
        asyncio.run(run(Path(folder)))


def named(uid: str = "u-1", name: str = "c") -> Any:
    return dra.Claim(namespace="ns", uid=uid, name=name)


def test_devices_are_named_as_they_were_allocated_with_their_cdi_names() -> None:
    async def talk(rig: Rig, server: DraServer, who: Any, plugin: Any) -> None:
        request = dra.NodePrepareResourcesRequest(claims=[named(), named("u-9", "nobody")])
        answer = await plugin.NodePrepareResources(request, timeout=60)
        (device,) = answer.claims["u-1"].devices
        assert (list(device.request_names), device.pool_name, device.device_name, device.share_id) == (
            ["card"], "n1", "gpu-0", "s-0-30"
        )  # fmt: skip
        assert list(device.cdi_device_ids) == [f"gemini.io/share={TENANT}"]
        assert "ns/nobody: 404: there is no claim nobody" in answer.claims["u-9"].error
        request = dra.NodeUnprepareResourcesRequest(claims=[named(), named("u-9", "nobody")])
        answer = await plugin.NodeUnprepareResources(request, timeout=60)
        assert {uid: entry.error for uid, entry in answer.claims.items()} == {"u-1": "", "u-9": ""}
        assert rig.daemon.specs == {}

    called(talk)


def test_registration_is_known_and_a_refusal_too() -> None:
    async def talk(rig: Rig, server: DraServer, who: Any, plugin: Any) -> None:
        await who.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True), timeout=60)
        assert server.registered.is_set()
        await who.NotifyRegistrationStatus(registration.RegistrationStatus(error="no"), timeout=60)
        assert not server.registered.is_set()

    called(talk)


def test_folder_that_cannot_have_a_socket_is_an_error_with_its_path(tmp_path: Path) -> None:
    async def run() -> None:
        server = DraServer(Rig(tmp_path).claims, tmp_path / ("x" * 120), tmp_path / "d")
        try:
            with pytest.raises(OSError, match="xxxx"):
                await server.start()
        finally:
            await server.stop()

    asyncio.run(run())


def test_server_that_never_started_leaves_the_sockets_of_the_one_that_runs_alone() -> None:
    async def talk(rig: Rig, server: DraServer, who: Any, plugin: Any) -> None:
        await DraServer(rig.claims, rig.folder / "registry", rig.folder / "driver").stop()
        await who.GetInfo(registration.InfoRequest(), timeout=60)
        assert list((rig.folder / "registry").iterdir())

    called(talk)
