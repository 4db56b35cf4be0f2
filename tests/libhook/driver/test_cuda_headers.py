"""The table and cuda_abi.h agree with CUDA's own headers, of every release that we were brought up to."""

from __future__ import annotations

import dataclasses
import warnings

import pytest

from tests.headers import fetch
from tests.headers.compare import differences, table, theirs
from tests.headers.declarations import Declarations, declared

NEWEST_KNOWN = list(fetch.RELEASES)[-1]
CLASSES = {"GATED", "BILLED", "COUNTED", "VIRTUAL", "WATCHED"}


def headers(release: str) -> Declarations:
    if not fetch.have(release):
        pytest.fail(f"the headers of CUDA {release} are not there; `python -m tests.headers.fetch` fetches them")
    return theirs(release)


@pytest.mark.parametrize("release", fetch.RELEASES)
def test_every_symbol_prototype_version_layout_and_value_is_cudas(release: str) -> None:
    official = headers(release)
    assert len(official.functions) > 400
    assert len(official.pointers) > 400  # or what is compared below is nothing
    assert differences(official, current=release == NEWEST_KNOWN) == []


def test_every_row_has_a_class_or_a_reason() -> None:
    rows = table()
    assert len({row.symbol for row in rows}) == len(rows) > 600
    assert all(row.why in CLASSES if row.kind == "HOOK" else len(row.why) > 8 for row in rows)


def test_a_release_newer_than_the_table_is_told_as_a_list() -> None:
    release = fetch.newer_release()
    if release is None:
        return  # none is out
    found = differences(theirs(release))
    if found:
        warnings.warn(f"CUDA {release} is out, and the table does not know:\n" + "\n".join(found), stacklevel=1)


def changed(official: Declarations, **entries: dict[str, str]) -> Declarations:
    return dataclasses.replace(official, **{name: getattr(official, name) | new for name, new in entries.items()})


def test_what_a_new_release_brings_is_named() -> None:
    official = headers(NEWEST_KNOWN)
    brings = changed(
        official,
        functions={
            "cuTeleport": "i4(CUstream*, u8)",
            "cuLaunchKernel_v2": "i4(CUfunction*)",
            "cuMemFree_v2": "i4(u8, u4)",
        },
        pointers={"PFN_cuLaunchKernel_v14000_ptsz": "i4(CUfunction*)", "PFN_cuMemFree_v3020": "i4(u8, u4)"},
        sizes={"CUlaunchConfig": 64},
        enumerators={"CU_STREAM_MEM_OP_BARRIER": 7},
    )
    brings.pointers.pop("PFN_cuEventQuery_v2000")
    assert [line.split(":")[0] for line in differences(brings)] == [
        "cuLaunchKernel_v2",
        "cuTeleport",
        "cuMemFree_v2",
        "cuLaunchKernel",
        "cuMemFree_v2",
        "cuEventQuery",
        "CUlaunchConfig",
        "CU_STREAM_MEM_OP_BARRIER",
    ]


def test_types_are_spelt_by_what_they_are_in_memory(tmp_path) -> None:
    (tmp_path / "x.h").write_text(
        """
        typedef enum { CU_A = 3, CU_B, CU_C = 1 << 4 } CUkind;
        typedef unsigned long long CUpointer_v2; typedef CUpointer_v2 CUpointer;
        typedef struct CUthing_st *CUthing;
        typedef struct CUbox_v1_st { char small; union { long wide; CUkind kinds[3]; }; const void *end; } CUbox_v1;
        typedef CUbox_v1 CUbox;
        typedef CUkind (*PFN_cuX_v9000)(const CUbox *box, CUpointer at, const CUthing *things, const unsigned n);
        #define CU_D ((CUthing)0x2)
        """
    )
    found = declared('#include "x.h"\n', tmp_path)
    assert found.pointers == {"PFN_cuX_v9000": "i4(const CUbox:32*, u8, const CUthing**, u4)"}
    assert found.enumerators == {"CU_A": 3, "CU_B": 4, "CU_C": 16, "CU_D": 2}
    assert found.fields["CUbox"] == {"small": (0, 1), "wide": (8, 8), "kinds": (8, 12), "end": (24, 8)}
