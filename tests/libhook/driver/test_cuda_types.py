"""The layouts in cuda_types.h are those of CUDA's own header (13.0, x86-64), whose sizes and offsets stand here."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SIZES = {
    "CUDA_MEMCPY2D": 128,
    "CUDA_MEMCPY3D": 200,
    "CUDA_MEMCPY3D_PEER": 200,
    "CUDA_ARRAY_DESCRIPTOR": 24,
    "CUDA_ARRAY3D_DESCRIPTOR": 40,
    "CUDA_ARRAY_MEMORY_REQUIREMENTS": 32,
    "CUstreamBatchMemOpParams": 48,
    "CUmemAllocationProp": 32,
    "CUmemAccessDesc": 12,
    "CUmemPoolProps": 88,
    "CUDA_BATCH_MEM_OP_NODE_PARAMS": 32,
    "CUDA_HOST_NODE_PARAMS": 16,
    "CUDA_KERNEL_NODE_PARAMS_v1": 56,
    "CUDA_KERNEL_NODE_PARAMS": 72,
    "CUDA_MEMSET_NODE_PARAMS": 40,
    "CUDA_MEM_ALLOC_NODE_PARAMS": 120,
    "CUgraphNodeParams": 256,
    "CUgraphEdgeData": 8,
    "CUDA_GRAPH_INSTANTIATE_PARAMS": 32,
    "CUgraphExecUpdateResultInfo": 24,
    "CUlaunchAttributeValue": 64,
    "CUlaunchAttribute": 72,
    "CUlaunchConfig": 56,
    "CUDA_LAUNCH_PARAMS": 56,
    "CUdevprop": 56,
    "CUmemcpyAttributes": 24,
    "CUuuid": 16,
    "CUipcMemHandle": 64,
    "CUmemLocation": 8,
    "CUresult": 4,
    "CUdeviceptr": 8,
}
OFFSETS = {
    ("CUgraphNodeParams", "kernel.ctx"): 80,
    ("CUgraphNodeParams", "memcpy.copyParams"): 32,
    ("CUgraphNodeParams", "memset.ctx"): 56,
    ("CUgraphNodeParams", "alloc.dptr"): 128,
    ("CUgraphNodeParams", "memOp.flags"): 40,
    ("CUgraphNodeParams", "reserved2"): 248,
    ("CUDA_MEMCPY3D", "Depth"): 192,
    ("CUDA_MEMCPY2D", "dstPitch"): 104,
    ("CUstreamBatchMemOpParams", "waitValue.alias"): 32,
    ("CUlaunchConfig", "attrs"): 40,
    ("CUmemAllocationProp", "allocFlags.usage"): 26,
    ("CUlaunchAttribute", "value"): 8,
    ("CUlaunchAttributeValue", "launchCompletionEvent.flags"): 8,
    ("CUmemPoolProps", "maxSize"): 24,
}


def test_sizes_and_offsets_are_those_of_cuda(tmp_path: Path) -> None:
    asserts = [f'_Static_assert(sizeof({name}) == {size}, "{name}");' for name, size in SIZES.items()]
    asserts += [
        f'_Static_assert(offsetof({name}, {field}) == {place}, "{name}.{field}");'
        for (name, field), place in OFFSETS.items()
    ]
    source = tmp_path / "types.c"
    source.write_text('#include "libhook/driver/cuda_abi.h"\n' + "\n".join(asserts) + "\n")
    subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Werror", f"-I{ROOT}", "-c", source, "-o", "/dev/null"], check=True)
