"""The ways in by exported symbols and by dlsym: ours where the driver has the function, and the truth where not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.libhook.hooks.guest import APPS, HERE, HOOK, Build, inside, lines

OURS = "libgemini_hook.so"
DRIVER = "libcuda.so.1"
Fake = Callable[..., Path]


def test_dlsym_on_the_drivers_handle_answers_with_ours(lookup: Path, fake: Fake) -> None:
    out = lines(lookup, "open", "handle:cuCtxCreate_v2", "handle:cuMemAlloc_v2", env=inside(path=fake()))
    assert out == [f"handle:cuCtxCreate_v2: {OURS} cuCtxCreate_v2", f"handle:cuMemAlloc_v2: {OURS} cuMemAlloc_v2"]


def test_names_that_are_left_alone_stay_the_drivers(lookup: Path, fake: Fake) -> None:
    out = lines(lookup, "open", "handle:cuDriverGetVersion", "handle:cuOfTheFuture", env=inside(path=fake()))
    assert out == [
        f"handle:cuDriverGetVersion: {DRIVER} cuDriverGetVersion",
        f"handle:cuOfTheFuture: {DRIVER} cuOfTheFuture",
    ]


def test_a_function_that_the_driver_lacks_is_not_made_up(lookup: Path, fake: Fake) -> None:
    assert lines(lookup, "open", "handle:cuMemMap", env=inside(path=fake())) == ["handle:cuMemMap: none error"]


def test_without_a_driver_nothing_is_found_although_we_export_it(lookup: Path, look: Path) -> None:
    asked = ["default:cuInit", "next:cuInit", "self:cuInit", f"load:{look}", "via:cuInit", "viadefault:cuInit"]
    out = lines(lookup, *asked, env=inside())
    assert out == [f"{ask}: none error" for ask in asked if not ask.startswith("load")]


def test_a_driver_that_was_opened_locally_is_out_of_sight_for_others(lookup: Path, look: Path, fake: Fake) -> None:
    asked = ["open", f"load:{look}", "via:cuInit", "viadefault:cuInit", "default:cuInit"]
    out = lines(lookup, *asked, env=inside(path=fake()))
    assert out == ["via:cuInit: none error", "viadefault:cuInit: none error", "default:cuInit: none error"]


def test_a_program_linked_against_the_driver_finds_ours_by_each_way(build: Build, fake: Fake, look: Path) -> None:
    folder = fake()
    program = build(APPS / "lookup.c", "lookup", "-Wl,--no-as-needed", str(folder / "libcuda.so.1"))
    asked = ["default:cuInit", "next:cuInit", "self:cuInit", "handle:cuInit", "viadefault:cuInit"]
    out = lines(program, "open", f"load:{look}", *asked, "via:cuInit", env=inside(path=folder))
    assert out[:-1] == [f"{ask}: {OURS} cuInit" for ask in asked]
    assert out[-1] == "via:cuInit: none error"  # as without us: nothing comes after a library that was opened


def test_a_library_with_a_driver_of_its_own_finds_ours_by_rtld_next(lookup: Path, shared: Build, fake: Fake) -> None:
    folder = fake()
    look = shared(APPS / "look.c", "liblook.so", "-Wl,--no-as-needed", str(folder / "libcuda.so.1"))
    out = lines(lookup, f"load:{look}", "via:cuInit", "viadefault:cuInit", "via:cuInit", env=inside(path=folder))
    assert out == [f"via:cuInit: {OURS} cuInit", f"viadefault:cuInit: {OURS} cuInit", f"via:cuInit: {OURS} cuInit"]


def test_other_names_keep_their_caller(lookup: Path, look: Path, shared: Build) -> None:
    """RTLD_NEXT from a library is relative to that library, for the first time and for each later one."""
    first = shared(HERE / "marker.c", "libfirst.so", "-DDEFINES")
    out = lines(lookup, f"load:{look}", "next:marker", "via:marker", "next:malloc", "via:malloc", "via:malloc",
                env=inside(HOOK, first))  # fmt: skip
    assert out[0] == "next:marker: libfirst.so marker"
    assert out[1] == "via:marker: none error"  # nothing after liblook.so, which was opened last
    assert out[2].startswith("next:malloc: libc.so.6")
    assert out[3] == out[4]


def test_reopened_driver_is_still_ours(lookup: Path, fake: Fake) -> None:
    asked = ["open", "handle:cuInit", "call:cuMemAlloc_v2", "reopen", "handle:cuInit", "call:cuMemAlloc_v2"]
    out = lines(lookup, *asked, env=inside(path=fake()))
    assert out[:2] == out[2:]
    assert out[0] == f"handle:cuInit: {OURS} cuInit"


def test_calls_reach_the_driver_with_their_result(lookup: Path, fake: Fake) -> None:
    asked = ["open", "call:cuInit", "call:cuCtxSetCurrent", "call:cuCtxSetCurrent", "call:cuCtxCreate_v4"]
    out = lines(lookup, *asked, env=inside(path=fake()))
    assert [line.split()[-1] for line in out] == ["0", "1005", "1005", "1004"]


def test_beside_another_dlsym_interposer_both_have_their_names(lookup: Path, shared: Build, fake: Fake) -> None:
    other = shared(HERE / "marker.c", "libother.so", "-DDLSYM")
    for order in [(HOOK, other), (other, HOOK)]:
        out = lines(lookup, "open", "handle:marker", "handle:cuInit", "next:malloc", "handle:cuDriverGetVersion",
                    env=inside(*order, path=fake()))  # fmt: skip
        assert out[0] == "handle:marker: libother.so marker", order
        assert out[1] == f"handle:cuInit: {OURS} cuInit", order
        assert out[2].startswith("next:malloc: libc.so.6"), order
        assert out[3] == f"handle:cuDriverGetVersion: {DRIVER} cuDriverGetVersion", order


def test_beside_another_interposer_of_the_driver_each_call_goes_once_through_both(
    build: Build, shared: Build, fake: Fake
) -> None:
    folder = fake()
    other = shared(HERE / "marker.c", "libother.so", "-DDRIVER")
    program = build(HERE / "calls_once.c", "calls_once", "-Wl,--no-as-needed", str(folder / "libcuda.so.1"))
    for order in [(HOOK, other), (other, HOOK)]:
        assert lines(program, env=inside(*order, path=folder)) == ["1005", "1"], order
