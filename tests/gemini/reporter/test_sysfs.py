"""Places of PCI devices and RDMA adapters, read from a tree laid out as Linux does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemini.reporter.sysfs import NVIDIA_VENDOR, Place, adapters, parse_cpus, place_of, write_cpus

ROOT_PORT = "devices/pci0000:3a/0000:3a:00.0"
UPSTREAM = f"{ROOT_PORT}/0000:3b:00.0"


def device(root: Path, where: str, **files: str) -> Path:
    """A PCI device below devices/, linked from the bus as Linux does."""
    folder = root / where
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    link = root / "bus/pci/devices" / folder.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    return folder


def adapter(root: Path, name: str, pci: Path, *states: str) -> None:
    folder = root / "class/infiniband" / name
    for i, state in enumerate(states, start=1):
        (folder / "ports" / str(i)).mkdir(parents=True)
        (folder / "ports" / str(i) / "state").write_text(state + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "device").symlink_to(pci)


def test_devices_below_one_switch_share_its_name(tmp_path: Path) -> None:
    device(tmp_path, f"{UPSTREAM}/0000:3c:00.0/0000:3d:00.0", vendor=NVIDIA_VENDOR, numa_node="1", local_cpulist="8-11")
    nic = device(tmp_path, f"{UPSTREAM}/0000:3c:10.0/0000:3f:00.0", vendor="0x15b3", numa_node="1", local_cpulist="8")
    adapter(tmp_path, "mlx5_0", nic, "4: ACTIVE")
    place = place_of(tmp_path, "0000:3D:00.0", NVIDIA_VENDOR)
    assert place == Place("1", "0000:3b:00.0", (8, 9, 10, 11))
    (found,) = adapters(tmp_path)
    assert (found.place.pcie, found.place.numa, found.health) == ("0000:3b:00.0", "1", True)


def test_devices_at_root_ports_of_one_bridge_share_no_switch(tmp_path: Path) -> None:
    for port, address in (("0000:00:01.0", "0000:01:00.0"), ("0000:00:02.0", "0000:02:00.0")):
        device(tmp_path, f"devices/pci0000:00/{port}/{address}", numa_node="-1")
    places = [place_of(tmp_path, f"0000:0{i}:00.0") for i in (1, 2)]
    assert [place and place.pcie for place in places] == ["0000:00:01.0", "0000:00:02.0"]
    assert [place and place.numa for place in places] == [None, None]


def test_device_of_another_vendor_at_the_address_is_not_taken_for_the_card(tmp_path: Path) -> None:
    device(tmp_path, "devices/pci0000:00/0000:00:01.0/0000:01:00.0", vendor="0x1af4")
    assert place_of(tmp_path, "0000:01:00.0", NVIDIA_VENDOR) is None
    assert place_of(tmp_path, "0000:99:00.0") is None


def test_adapter_without_an_active_port_is_out_of_service_and_order_is_natural(tmp_path: Path) -> None:
    pci = device(tmp_path, "devices/pci0000:00/0000:00:03.0/0000:03:00.0")
    adapter(tmp_path, "mlx5_10", pci, "1: DOWN", "4: ACTIVE")
    adapter(tmp_path, "mlx5_2", pci, "1: DOWN")
    adapter(tmp_path, "mlx5_3", pci)
    assert [(a.name, a.health) for a in adapters(tmp_path)] == [("mlx5_2", False), ("mlx5_3", False), ("mlx5_10", True)]
    assert adapters(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("0-3,x", ()), ("-1", ())]
)
def test_lists_of_cores_are_read_and_written(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus
    if cpus:
        assert write_cpus(cpus) == text
