"""A tenant written with tinygrad: `python tinygrad_program.py SECONDS`, prints JSON.

Its CUDA backend opens libcuda by ctypes, compiles with NVRTC, and replays a training step as a graph (TinyJit). On the
simulated driver no kernel computes: the loss means nothing, but each call, copy and launch is made.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ |= {"DEV": "CUDA", "TRAINING": "1"}  # read at the import

from tinygrad import Device, Tensor, TinyJit
from tinygrad.nn import Linear
from tinygrad.nn.optim import SGD
from tinygrad.nn.state import get_parameters


class Model:
    def __init__(self) -> None:
        self.first, self.second = Linear(64, 128), Linear(128, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def main(seconds: float) -> dict[str, Any]:
    model = Model()
    optimizer = SGD(get_parameters(model), lr=0.01)

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    x = Tensor([[float(i % 7)] * 64 for i in range(32)]).realize()
    y = Tensor([i % 10 for i in range(32)]).realize()
    steps, stop = 0, float("inf")
    while time.monotonic() < stop:
        loss = step(x, y)
        steps += 1
        if steps == 4:  # compiled, captured, and replayed once
            stop = time.monotonic() + seconds
        if steps % 20 == 0:
            loss.item()
    return {"steps": steps, "device": Device.DEFAULT, "loss": loss.item(), "back": x.tolist()[31][0]}


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[1]))))
