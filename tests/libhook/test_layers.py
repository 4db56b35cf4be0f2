"""The C folders include each other downwards only, as docs/architecture.md draws them."""

import re

import pytest

from libhook.build import ROOT

# What a folder may include besides itself.
BELOW = {
    "core": set(),
    "driver": set(),
    "runtime": {"core", "driver"},
    "hooks": {"core", "driver", "runtime"},
    "carrier": {"core"},
    "placement": set(),
    "probe": set(),
    "sim/model": set(),
    "sim/driver": {"driver", "sim/model"},
    "sim/nvml": {"driver", "sim/model"},
    "sim/runtime": {"driver"},
    "sim/compute": {"driver", "sim/model"},
    "sim/cublas": {"driver", "sim/model", "sim/compute"},
    "sim/cublaslt": {"driver", "sim/model", "sim/compute", "sim/cublas"},
    "sim/cudnn": {"driver", "sim/model", "sim/compute"},
    "sim/load": set(),
    "sim/observer": {"sim/model"},
    "sim/unversioned": {"driver"},
}
INCLUDE = re.compile(r'^#include "libhook/(.+)/[^/]+"', re.M)


def test_every_c_folder_has_its_place() -> None:
    folders = {str(path.parent.relative_to(ROOT)) for path in ROOT.rglob("*.[ch]")}
    assert folders - {"sim"} == set(BELOW)  # sim itself has the floor that all are compiled with


@pytest.mark.parametrize("folder", BELOW)
def test_a_folder_includes_only_what_is_below_it(folder: str) -> None:
    included = {
        (path.name, found)
        for path in sorted((ROOT / folder).glob("*.[chS]"))
        for found in INCLUDE.findall(path.read_text())
    }
    assert {(name, found) for name, found in included if found not in BELOW[folder] | {folder}} == set()
