"""What PyTorch programs do, one case after another; each prints a line."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from typing import Any

import torch
from cases import case, main
from torch import nn

torch.backends.cuda.enable_cudnn_sdp(False)  # the stand-in for cuDNN refuses it
CARD = torch.device("cuda")
ASYNC = "cudaMallocAsync" in os.environ.get(
    "PYTORCH_CUDA_ALLOC_CONF", ""
)  # has no pools for the graphs of torch.compile


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((256,), float(index))


def model() -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Linear(128, 10)).to(CARD)


@case
def elementwise() -> object:
    ones = torch.ones(1000, 1000, device=CARD)
    total = ((ones * 2 + 1).relu().sum(dim=-1).cpu()).shape
    return total, torch.arange(1000).to(CARD).cpu().sum().item()


@case
def copies_move_bytes() -> object:
    host = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    card = host.to(CARD, non_blocking=True)
    there = card.clone()
    torch.cuda.synchronize()
    return bool((there.cpu() == host).all()), host.is_pinned()


@case
def autograd() -> object:
    net = model()
    net(torch.ones(2, 8, 128, device=CARD)).sum().backward()
    return sorted({tuple(p.grad.shape) for p in net.parameters() if p.grad is not None})[:3]


@case
def fused_and_plain_optimizers() -> object:
    done = []
    for make in (
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.Adam(p, foreach=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ):
        net = model()
        optimizer = make(net.parameters())
        for _ in range(2):
            net(torch.ones(2, 8, 128, device=CARD)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        done.append(type(optimizer).__name__)
    torch.cuda.synchronize()
    return done


@case
def mixed_precision() -> object:
    net, scaler = model(), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kinds = []
    for kind in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype=kind):
            out = net(torch.ones(2, 8, 128, device=CARD))
        kinds.append(str(out.dtype))
        out.float().sum().backward()
    scaler.scale(net(torch.ones(2, 8, 128, device=CARD)).sum()).backward()
    optimizer.step()
    return kinds


@case
def streams_and_events() -> object:
    streams = [torch.cuda.Stream(priority=-(i % 2)) for i in range(8)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(9)]
    data = torch.ones(1000, device=CARD)
    events[8].record()
    for stream, event in zip(streams, events, strict=False):
        stream.wait_event(events[8])
        with torch.cuda.stream(stream):
            data = data * 2
            event.record()
    for event in events:
        event.synchronize()
    return all(event.query() for event in events), events[8].elapsed_time(events[7]) >= 0


@case
def threads() -> object:
    done: list[int] = []

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            sent = torch.full((1000,), number).to(CARD)
            (sent + 1).sum()
            torch.cuda.current_stream().synchronize()
            done.append(int(sent.cpu()[0]))

    running = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sorted(done) == list(range(16))


@case
def graphs_in_each_mode() -> object:
    done = []
    for mode in ("global", "thread_local", "relaxed"):
        static, net = torch.ones(4, 8, 128, device=CARD), model()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(2):
                net(static).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            out = net(static)
            out.sum().backward()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        done.append((mode, tuple(out.shape)))
        del graph, out
    torch.cuda.empty_cache()
    return done


@case
def a_graph_beside_a_busy_thread() -> object:
    stop, began = threading.Event(), threading.Event()

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            data = torch.ones(1000, device=CARD)
            while not stop.is_set():
                data.mul_(1.0)
                began.set()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    try:
        static, graph = torch.ones(1000, device=CARD), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            out = static * 2
        graph.replay()
    finally:
        stop.set()
        thread.join()
    torch.cuda.synchronize()
    return tuple(out.shape)


@case
def graphed_callables() -> object:
    net = model()
    sample = torch.ones(2, 8, 128, device=CARD, requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(net, (sample,))
    for _ in range(2):
        graphed(torch.ones(2, 8, 128, device=CARD, requires_grad=True)).sum().backward()
    torch.cuda.synchronize()
    return tuple(graphed(sample).shape)


@case
def compiled_in_each_mode() -> object:
    done = []
    for mode in ("default",) if ASYNC else ("default", "reduce-overhead", "max-autotune"):
        net = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).to(CARD), mode=mode)
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            net.zero_grad(set_to_none=True)
            net(torch.ones(8, 64, device=CARD)).sum().backward()
        torch.cuda.synchronize()
        done.append(mode)
    return done


@case
def loader_with_workers() -> object:
    loader = torch.utils.data.DataLoader(Rows(), batch_size=16, num_workers=2, pin_memory=True)
    return [tuple(batch.to(CARD, non_blocking=True).shape) for batch in loader]


@case
def fork_is_refused() -> object:
    context = torch.multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    said = queue.get()
    child.join()
    return said


def in_child(queue: Any) -> None:
    try:
        torch.ones(1, device=CARD)
        queue.put("it ran")
    except RuntimeError as error:
        queue.put(str(error).partition(".")[0])


@case
def tensors_sent_to_another_process() -> object:
    if ASYNC:
        return "PyTorch cannot send what this allocator made"
    context = torch.multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=in_sent_to, args=(there, back))
    child.start()
    sent = torch.arange(1000, dtype=torch.float32).to(CARD)
    there.put(sent)
    seen = back.get()
    child.join()
    return seen, sent[:2].cpu().tolist(), child.exitcode


def in_sent_to(there: Any, back: Any) -> None:
    got = there.get()
    with torch.cuda.stream(torch.cuda.Stream()):
        first = got[:3].cpu().tolist()
        got.copy_(torch.full((1000,), 7.0))
    torch.cuda.synchronize()
    del got
    back.put(first)


@case
def distributed_by_gloo() -> object:
    context = torch.multiprocessing.get_context("spawn")
    back = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=in_rank, args=(rank, f"file://{folder}/store", back)) for rank in range(2)]
        for rank in ranks:
            rank.start()
        said = sorted(back.get() for _ in ranks)
        for rank in ranks:
            rank.join()
    return said


def in_rank(rank: int, store: str, back: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    card = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(card)
    total = torch.full((1000,), rank + 1.0).to(card)
    torch.distributed.all_reduce(total)
    net = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).to(card), device_ids=[card.index])
    net(torch.ones(8, 64, device=card)).sum().backward()
    torch.cuda.synchronize()
    back.put((rank, total[:2].cpu().tolist(), net.module.weight.grad is not None))
    torch.distributed.destroy_process_group()


@case
def profiler() -> object:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(100, device=CARD).mul(2)
    return "aten::mul" in {event.key for event in profile.key_averages()}


@case
def out_of_memory_and_after() -> object:
    held = []
    try:
        while True:
            held.append(torch.empty(256 << 20, dtype=torch.uint8, device=CARD))
    except torch.OutOfMemoryError as error:
        said = str(error).partition(".")[0]
    del held
    torch.cuda.empty_cache()
    return said, torch.empty(256 << 20, dtype=torch.uint8, device=CARD).numel()


if __name__ == "__main__":
    sys.exit(main())
