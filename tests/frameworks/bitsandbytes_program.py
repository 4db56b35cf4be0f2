"""What bitsandbytes does: optimizers with states of 8 bits, states in managed memory, weights of 4 bits."""

from __future__ import annotations

import sys

import bitsandbytes
import torch
from bitsandbytes import functional
from cases import case, main
from torch import nn

CARD = torch.device("cuda")


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(CARD)


def trained_by(kind: str) -> tuple[str, list[str]]:
    net = model()
    optimizer = getattr(bitsandbytes.optim, kind)(net.parameters(), lr=1e-3)
    for _ in range(3):
        net(torch.ones(8, 256, device=CARD)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    state = optimizer.state[net[0].weight]
    return kind, sorted({str(v.dtype) for v in state.values() if isinstance(v, torch.Tensor)})


@case
def optimizers_of_8_bits() -> object:
    return [trained_by(kind) for kind in ("Adam8bit", "AdamW8bit", "Lion8bit", "Adagrad8bit")]


@case
def optimizers_of_32_bits() -> object:
    return [trained_by(kind) for kind in ("Adam32bit", "AdEMAMix")]


@case
def paged_optimizers() -> object:
    return [trained_by(kind) for kind in ("PagedAdamW8bit", "PagedAdamW32bit")]


@case
def four_bits() -> object:
    packed, state = functional.quantize_4bit(torch.ones(256, 256, device=CARD), quant_type="nf4")
    back = functional.dequantize_4bit(packed, state)
    torch.cuda.synchronize()
    return tuple(packed.shape), str(packed.dtype), tuple(back.shape)


@case
def a_layer_of_4_bits() -> object:
    layer = bitsandbytes.nn.Linear4bit(256, 512, compute_dtype=torch.bfloat16, quant_type="nf4").to(CARD)
    out = layer(torch.ones(8, 256, device=CARD, dtype=torch.bfloat16))
    torch.cuda.synchronize()
    return tuple(out.shape), str(layer.weight.dtype)


if __name__ == "__main__":
    sys.exit(main())
