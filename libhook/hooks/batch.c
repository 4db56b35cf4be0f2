/*
 * batch.c - copies given as lists or with attributes, and what moves managed memory (copy.h).
 *
 * A list goes through the gate if anything in it stays on the device, with the bytes of all; else it is metered as what
 * its last copy is. Prefetches and discards of managed memory pass the gate whole: where their pages are now only the
 * driver knows, and moving them stalls the kernels of everybody on the card. Decompression has an engine on some cards
 * only, and runs where kernels run on the others.
 */
#include "libhook/hooks/copy.h"

static uint64_t sum_of(const size_t *sizes, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; sizes && i < count; i++)
        sum += sizes[i];
    return sum;
}

static enum direction by_lists(const CUdeviceptr *dsts, const CUdeviceptr *srcs, size_t count) {
    enum direction seen = ON_HOST;
    for (size_t i = 0; dsts && srcs && i < count && seen != ON_DEVICE; i++)
        seen = copy_by_pointers(dsts[i], srcs[i]);
    return seen;
}

static bool operand_is_host(const CUmemcpy3DOperand *operand) {
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && copy_is_host(operand->op.ptr.ptr);
}

static enum direction by_operands(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count) {
    enum direction seen = ON_HOST;
    for (size_t i = 0; ops && i < count && seen != ON_DEVICE; i++)
        seen = copy_between(operand_is_host(&ops[i].src), operand_is_host(&ops[i].dst));
    return seen;
}

/* Extents are in elements where an array is concerned, whose size we do not ask: taken for one byte. */
static uint64_t extent_of(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; ops && i < count; i++)
        sum += ops[i].extent.width * ops[i].extent.height * ops[i].extent.depth;
    return sum;
}

static uint64_t unpacked_of(const CUmemDecompressParams *params, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; params && i < count; i++)
        sum += params[i].dstNumBytes > params[i].srcNumBytes ? params[i].dstNumBytes : params[i].srcNumBytes;
    return sum;
}

/* Each function in both flavours of its stream: its parameters, then its body, in which `stream` is as the driver
 * understands it and CALL calls the driver's function of that flavour. */
#define BOTH(name, parameters, arguments, body)                                                                        \
    CUresult name parameters {                                                                                         \
        const CUstream resolved = stream_legacy(stream);                                                               \
        body(resolved, real.name arguments);                                                                           \
    }                                                                                                                  \
    CUresult name##_ptsz parameters {                                                                                  \
        const CUstream resolved = stream_per_thread(stream);                                                           \
        body(resolved, real.name##_ptsz arguments);                                                                    \
    }

#define LISTS(stream, call) BY_DIRECTION(by_lists(dsts, srcs, count), BILLED, stream, sum_of(sizes, count), call)
BOTH(cuMemcpyBatchAsync,
    (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrs_idxs,
        size_t num_attrs, size_t *fail_idx, CUstream stream),
    (dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, fail_idx, stream), LISTS)
BOTH(cuMemcpyBatchAsync_v2,
    (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrs_idxs,
        size_t num_attrs, CUstream stream),
    (dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, stream), LISTS)

#define OPERANDS(stream, call)                                                                                         \
    BY_DIRECTION(by_operands(op_list, num_ops), BILLED, stream, extent_of(op_list, num_ops), call)
BOTH(cuMemcpy3DBatchAsync,
    (size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, size_t *fail_idx, unsigned long long flags, CUstream stream),
    (num_ops, op_list, fail_idx, flags, stream), OPERANDS)
BOTH(cuMemcpy3DBatchAsync_v2,
    (size_t num_ops, CUDA_MEMCPY3D_BATCH_OP *op_list, unsigned long long flags, CUstream stream),
    (num_ops, op_list, flags, stream), OPERANDS)

#define ONE(stream, call) BY_DIRECTION(copy_by_pointers(dst, src), BILLED, stream, size, call)
BOTH(cuMemcpyWithAttributesAsync,
    (CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes *attr, CUstream stream),
    (dst, src, size, attr, stream), ONE)

#define OPERAND(stream, call) BY_DIRECTION(by_operands(op, 1), BILLED, stream, extent_of(op, 1), call)
BOTH(cuMemcpy3DWithAttributesAsync, (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream),
    (op, flags, stream), OPERAND)

#define FABRIC(stream, call) GATED(stream, COPY, num_ops << 16, call) /* one end is on another machine */
BOTH(cuFabricCpyBatchAsync,
    (size_t num_ops, CUDA_FABRIC_COPY_BATCH_OP *op_list, unsigned long long flags, CUstream stream),
    (num_ops, op_list, flags, stream), FABRIC)

#define DECOMPRESS(stream, call) GATED(stream, UNPACK, unpacked_of(params_array, count), call)
BOTH(cuMemBatchDecompressAsync,
    (CUmemDecompressParams * params_array, size_t count, unsigned int flags, size_t *error_index, CUstream stream),
    (params_array, count, flags, error_index, stream), DECOMPRESS)

/* ---- managed memory ---- */

#define RANGE(stream, call) GATED(stream, MOVE, count, call)
BOTH(cuMemPrefetchAsync, (CUdeviceptr pointer, size_t count, CUdevice device, CUstream stream),
    (pointer, count, device, stream), RANGE)
BOTH(cuMemPrefetchAsync_v2,
    (CUdeviceptr pointer, size_t count, CUmemLocation location, unsigned int flags, CUstream stream),
    (pointer, count, location, flags, stream), RANGE)

#define RANGES(stream, call) GATED(stream, MOVE, sum_of(sizes, count), call)
BOTH(cuMemPrefetchBatchAsync,
    (CUdeviceptr * pointers, size_t *sizes, size_t count, CUmemLocation *prefetch_locs, size_t *prefetch_loc_idxs,
        size_t num_prefetch_locs, unsigned long long flags, CUstream stream),
    (pointers, sizes, count, prefetch_locs, prefetch_loc_idxs, num_prefetch_locs, flags, stream), RANGES)
BOTH(cuMemDiscardBatchAsync,
    (CUdeviceptr * pointers, size_t *sizes, size_t count, unsigned long long flags, CUstream stream),
    (pointers, sizes, count, flags, stream), RANGES)
BOTH(cuMemDiscardAndPrefetchBatchAsync,
    (CUdeviceptr * pointers, size_t *sizes, size_t count, CUmemLocation *prefetch_locs, size_t *prefetch_loc_idxs,
        size_t num_prefetch_locs, unsigned long long flags, CUstream stream),
    (pointers, sizes, count, prefetch_locs, prefetch_loc_idxs, num_prefetch_locs, flags, stream), RANGES)
