"""What kernels do that are written in Triton, which compiles, loads and launches them by the driver itself."""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl
from cases import case, main

CARD = torch.device("cuda")
SIZE = 100_000


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.autotune([triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((128, 4), (512, 8))], ["count"])
@triton.jit
def tuned(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < count) * 2, mask=at < count)


@triton.jit
def product(a, b, out, WIDTH: tl.constexpr):
    rows, columns = tl.arange(0, WIDTH)[:, None], tl.arange(0, WIDTH)[None, :]
    at = rows * WIDTH + columns
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def vector() -> torch.Tensor:
    return torch.ones(SIZE, device=CARD)


def grid(said: dict[str, int]) -> tuple[int]:
    return (triton.cdiv(SIZE, said["BLOCK"]),)


@case
def a_kernel() -> object:
    made = add[grid](vector(), vector(), vector(), SIZE, BLOCK=1024)
    torch.cuda.synchronize()
    return made.metadata.name, made.metadata.num_warps, sorted(made.asm)


@case
def a_product_with_shared_memory() -> object:
    a, b, out = (torch.ones(64, 64, device=CARD, dtype=torch.float16) for _ in range(3))
    made = product[(1,)](a, b, out, WIDTH=64)
    torch.cuda.synchronize()
    return made.metadata.name, made.metadata.shared > 0


@case
def one_that_is_tuned() -> object:
    tuned[grid](vector(), vector(), SIZE)
    torch.cuda.synchronize()
    return tuned.best_config.kwargs["BLOCK"] in (128, 512), len(tuned.cache)


@case
def in_a_graph_and_streams() -> object:
    x, y, out, graph = vector(), vector(), vector(), torch.cuda.CUDAGraph()
    add[grid](x, y, out, SIZE, BLOCK=1024)
    with torch.cuda.graph(graph):
        add[grid](x, y, out, SIZE, BLOCK=1024)
    graph.replay()
    for _ in range(4):
        with torch.cuda.stream(torch.cuda.Stream()):
            add[grid](x, y, out, SIZE, BLOCK=1024)
    torch.cuda.synchronize()
    return tuple(out.shape)


if __name__ == "__main__":
    sys.exit(main())
