"""PyTorch programs for torch_pairs.py: ordinary ones, which know nothing of Gemini. They need PyTorch alone.

    python torch_programs.py train|serve [--size SIZE] [--batch N] [--tokens N] [--period-ms MS]

`train` takes steps of GPT-2's training in bfloat16 (forward, backward, fused AdamW) and looks at each loss. `serve`
answers requests that come by a fixed seed, on average one each period: it writes 8 tokens one after another, and looks
at each.

Each says "ready" when it is warm, works from the line "go" to the line "stop" on its standard input, and then prints
one JSON object. Its `done` is a list with (begin_ns, end_ns) of each step or request by the monotonic clock, where a
request begins when it came. Its `cpu_ns` is the processor's time that all threads of the process took meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Size(NamedTuple):
    layers: int
    heads: int
    width: int


SIZES = {"tiny": Size(4, 4, 256), "small": Size(6, 8, 512), "gpt2": Size(12, 12, 768)}
VOCABULARY = 50304
WARM_UP = 6
ANSWER_TOKENS = 8
PROMPT_TOKENS = 64


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.before, self.between = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.between(x)), approximate="tanh"))


class Gpt(nn.Module):  # type: ignore[misc]
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, size.width), nn.Embedding(1024, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.after, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.after(self.blocks(x)))


class Turns:
    """What the standard input says, heard by a thread of its own: "go" and "stop"."""

    def __init__(self) -> None:
        self.going = threading.Event()
        self.over = threading.Event()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        for line in sys.stdin:
            if line.strip() == "go":
                self.going.set()
            else:
                self.going.clear()
        self.over.set()
        self.going.set()

    def each(self, work: Callable[[Callable[[], bool]], list[tuple[int, int]]]) -> None:
        print("ready", flush=True)
        while True:
            self.going.wait()
            if self.over.is_set():
                return
            before = time.process_time_ns()
            done = work(self.going.is_set)
            print(json.dumps({"done": done, "cpu_ns": time.process_time_ns() - before}), flush=True)


def train(args: argparse.Namespace) -> Callable[[Callable[[], bool]], list[tuple[int, int]]]:
    model = Gpt(SIZES[args.size]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(VOCABULARY, (args.batch, args.tokens + 1)).cuda()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.view(-1, VOCABULARY), ids[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        loss.item()

    def work(going: Callable[[], bool]) -> list[tuple[int, int]]:
        done: list[tuple[int, int]] = []
        begin = time.monotonic_ns()
        while going():
            step()
            done.append((begin, begin := time.monotonic_ns()))
        return done

    for _ in range(WARM_UP):
        step()
    return work


def serve(args: argparse.Namespace) -> Callable[[Callable[[], bool]], list[tuple[int, int]]]:
    model = Gpt(SIZES[args.size]).cuda().to(torch.bfloat16).eval()
    prompt = torch.randint(VOCABULARY, (args.batch, PROMPT_TOKENS)).cuda()

    def answer() -> None:
        with torch.inference_mode():
            for _ in range(ANSWER_TOKENS):
                model(prompt)[:, -1].argmax(dim=-1).cpu()

    def work(going: Callable[[], bool]) -> list[tuple[int, int]]:
        done: list[tuple[int, int]] = []
        coming = random.Random(1)
        came = time.monotonic_ns()
        while going():
            came += int(coming.expovariate(1 / (args.period_ms * 1e6)))
            time.sleep(max(0, came - time.monotonic_ns()) / 1e9)
            answer()
            done.append((came, time.monotonic_ns()))
        return done

    for _ in range(WARM_UP):
        answer()
    return work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "serve"))
    parser.add_argument("--size", choices=sorted(SIZES), default="gpt2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--period-ms", type=float, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cuda.enable_cudnn_sdp(False)  # the stand-in for cuDNN refuses it
    Turns().each({"train": train, "serve": serve}[args.what](args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
