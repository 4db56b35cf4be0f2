"""What a container is given, and that it can be read back from the kubelet's record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gemini.kube import names
from gemini.kube.kubelet_api import v1beta1
from gemini.plugin import reply
from gemini.plugin.claims import Claim, claims_of
from gemini.plugin.slots import CORE, gpushare
from tests.gemini.plugin.pods import GIB, bound, cards

KNOWN = cards(2)
PATHS = reply.Paths("/var/lib/gemini/libgemini_hook.so", "/run/gemini/tenants")
OPTIONS = reply.Options(PATHS)
TENANT = reply.tenant_name("ns", "p", "0123abcd")


def claim(**annotations: str) -> Claim:
    found = claims_of(bound("p", KNOWN, [1], **annotations), CORE, KNOWN)
    assert found is not None
    return found.claims[0]


def mounts(given: Any) -> dict[str, tuple[str, bool]]:
    return {mount.container_path: (mount.host_path, mount.read_only) for mount in given.mounts}


def test_library_socket_and_amounts_are_given_and_the_cards_override_the_image() -> None:
    given = reply.build(claim(gpu_request="0.5", gpu_limit="0.8", gpu_memory="4Gi"), TENANT, OPTIONS)
    assert dict(given.envs) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-1",
        "LD_PRELOAD": names.LIBRARY_PATH,
        "GEMINI_SOCKET": "ipc:///run/gemini/tenant.sock",
        "GEMINI_REQUEST": "0.5",
        "GEMINI_LIMIT": "0.8",
        "GEMINI_MEMORY_LIMIT": str(4 * GIB),
        "GEMINI_MEMORY_FRACTION": "0.25",
    }
    assert mounts(given) == {
        names.LIBRARY_PATH: (PATHS.library, True),
        "/run/gemini": (f"/run/gemini/tenants/{TENANT}", True),
    }
    assert not given.cdi_devices


def test_without_memory_there_is_no_limit_in_the_environment() -> None:
    assert set(reply.settings(claim(gpu_request="0"))) == {"GEMINI_REQUEST", "GEMINI_LIMIT"}


def test_ld_so_preload_is_mounted_where_asked() -> None:
    options = replace(OPTIONS, paths=replace(PATHS, preload="/var/lib/gemini/ld.so.preload"))
    given = reply.build(claim(gpu_request="0.5"), TENANT, options)
    assert mounts(given)["/etc/ld.so.preload"] == ("/var/lib/gemini/ld.so.preload", True)


def test_cdi_gives_by_name_what_would_be_mounted() -> None:
    options = replace(OPTIONS, cdi=True, gpu_cdi="nvidia.com/gpu")
    asked = claim(gpu_request="0.5")
    given = reply.build(asked, TENANT, options)
    assert [device.name for device in given.cdi_devices] == [f"gemini.io/share={TENANT}", "nvidia.com/gpu=GPU-1"]
    assert not given.mounts
    assert given.envs["NVIDIA_VISIBLE_DEVICES"] == "void"  # or NVIDIA's hook would bring the cards a second time
    spec = json.loads(reply.cdi_spec(asked, TENANT, options))
    assert (spec["kind"], spec["devices"][0]["name"]) == ("gemini.io/share", TENANT)
    edits = spec["devices"][0]["containerEdits"]
    assert f"LD_PRELOAD={names.LIBRARY_PATH}" in edits["env"]
    assert {mount["containerPath"] for mount in edits["mounts"]} == {names.LIBRARY_PATH, "/run/gemini"}


def test_a_simulated_node_gives_its_driver_and_its_machine() -> None:
    options = reply.Options(replace(PATHS, sim="/var/lib/gemini/sim"), machine="gpus=2")
    given = reply.build(claim(gpu_request="0.5"), TENANT, options)
    assert given.envs["GEMINI_SIM"] == "gpus=2"
    assert given.envs["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert mounts(given)[given.envs["LD_LIBRARY_PATH"]] == ("/var/lib/gemini/sim", True)
    assert mounts(given)["/dev/shm"] == ("/dev/shm", False)


def test_gpushares_environment_is_given_too() -> None:
    found = claims_of(bound("p", KNOWN, [0], limits={names.ALIYUN_GPU_MEM: "1024"}), gpushare("MiB"), KNOWN)
    assert found is not None
    given = reply.build(found.claims[0], TENANT, OPTIONS)
    assert given.envs["ALIYUN_COM_GPU_MEM_CONTAINER"] == "1024"
    assert given.envs["GEMINI_MEMORY_LIMIT"] == str(GIB)


@pytest.mark.parametrize("options", [OPTIONS, replace(OPTIONS, cdi=True, gpu_cdi="nvidia.com/gpu")])
def test_a_reply_tells_its_tenant_cards_and_amounts_when_it_is_read_back(options: reply.Options) -> None:
    asked = claim(gpu_request="0.5")
    given = reply.read(reply.build(asked, TENANT, options).SerializeToString())
    assert given == reply.Given(TENANT, ("GPU-1",), reply.settings(asked))


@pytest.mark.parametrize("text", [b"", b"\xff\xff", v1beta1.ContainerAllocateResponse().SerializeToString()])
def test_what_is_no_reply_of_ours_is_none(text: bytes) -> None:
    assert reply.read(text) is None


def test_a_tenants_name_is_valid_for_the_daemon_however_long_the_pods_is() -> None:
    from scheduler_backend.core.tenant import NAME

    name = reply.tenant_name("n" * 63, "p" * 200, "0123abcd")
    assert NAME.fullmatch(name)
    assert reply.TENANT.fullmatch(name)
    assert len(f"/run/gemini/tenants/{name}/tenant.sock.page") <= 107
