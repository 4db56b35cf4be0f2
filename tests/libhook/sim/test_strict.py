"""A strict card refuses calls of a thread without a current context wherever CUDA's reference allows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from ctypes import CFUNCTYPE, byref, c_int, c_uint64, c_void_p

import pytest

from tests.headers import fetch
from tests.headers.compare import ROOT, table
from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import Cuda

INVALID_CONTEXT = 201
STRICT = re.findall(r"^STRICT\((\w+)\)$", (ROOT / "libhook/sim/driver/strict_calls.h").read_text(), re.MULTILINE)
# They make or change what is current, name their context, or ask about devices before there is one.
WITHOUT_ONE = re.compile(
    r"cu(Device|GreenCtx|CtxFromGreenCtx|CtxCreate|CtxDestroy|CtxPush|CtxPop|CtxSetCurrent|CtxGetApiVersion|CtxGetId"
    r"|CtxGetDevice_v2|CtxSynchronize_v2)"
)


def may_refuse() -> set[str]:
    """Names in whose list of answers the reference has INVALID_CONTEXT, in any release."""
    found = set()
    for release in fetch.RELEASES:
        text = (fetch.cache() / release / "cuda.h").read_text()
        for comment, name in re.findall(r"/\*\*(.*?)\*/\s*CUresult CUDAAPI (\w+)", text, re.DOTALL):
            answers = comment.rpartition("\\return")[2].partition("\\note")[0]
            if "CUDA_ERROR_INVALID_CONTEXT" in answers:
                found.add(name)
    return found


def test_they_are_those_of_cudas_reference() -> None:
    if not all(map(fetch.have, fetch.RELEASES)):
        pytest.fail("CUDA's headers are not there; `python -m tests.headers.fetch` fetches them")
    names = may_refuse()
    assert len(names) > 150
    rows = [row for row in table() if row.kind != "KNOWN" and not WITHOUT_ONE.match(row.symbol)]
    assert [row.symbol for row in rows if row.name in names | {"cuEventQuery"}] == STRICT


def without_a_context() -> list[str]:
    cuda = Cuda()
    cuda.cuCtxSetCurrent(None)
    return [name for name in STRICT if cuda.code(name, *[0] * 11) != INVALID_CONTEXT]


def test_each_is_refused_to_a_thread_without_a_context(machine: Machine) -> None:
    assert machine.run(without_a_context) == []


def query(cuda: Cuda, event: c_void_p) -> list[int]:
    """The answers to cuEventQuery, by its exported name and by cuGetProcAddress."""
    address, status = c_void_p(), c_int()
    cuda.cuGetProcAddress_v2(b"cuEventQuery", byref(address), 13000, c_uint64(0), byref(status))
    assert address.value
    return [cuda.code("cuEventQuery", event), int(CFUNCTYPE(c_int, c_void_p)(address.value)(event))]


def with_and_without() -> list[int]:
    cuda = Cuda()
    event, stream = cuda.event(), cuda.stream(1)
    cuda.cuEventRecord(event, stream)
    cuda.cuStreamSynchronize(stream)
    answers = query(cuda, event)
    cuda.cuCtxSetCurrent(None)
    return answers + query(cuda, event)


@pytest.mark.parametrize(
    ("options", "refused"), [("", INVALID_CONTEXT), ("strict=on", INVALID_CONTEXT), ("strict=off", 0)]
)
def test_a_card_is_strict_unless_it_is_said_not_to_be(
    make_machine: Callable[[str], Machine], options: str, refused: int
) -> None:
    assert make_machine(options).run(with_and_without) == [0, 0, refused, refused]
