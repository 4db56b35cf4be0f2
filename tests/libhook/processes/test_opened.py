"""Libraries that the loader binds past a preloaded one: what they do on the card is gated and counted all the same.

Real processes on the simulated card, as tenants of a real daemon, whose record says who came.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.bed import LIB, Bed, wait_for
from tests.libhook.processes.conftest import APPS, Compile
from tests.libhook.processes.test_processes import Tenant
from tests.libhook.processes.test_processes import tenant as tenant

DRIVER = LIB / "sim" / "libcuda.so.1"
LIMIT_MIB = 1024  # of Tenant
BIND = {"lazily": "-Wl,-z,lazy", "at once": "-Wl,-z,now,-z,relro"}


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed(sim="memory=8GiB") as bed:
        yield bed


Plugin = Callable[..., Path]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    """A plug-in compiled with these flags, in a folder of its own."""

    def build(*flags: str) -> Path:
        made = tmp_path_factory.mktemp("plugin") / "libplugin.so"
        source = str(APPS / "plugin.c")
        subprocess.run(
            ["gcc", "-std=gnu11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, source, *flags, "-ldl"],
            check=True,
        )
        return made

    return build


def works(tenant: Tenant, program: Path, way: str, library: Path | str, driver: Path | str, **env: str) -> None:
    """It works, as a client of its tenant, which it is shown the limit of."""
    status, lines, err = tenant.run(program, way, library, driver, env=env)
    assert (status, err) == (0, "")
    assert lines[1:] == [f"sees {LIMIT_MIB} MiB"]
    tenant.until_joined(1)


@pytest.mark.parametrize("bound", BIND)
@pytest.mark.parametrize("linked", [False, True], ids=["looks the driver up", "linked"])
@pytest.mark.parametrize("way", ["plain", "lazy", "deep", "deeplazy", "space"])
def test_a_plug_in_is_gated_however_it_is_opened(
    tenant: Tenant, compiled: Compile, plugin: Plugin, way: str, linked: bool, bound: str
) -> None:
    flags = ["-DLINKED", "-Wl,--no-as-needed", str(DRIVER)] if linked else []
    works(tenant, compiled("plugins.c"), way, plugin(BIND[bound], *flags), "libcuda.so.1")


@pytest.mark.parametrize("way", ["deep", "space"])
def test_a_plug_in_that_opens_the_name_without_a_version_is_gated(
    tenant: Tenant, compiled: Compile, plugin: Plugin, way: str
) -> None:
    works(tenant, compiled("plugins.c"), way, plugin(), "libcuda.so")


def test_what_a_plug_in_brings_along_is_gated_too(
    tenant: Tenant, compiled: Compile, plugin: Plugin, tmp_path: Path
) -> None:
    """Nine libraries deep: more than are looked at in one go."""
    below: Path | None = None
    inner = plugin()
    for number in range(9):
        made = tmp_path / f"lib{number}.so"
        source = tmp_path / f"{number}.c"
        source.write_text("int nothing(void); int nothing(void) { return 0; }\n")
        needs = [str(below)] if below else [str(inner)]
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source, "-Wl,--no-as-needed", *needs], check=True)
        below = made
    assert below is not None
    for way in ("deep", "space"):
        status, lines, err = tenant.run(compiled("plugins.c"), way, below, "libcuda.so.1")
        assert (status, err, lines[1:]) == (0, "", [f"sees {LIMIT_MIB} MiB"])
    tenant.until_joined(2)


def test_a_plug_in_is_found_in_the_folders_of_who_opens_it(tenant: Tenant, compiled: Compile, plugin: Plugin) -> None:
    """By DT_RUNPATH of the program, which is the program's alone."""
    made = plugin()
    program = compiled("plugins.c", f"-Wl,-rpath,{made.parent}", "-Wl,--enable-new-dtags")
    works(tenant, program, "deep", made.name, "libcuda.so.1")


def test_a_name_with_the_folder_of_who_opens_it_means_that_one(
    tenant: Tenant, compiled: Compile, plugin: Plugin
) -> None:
    program = compiled("plugins.c")
    shutil.copy(plugin(), program.parent / "beside.so")
    status, _, err = tenant.run(program, "deep", "$ORIGIN/beside.so", "libcuda.so.1")
    assert (status, err) == (0, "")


def test_the_driver_of_the_loaders_cache_is_gated(
    tenant: Tenant, compiled: Compile, plugin: Plugin, tmp_path: Path
) -> None:
    folders, cache = tmp_path / "folders", tmp_path / "cache"
    folders.write_text(f"{LIB / 'sim'}\n")
    subprocess.run(["/sbin/ldconfig", "-X", "-f", folders, "-C", cache], check=True)
    works(tenant, compiled("plugins.c"), "cache", plugin(), cache)


def test_where_the_plug_in_is_not_the_program_hears_it_as_ever(tenant: Tenant, compiled: Compile) -> None:
    for way in ("deep", "space"):
        status, _, err = tenant.run(compiled("plugins.c"), way, "/no/such.so", "libcuda.so.1")
        assert status == 1
        assert "/no/such.so: cannot open shared object file" in err


def test_a_plug_in_that_looked_the_driver_up_as_it_was_loaded_is_the_drivers_and_seen(
    tenant: Tenant, compiled: Compile, plugin: Plugin
) -> None:
    """docs/guarantees.md names it: its constructors run before its words can be led elsewhere."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [compiled("plugins.c"), "deep", plugin("-DAT_LOAD"), ""]
    process = tenant.bed.spawn(tenant.name, command, **pipes)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(2)]
    assert said[1] == "sees 8192 MiB\n"
    begin = time.monotonic()
    wait_for(lambda: tenant.state()["outside"] == [process.pid], 60, "word of the process")
    assert time.monotonic() - begin < 10  # it is looked for once a second
    assert tenant.state()["enforced"] == "outside"
    process.communicate("")
