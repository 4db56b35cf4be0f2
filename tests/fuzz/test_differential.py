"""A short game of the differential fuzzer, and proof that it sees a library that answers otherwise or counts wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.bed import LIB, ROOT, Bed
from bench.differential import MEMORY, TENANT, build, differences

CALLS = 20_000


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed() as bed:
        bed.tenant(TENANT, 1.0, 1.0, memory=MEMORY)
        yield bed


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("play"))


@pytest.mark.parametrize(("seed", "threads"), [(1, 1), (2, 4), (7, 1)])
def test_random_calls_are_answered_alike_with_and_without_the_library(
    bed: Bed, player: Path, seed: int, threads: int
) -> None:
    count, difference = differences(bed, player, seed, CALLS, threads)
    assert difference is None
    assert count >= CALLS


LIAR = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include "libhook/driver/cuda_abi.h"
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    CUresult (*next)(CUdeviceptr, CUstream) = (CUresult (*)(CUdeviceptr, CUstream))dlsym(RTLD_NEXT, "cuMemFreeAsync");
    CUresult result = next(pointer, stream);
    return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
}
"""


def test_one_wrong_answer_in_thousands_is_seen(
    bed: Bed, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, liar = tmp_path / "liar.c", tmp_path / "libliar.so"
    source.write_text(LIAR)
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{ROOT}", "-o", str(liar), str(source)], check=True)
    honest = bed.environment

    def dishonest(tenant: str | None = None, hooked: bool = True) -> dict[str, str]:
        env = honest(tenant, hooked)
        return env | {"LD_PRELOAD": f"{liar}:{LIB / 'libgemini_hook.so'}"} if hooked else env

    monkeypatch.setattr(bed, "environment", dishonest)
    _, difference = differences(bed, player, 1, CALLS, 1)
    assert difference is not None
    assert "cuMemFreeAsync" in difference["first"]
