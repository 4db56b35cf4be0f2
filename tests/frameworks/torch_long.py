"""A PyTorch program that goes on until its standard input ends, for tests in which something beside it dies.

    python torch_long.py steps       trains; at each line that it hears it says when it has taken 5 steps more
    python torch_long.py backward    never gets out of its first backward pass, in which it launches on and on
    python torch_long.py capture     stands in a capture until it hears a line, then ends it; replays at the next

It holds $HOLD bytes, and waits for them where they are not to be had yet.
"""

from __future__ import annotations

import os
import select
import sys

import torch
from torch import nn

torch.backends.cuda.enable_cudnn_sdp(False)  # the stand-in for cuDNN refuses it
CARD = torch.device("cuda")


def say(text: str) -> None:
    print(text, flush=True)


def heard() -> bool | None:
    """Whether there is a line; None at the end of the input."""
    if not select.select([0], [], [], 0)[0]:
        return False
    return bool(os.read(0, 1)) or None


def hold(size: int) -> torch.Tensor:
    waits = False
    while True:
        try:
            return torch.empty(size, dtype=torch.uint8, device=CARD)
        except torch.OutOfMemoryError:
            if heard() is None:
                raise
            if not waits:
                say("no room")
            waits = True


def layers() -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Linear(128, 10)).to(CARD)


def steps(net: nn.Module, data: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def take(count: int) -> None:
        for _ in range(count):
            net(data).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()

    take(1)
    say("ready")
    while (line := heard()) is not None:
        take(5 if line else 1)
        if line:
            say("5 steps more")


def backward(net: nn.Module, data: torch.Tensor) -> None:
    def stay(gradient: torch.Tensor) -> None:
        say("in backward")
        while True:  # by the thread that autograd has for this card
            gradient.mul_(1.0)

    between = net[0](data)
    between.register_hook(stay)
    net[1](between).sum().backward()


def capture(net: nn.Module, data: torch.Tensor) -> None:
    given, got, graph = torch.zeros(1000, device=CARD), torch.zeros(1000, device=CARD), torch.cuda.CUDAGraph()
    net(data).sum().backward()  # what a first use allocates
    with torch.cuda.graph(graph):
        net(data).sum().backward()
        say("capturing")
        os.read(0, 1)
        net(data).sum().backward()
        got.copy_(given)
    say("captured")
    os.read(0, 1)
    given.copy_(torch.full((1000,), 7.0))
    graph.replay()
    say(f"replayed {sorted(set(got.cpu().tolist()))}")


def main() -> int:
    kept = hold(int(os.environ.get("HOLD", "1")))
    {"steps": steps, "backward": backward, "capture": capture}[sys.argv[1]](
        layers(), torch.ones(4, 16, 128, device=CARD)
    )
    say(f"held {kept.numel()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
