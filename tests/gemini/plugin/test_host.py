"""What the plugin does to its node's files: a library that is replaced whole, and cpusets of both cgroup versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemini.kube import names
from gemini.plugin.host import CannotBind, Host, install

UID = "0c7f2f3e-1111-2222-3333-444455556666"


def make(root: Path, *folders: str, cpus: str = "0-7") -> Path:
    for folder in folders:
        path = root / folder
        path.mkdir(parents=True, exist_ok=True)
        for one in (path, *path.parents):
            if one.is_relative_to(root):
                (one / "cpuset.cpus").write_text(cpus)
    return root / folders[0]


@pytest.mark.parametrize(
    "path",
    [
        f"cpuset/kubepods/besteffort/pod{UID}",
        f"cpuset/root/kubepods/pod{UID}",
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
    ],
    ids=["version-1", "version-1-below-a-root", "version-2-by-systemd"],
)
def test_a_pods_cgroup_is_found_and_restricted_with_all_below_it(tmp_path: Path, path: str) -> None:
    group = make(tmp_path, path, f"{path}/container")
    host = Host(cgroups=tmp_path)
    assert host.pod_cgroup(UID) == group
    assert host.allowed(group) == set(range(8))
    assert host.bound(group) == set()
    host.bind(group, {2, 3})
    assert host.bound(group) == {2, 3}
    assert [(one / "cpuset.cpus").read_text() for one in (group, group / "container")] == ["2-3", "2-3"]


def test_a_pod_without_a_cgroup_is_told_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(CannotBind, match="mount the host's /sys/fs/cgroup"):
        Host(cgroups=tmp_path).pod_cgroup(UID)


def test_a_cgroup_that_cannot_be_written_is_told_with_the_mend(tmp_path: Path) -> None:
    group = make(tmp_path, f"cpuset/kubepods/pod{UID}")
    (group / "cpuset.cpus").unlink()
    (group / "cpuset.cpus").mkdir()
    with pytest.raises(CannotBind, match="the plugin must be root"):
        Host(cgroups=tmp_path).bind(group, {0})


def test_cores_of_a_numa_node_are_read_and_none_where_it_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1/cpulist").write_text("8-11\n")
    host = Host(nodes=tmp_path)
    assert host.cores_of_node(1) == {8, 9, 10, 11}
    assert host.cores_of_node(7) == set()


def test_a_new_library_replaces_the_file_and_containers_keep_the_old_one(tmp_path: Path) -> None:
    library, folder = tmp_path / "libgemini_hook.so", tmp_path / "installed"
    library.write_bytes(b"old")
    path, preload, sim = install(library, folder, preload=True, sim=None)
    assert (Path(path).read_bytes(), sim) == (b"old", None)
    assert preload is not None
    assert Path(preload).read_text() == f"{names.LIBRARY_PATH}\n"
    with open(path, "rb") as mounted:
        library.write_bytes(b"new")
        install(library, folder, preload=True, sim=None)
        assert mounted.read() == b"old"
    assert Path(path).read_bytes() == b"new"
    inode = Path(path).stat().st_ino
    install(library, folder, preload=True, sim=None)
    assert Path(path).stat().st_ino == inode  # the same again is left alone


def test_the_simulated_driver_is_put_beside_it(tmp_path: Path) -> None:
    library, drivers = tmp_path / "libgemini_hook.so", tmp_path / "drivers"
    library.write_bytes(b"x")
    drivers.mkdir()
    (drivers / "libcuda.so.1").write_bytes(b"sim")
    _, _, sim = install(library, tmp_path / "installed", preload=False, sim=drivers)
    assert sim is not None
    assert (Path(sim) / "libcuda.so.1").read_bytes() == b"sim"
