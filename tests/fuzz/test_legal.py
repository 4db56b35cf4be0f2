"""A short game of programs that CUDA allows, and proof that it sees a library that does otherwise, or that hangs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import LIB, ROOT, Bed
from tests.fuzz.legal import build, difference, others

STEPS = 400
LIAR = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
#include "libhook/driver/cuda_abi.h"
static int calls;
"""
FORGETS = r"""
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    CUresult (*next)(CUdeviceptr, unsigned char, size_t, CUstream) =
        (CUresult (*)(CUdeviceptr, unsigned char, size_t, CUstream))dlsym(RTLD_NEXT, "cuMemsetD8Async");
    return ++calls % 8 ? next(to, value, bytes, stream) : CUDA_SUCCESS;
}
"""
HANGS = r"""
CUresult cuEventRecord(CUevent event, CUstream stream) {
    CUresult (*next)(CUevent, CUstream) = (CUresult (*)(CUevent, CUstream))dlsym(RTLD_NEXT, "cuEventRecord");
    while (++calls > 20)
        pause();
    return next(event, stream);
}
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with others("busy", "memory=8GiB", (0.5, 1.0)) as bed:
        yield bed


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("legal"))


@pytest.mark.parametrize(("seed", "threads"), [(1, 1), (2, 3), (3, 1)])
def test_what_cuda_allows_comes_to_the_same_end_with_and_without_the_library(
    bed: Bed, player: Path, seed: int, threads: int
) -> None:
    assert difference(bed, player, seed, STEPS, threads) is None


def led_by(bed: Bed, monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """What is played under the library has this one before it."""
    (folder / "liar.c").write_text(LIAR + source)
    liar, honest = folder / "libliar.so", bed.environment
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{ROOT}", "-o", str(liar), str(folder / "liar.c")], check=True)

    def dishonest(tenant: str | None = None, hooked: bool = True) -> dict[str, str]:
        env = honest(tenant, hooked)
        return env | {"LD_PRELOAD": f"{liar}:{LIB / 'libgemini_hook.so'}"} if hooked else env

    monkeypatch.setattr(bed, "environment", dishonest)


def test_a_library_that_forgets_work_is_seen(
    bed: Bed, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    led_by(bed, monkeypatch, tmp_path, FORGETS)
    pair = difference(bed, player, 1, STEPS, 1)
    assert pair is not None
    assert pair[0].status == 0
    assert "memory of lane" in pair[1].said or "a copy to the host" in pair[1].said or "saw something" in pair[1].said


def test_a_library_that_hangs_is_seen(bed: Bed, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    led_by(bed, monkeypatch, tmp_path, HANGS)
    pair = difference(bed, player, 1, STEPS, 1, patience_s=5)
    assert pair is not None
    assert pair[0].status == 0
    assert pair[1].hung
