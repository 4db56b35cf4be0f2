"""Workers of torch.multiprocessing within a share of the Python API, which bounds what they may allocate."""

from __future__ import annotations

import os
import sys
from typing import Any

sys.path.append(os.environ["OURS"])  # what Gemini needs, behind what PyTorch has

import gemini


def work(number: int, answers: Any) -> None:
    import torch

    mine = gemini.current()
    kept = torch.zeros(16 << 20, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
        said = "took more than its share"
    except torch.cuda.OutOfMemoryError:
        said = "out of memory"
    answers.put(f"{number} {mine and mine.name} {kept.numel() >> 20} {said}")


if __name__ == "__main__":
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("spawn")
    with gemini.share(request=0.3, memory="2GiB", name="a", state_dir=os.environ["PLACE"]):
        answers = context.SimpleQueue()
        torch.multiprocessing.spawn(work, (answers,), nprocs=2)
    print(*sorted(answers.get() for _ in range(2)), sep="\n")
