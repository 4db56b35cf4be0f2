"""The way in by cuGetProcAddress: the driver's word on what exists, and our function of exactly the same ABI."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.libhook.hooks.guest import inside, lines

Fake = Callable[..., Path]
PER_THREAD = 2

# name asked, version, flags -> the function of the table that has this ABI
ABI = [
    ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11039, 0, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12040, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
    ("cuCtxCreate", 13020, PER_THREAD, "cuCtxCreate_v4"),
    ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2"),
    ("cuMemFreeAsync", 11020, 0, "cuMemFreeAsync"),
    ("cuMemFreeAsync", 11020, 1, "cuMemFreeAsync"),
    ("cuMemFreeAsync", 12000, PER_THREAD, "cuMemFreeAsync_ptsz"),
]


DRIVERS = {
    "answers with what it exports": ("-Wl,-Bsymbolic",),
    "answers with inner functions": ("-DUNEXPORTED",),
    "answers with whatever stands first in the process": (),
}


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_each_version_and_flavour_has_its_own_entry(lookup: Path, fake: Fake, driver: tuple[str, ...]) -> None:
    asked = [f"proc:{name}:{version}:{flags}" for name, version, flags, _ in ABI]
    out = lines(lookup, "open", *asked, env=inside(path=fake(*driver)))
    assert out == [
        f"[0 0] {ask}: libgemini_hook.so {symbol}" for ask, (_, _, _, symbol) in zip(asked, ABI, strict=True)
    ]


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_driver_that_answers_to_exported_names_leads_to_ours_too(
    lookup: Path, fake: Fake, driver: tuple[str, ...]
) -> None:
    """The reference speaks of base names only; what a driver says to others must not lead past the gate."""
    symbols = ["cuMemAlloc_v2", "cuMemFreeAsync_ptsz", "cuGetProcAddress_v2"]
    asked = [f"proc:{symbol}:12000:{flags}" for symbol in symbols for flags in (0, PER_THREAD)]
    out = lines(lookup, "open", *asked, env=inside(path=fake("-DSUFFIXES", *driver)))
    assert out == [f"[0 0] {ask}: libgemini_hook.so {ask.split(':')[1]}" for ask in asked]
    asked = ["proc:cuMemcpyDtoD_v2:12000:0", f"proc:cuMemcpyDtoD_v2:12000:{PER_THREAD}"]
    out = lines(lookup, "open", *asked, env=inside(path=fake("-DSUFFIXES", *driver)))
    assert [line.split()[-1] for line in out] == ["cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds"]


def test_the_first_version_of_the_resolver_answers_alike(lookup: Path, fake: Fake) -> None:
    asked = ["proc1:cuCtxCreate:12000:0", "proc1:cuMemFreeAsync:12000:2", "proc1:cuMemFreeAsync:11010:0"]
    out = lines(lookup, "open", *asked, env=inside(path=fake()))
    assert out == [
        "[0 -1] proc1:cuCtxCreate:12000:0: libgemini_hook.so cuCtxCreate_v3",
        "[0 -1] proc1:cuMemFreeAsync:12000:2: libgemini_hook.so cuMemFreeAsync_ptsz",
        "[500 -1] proc1:cuMemFreeAsync:11010:0: none",
    ]


def test_the_resolver_itself_is_resolved_to_ours(lookup: Path, fake: Fake) -> None:
    out = lines(lookup, "open", "proc:cuGetProcAddress:12000:0", env=inside(path=fake()))
    assert out == ["[0 0] proc:cuGetProcAddress:12000:0: libgemini_hook.so cuGetProcAddress_v2"]


def test_status_and_result_stay_the_drivers(lookup: Path, fake: Fake) -> None:
    asked = ["proc:cuNoSuchThing:12000:0", "proc:cuMemMap:12000:0", "proc:cuMemAlloc:99999:0", "proc:-:0:0",
             "proc:empty:0:0", "proc:cuMemAlloc:12000:8", "proc:cuMemAlloc:12000:4"]  # fmt: skip
    expected = [
        "[0 1] proc:cuNoSuchThing:12000:0: none",
        "[0 1] proc:cuMemMap:12000:0: none",  # this driver has none, though we do
        "[1 -1] proc:cuMemAlloc:99999:0: none",
        "[1 -1] proc:-:0:0: none",
        "[0 1] proc:empty:0:0: none",
        "[0 -1] proc:cuMemAlloc:12000:8: libgemini_hook.so cuMemAlloc_v2",  # no place for the status
        "[1 0] proc:cuMemAlloc:12000:4: libgemini_hook.so cuMemAlloc_v2",  # then again with no place for the answer
    ]
    assert lines(lookup, "open", *asked, env=inside(path=fake())) == expected


def test_names_that_are_left_alone_or_unknown_stay_the_drivers(lookup: Path, fake: Fake) -> None:
    asked = ["proc:cuDriverGetVersion:12000:0", "proc:cuOfTheFuture:14000:0"]
    out = lines(lookup, "open", *asked, env=inside(path=fake()))
    assert [line.split(": ")[1] for line in out] == ["libcuda.so.1 cuDriverGetVersion", "libcuda.so.1 cuOfTheFuture"]


def test_an_abi_newer_than_the_table_is_handed_out_as_it_is_and_said_aloud(lookup: Path, fake: Fake) -> None:
    asked = ["proc:cuMemAlloc:13000:0", "proc:cuMemAlloc:14000:0", "proc:cuCtxCreate:14000:0"]
    done = subprocess.run(
        [lookup, "open", *asked], env=inside(path=fake("-DNEWER")), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == [
        "[0 0] proc:cuMemAlloc:13000:0: libgemini_hook.so cuMemAlloc_v2",
        "[0 0] proc:cuMemAlloc:14000:0: libcuda.so.1 cuMemAlloc_v3",
        "[0 0] proc:cuCtxCreate:14000:0: libgemini_hook.so cuCtxCreate_v4",
    ]
    assert done.stderr.startswith("gemini: ")
    assert "cuMemAlloc" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_driver_without_a_resolver_works_by_its_symbols(lookup: Path, fake: Fake) -> None:
    asked = ["open", "handle:cuGetProcAddress", "handle:cuGetProcAddress_v2", "handle:cuCtxCreate_v2", "call:cuInit"]
    out = lines(lookup, *asked, env=inside(path=fake("-DOLD")))
    assert out == [
        "handle:cuGetProcAddress: none error",
        "handle:cuGetProcAddress_v2: none error",
        "handle:cuCtxCreate_v2: libgemini_hook.so cuCtxCreate_v2",
        "call:cuInit: 0",
    ]
