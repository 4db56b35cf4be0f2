"""CDI devices: what a share brings into a container, and that the folder says what there is, whatever was there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gemini import cdi
from gemini.kube import names
from scheduler_backend.core.tenant import TenantSpec
from scheduler_backend.devices import Gpu
from scheduler_backend.publisher import Share

GPUS = tuple(Gpu(index, f"GPU-{index}", "H200", 80 << 30) for index in (0, 1))
PLACE = cdi.Place(Path("/opt/libgemini_hook.so"), Path("/run/gemini/ld.so.preload"), nodes=lambda _: ["/dev/nvidia0"])


def share(name: str, state_dir: Path = Path("/run/gemini"), cards: int = 2, **spec: Any) -> Share:
    promised = TenantSpec(name, 300_000, gpus=tuple(range(cards)), **spec)
    return Share(promised, state_dir / "tenants" / name, GPUS[:cards], cards < len(GPUS))


def environment(edits: dict[str, Any]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in edits["env"])


def devices(folder: Path) -> list[str]:
    """All device names in a folder, as a container runtime would find them."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".yaml"))
    return [device["name"] for file in files for device in json.loads(file.read_text())["devices"]]


def state_dir(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def test_a_share_brings_library_socket_folder_amounts_and_the_cards_nodes() -> None:
    edits = PLACE.describe(share("train", memory_bytes=20 << 30))
    assert environment(edits) == {
        "LD_PRELOAD": names.LIBRARY_PATH,
        "GEMINI_SOCKET": "ipc:///run/gemini/tenant.sock",
        "GEMINI_REQUEST": "0.3",
        "GEMINI_LIMIT": "1",
        "GEMINI_MEMORY_LIMIT": str(20 << 30),
        "GEMINI_MEMORY_FRACTION": "0.25",
        "NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1",
    }
    assert {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]} == {
        names.LIBRARY_PATH: "/opt/libgemini_hook.so",
        "/run/gemini": "/run/gemini/tenants/train",
        "/etc/ld.so.preload": "/run/gemini/ld.so.preload",
    }
    assert all(mount["options"] == ["bind", "ro"] for mount in edits["mounts"])
    assert edits["deviceNodes"] == [{"path": "/dev/nvidia0"}]


def test_a_share_of_some_cards_narrows_what_cuda_sees() -> None:
    assert environment(PLACE.describe(share("a", cards=1)))["CUDA_VISIBLE_DEVICES"] == "GPU-0"


def test_a_simulated_machine_comes_along() -> None:
    place = cdi.Place(Path("/l.so"), Path("/p"), (Path("/lib/sim"), "gpus=2"))
    edits = place.describe(share("a"))
    said = environment(edits)
    assert (said["GEMINI_SIM"], said["LD_LIBRARY_PATH"]) == ("gpus=2", names.SIM_PATH)
    assert "NVIDIA_VISIBLE_DEVICES" not in said
    inside = {mount["containerPath"]: mount["options"] for mount in edits["mounts"]}
    assert (inside[names.SIM_PATH], inside["/dev/shm"]) == (["bind", "ro"], ["bind"])


def test_the_folder_says_the_last_word_and_nothing_where_there_is_no_share(tmp_path: Path) -> None:
    folder = cdi.Folder(tmp_path / "cdi", tmp_path, PLACE.describe)
    folder.publish([])
    assert not (tmp_path / "cdi").exists()
    folder.publish([share("a"), share("b")])
    assert devices(tmp_path / "cdi") == ["a", "b"]
    folder.publish([share("b")])
    assert devices(tmp_path / "cdi") == ["b"]
    folder.publish([])
    assert list((tmp_path / "cdi").iterdir()) == []


def test_what_somebody_removes_or_writes_over_is_made_anew(tmp_path: Path) -> None:
    folder = cdi.Folder(tmp_path / "cdi", tmp_path, PLACE.describe)
    folder.publish([share("a")])
    folder.file.unlink()
    (tmp_path / "cdi").rmdir()
    folder.look()
    assert devices(tmp_path / "cdi") == ["a"]
    folder.file.write_text("{}")
    folder.look()
    assert devices(tmp_path / "cdi") == ["a"]
    folder.publish([])
    folder.file.write_text(cdi.spec({"ghost": {}}))
    folder.look()
    assert devices(tmp_path / "cdi") == []


def test_what_a_killed_daemon_left_is_gone_with_the_next_ones_first_word(tmp_path: Path) -> None:
    cdi.Folder(tmp_path / "cdi", tmp_path, PLACE.describe).publish([share("a"), share("removed-meanwhile")])
    cdi.Folder(tmp_path / "cdi", tmp_path, PLACE.describe).publish([share("a")])
    assert devices(tmp_path / "cdi") == ["a"]
    cdi.Folder(tmp_path / "cdi", tmp_path, PLACE.describe).publish([])
    assert devices(tmp_path / "cdi") == []


def test_files_of_daemons_whose_state_is_gone_are_cleared_and_no_others(tmp_path: Path) -> None:
    place = tmp_path / "cdi"
    gone, living, ours = (state_dir(tmp_path, name) for name in ("gone", "living", "ours"))
    cdi.Folder(place, gone, PLACE.describe).publish([share("old", gone)])
    cdi.Folder(place, living, PLACE.describe).publish([share("other", living)])
    (place / "nvidia.json").write_text(cdi.spec({"card": {}}))
    (place / "gemini-shares-broken.json").write_text("[]")
    gone.rmdir()
    cdi.Folder(place, ours, PLACE.describe).publish([share("mine", ours)])
    (place / "gemini-shares-broken.json").unlink()
    assert sorted(devices(place)) == ["card", "mine", "other"]


def test_a_folder_that_cannot_be_written_is_said_until_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cdi").write_text("a file")
    folder = cdi.Folder(tmp_path / "cdi", tmp_path, PLACE.describe)
    folder.publish([share("a")])
    folder.look()
    assert folder.problem is not None
    assert "--cdi-dir" in folder.problem
    assert len([line for line in caplog.messages if "cdi-unwritable" in line]) == 1
    (tmp_path / "cdi").unlink()
    folder.look()
    assert folder.problem is None
    assert devices(tmp_path / "cdi") == ["a"]
