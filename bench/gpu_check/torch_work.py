"""PyTorch programs for the checks: ordinary ones, which know nothing of Gemini. Each writes one JSON report.

python torch_work.py train|infer|memory|graph|compile|... --json FILE [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def network(width: int, depth: int) -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
    return torch.nn.Sequential(*layers).cuda()


def train(seconds: float) -> dict[str, Any]:
    """Steps of a training loop that looks at its loss every tenth step; the moments of these are the marks."""
    torch.manual_seed(1)
    model = network(2048, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(1024, 2048, device="cuda")
    marks: list[float] = []
    loss_value = 0.0
    end = None
    steps = 0
    while end is None or time.monotonic() < end:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % 10 == 0:
            loss_value = loss.item()
            marks.append(time.monotonic())
            if end is None:  # cuBLAS and the allocator have warmed up
                end = marks[0] + seconds
    torch.cuda.synchronize()
    return {"steps_per_mark": 10, "marks": marks, "loss": loss_value}


def infer(seconds: float) -> dict[str, Any]:
    """Requests of about a millisecond, 10 ms apart; latencies as the program sees them."""
    torch.manual_seed(2)
    model = network(1024, 6).eval()
    request = torch.randn(8, 1024, device="cuda")
    latencies_ms: list[float] = []
    marks: list[float] = []
    with torch.inference_mode():
        for _ in range(20):
            model(request)
        torch.cuda.synchronize()
        end = time.monotonic() + seconds
        while (begin := time.monotonic()) < end:
            for _ in range(10):
                answer = model(request)
            answer.sum().item()
            marks.append(time.monotonic())
            latencies_ms.append((marks[-1] - begin) * 1e3)
            time.sleep(0.01)
    latencies_ms.sort()
    return {
        "steps_per_mark": 1,
        "marks": marks,
        "latency_ms": {
            "p50": latencies_ms[len(latencies_ms) // 2],
            "p99": latencies_ms[int(len(latencies_ms) * 0.99)],
        },
    }


def memory(_seconds: float) -> dict[str, Any]:
    """Allocate until the card refuses; what the driver, NVML and nvidia-smi say to this process."""
    free, total = torch.cuda.mem_get_info()
    report: dict[str, Any] = {"total": total, "free": free, "raised": None, "nvml_total": None, "nvidia_smi_mib": None}
    held = []
    try:
        for _ in range(10000):
            held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        report["raised"] = type(error).__name__
    except RuntimeError as error:
        report["raised"] = f"{type(error).__name__}: {str(error)[:200]}"
    report["allocated"] = sum(part.numel() for part in held)
    report["reserved"] = torch.cuda.memory_reserved()
    held.clear()
    torch.cuda.empty_cache()
    again = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")  # what was freed can be had again
    report["again"] = again.numel()
    try:
        import pynvml

        pynvml.nvmlInit()
        report["nvml_total"] = int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total)
    except Exception as error:
        report["nvml_error"] = repr(error)
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        report["nvidia_smi_mib"] = int(done.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        report["nvidia_smi_error"] = repr(error)
    return report


def graph(seconds: float) -> dict[str, Any]:
    """A CUDA graph captured and replayed; its result against eager execution."""
    torch.manual_seed(3)
    model = network(1024, 8).eval()
    given = torch.randn(256, 1024, device="cuda")
    with torch.inference_mode():
        expected = model(given)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                model(given)
        torch.cuda.current_stream().wait_stream(aside)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            answer = model(given)
        replays = 0
        marks: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(20):
                captured.replay()
            torch.cuda.synchronize()
            replays += 20
            marks.append(time.monotonic())
    return {"replays": replays, "steps_per_mark": 20, "marks": marks, "same": bool(torch.allclose(answer, expected))}


def compile_(_seconds: float) -> dict[str, Any]:
    """A function compiled by torch.compile (Triton); its result against eager execution."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * y + 1).sum(dim=-1)

    x, y = torch.randn(4096, 1024, device="cuda"), torch.randn(4096, 1024, device="cuda")
    expected = function(x, y)
    begin = time.monotonic()
    compiled = torch.compile(function)
    answer = compiled(x, y)
    torch.cuda.synchronize()
    compiled_s = time.monotonic() - begin
    for _ in range(200):
        answer = compiled(x, y)
    torch.cuda.synchronize()
    return {"compile_seconds": compiled_s, "same": bool(torch.allclose(answer, expected, rtol=1e-3, atol=1e-2))}


def seen_by_profiler(work: Callable[[], object]) -> dict[str, Any]:
    """What the card's profiler saw while this ran: kernels, memsets and copies, and the calls that launched them."""
    from torch.profiler import ProfilerActivity, profile

    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    on_card = [one for one in seen.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    time.sleep(1)  # idle, so that the token goes back, and with it what was counted
    calls = [one.name for one in seen.events() if one.name.startswith(("cudaLaunch", "cuLaunch", "cudaGraphLaunch"))]
    return {"on_card": len(on_card), "launched": len(calls), "names": sorted({one.name for one in on_card})[:200]}


def coverage_train(_seconds: float) -> dict[str, Any]:
    """A training step with attention and a convolution."""
    model = network(1024, 4)
    attention = torch.nn.MultiheadAttention(1024, 8, batch_first=True).cuda()
    convolution = torch.nn.Conv2d(3, 64, 3).cuda()
    batch, image = torch.randn(8, 64, 1024, device="cuda"), torch.randn(8, 3, 64, 64, device="cuda")

    def step() -> None:
        seen, _ = attention(batch, batch, batch, need_weights=False)
        (model(seen).square().mean() + convolution(image).square().mean()).backward()

    return seen_by_profiler(step)


def coverage_graph(_seconds: float) -> dict[str, Any]:
    """Ten replays of a captured graph."""
    model, given = network(1024, 4).eval(), torch.randn(64, 1024, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        aside = torch.cuda.Stream()
        with torch.cuda.stream(aside):
            for _ in range(3):
                model(given)
        torch.cuda.synchronize()
        with torch.cuda.graph(captured):
            model(given)
        return seen_by_profiler(lambda: [captured.replay() for _ in range(10)])


def segments(_seconds: float) -> dict[str, Any]:
    """To the limit in small pieces, then in large ones of what was freed."""
    held, raised = [], None
    try:
        while True:
            held.append(torch.empty(48 << 20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        raised = type(error).__name__
    except RuntimeError as error:
        raised = f"{type(error).__name__}: {str(error)[:200]}"
    pieces = len(held)
    held.clear()
    large = [torch.empty(512 << 20, dtype=torch.uint8, device="cuda") for _ in range(max(1, pieces * 48 // 512 - 1))]
    return {"raised": raised, "pieces": pieces, "after": len(large) > 0}


class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
    """Each item is its own index, a thousand times."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1024,), float(index))


def workers(_seconds: float) -> dict[str, Any]:
    """Batches of four workers, pinned, copied while the last is worked on."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=64, num_workers=4, pin_memory=True)
    model, batches, same = network(1024, 2), 0, True
    for number, batch in enumerate(loader):
        there = batch.cuda(non_blocking=True)
        model(there)
        same = same and bool((there[:, 0].cpu() == torch.arange(64) + 64 * number).all())
        batches += 1
    return {"batches": batches, "same": same}


WORK = {
    "train": train, "infer": infer, "memory": memory, "graph": graph, "compile": compile_, "segments": segments,
    "coverage-train": coverage_train, "coverage-graph": coverage_graph, "workers": workers,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=sorted(WORK))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    args.json.write_text(json.dumps(WORK[args.work](args.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
