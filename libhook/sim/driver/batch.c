/*
 * Copies given as lists, and batches over managed memory and compressed data. A list is its copies one after another; a
 * bad one fails the call, after those before it were submitted. Data is not decompressed, but the time that it takes is.
 */
#include "libhook/sim/driver/array.h"
#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/copy.h"
#include "libhook/sim/driver/managed.h"
#include "libhook/sim/driver/queue.h"

static CUresult linear(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool own) {
    return op_copy_submit(&(CUDA_MEMCPY3D){FROM_ANY(from), TO_ANY(to), LINEAR(bytes)}, stream, own, false);
}

static CUresult lists(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
    size_t *at, size_t attribute_count, size_t *failed, CUstream stream, bool own) {
    NEED(to && from && bytes && count && attributes && at && attribute_count, CUDA_ERROR_INVALID_VALUE);
    NEED(stream && attribute_count <= count && at[0] == 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        CUresult result = linear(to[i], from[i], bytes[i], stream, own);
        if (result) {
            if (failed)
                *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

/* Elements are bytes between pointers; of an array, its own. */
static CUresult element(const CUmemcpy3DOperand *o, size_t *bytes) {
    NEED(
        o->type == CU_MEMCPY_OPERAND_TYPE_POINTER || o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE);
    if (o->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
        return CUDA_SUCCESS;
    NEED(slab_has(SLAB_ARRAY, o->op.array.array) && o->op.array.array->shape.Width, CUDA_ERROR_INVALID_VALUE);
    *bytes = o->op.array.array->row_bytes / o->op.array.array->shape.Width;
    return CUDA_SUCCESS;
}

static CUresult volume(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream, bool own) {
    size_t bytes = 1;
    NEED(op->extent.width && op->extent.height && op->extent.depth && !op->flags, CUDA_ERROR_INVALID_VALUE);
    TRY(element(&op->src, &bytes));
    TRY(element(&op->dst, &bytes));
    CUDA_MEMCPY3D copy = {
        .WidthInBytes = op->extent.width * bytes, .Height = op->extent.height, .Depth = op->extent.depth};
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = op->src.op.array.array;
        copy.srcXInBytes = op->src.op.array.offset.x * bytes;
        copy.srcY = op->src.op.array.offset.y;
        copy.srcZ = op->src.op.array.offset.z;
    } else {
        copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy.srcDevice = op->src.op.ptr.ptr;
        copy.srcPitch = op->src.op.ptr.rowLength * bytes;
        copy.srcHeight = op->src.op.ptr.layerHeight;
    }
    if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = op->dst.op.array.array;
        copy.dstXInBytes = op->dst.op.array.offset.x * bytes;
        copy.dstY = op->dst.op.array.offset.y;
        copy.dstZ = op->dst.op.array.offset.z;
    } else {
        copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy.dstDevice = op->dst.op.ptr.ptr;
        copy.dstPitch = op->dst.op.ptr.rowLength * bytes;
        copy.dstHeight = op->dst.op.ptr.layerHeight;
    }
    return op_copy_submit(&copy, stream, own, false);
}

static CUresult volumes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count, size_t *failed, unsigned long long flags,
    CUstream stream, bool own) {
    NEED(ops && count && !flags && stream, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        CUresult result = volume(&ops[i], stream, own);
        if (result) {
            if (failed)
                *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult decompress(
    const CUmemDecompressParams *params, size_t count, unsigned int flags, CUstream handle, bool own) {
    struct CUstream_st *stream;
    uint64_t bytes = 0;
    NEED(params && count && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, own, &stream));
    NEED(!stream_capturing(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    for (size_t i = 0; i < count; i++) {
        NEED(params[i].src && params[i].dst && params[i].srcNumBytes, CUDA_ERROR_INVALID_VALUE);
        bytes += params[i].srcNumBytes + params[i].dstNumBytes;
    }
    struct work work = {.kind = SIM_KERNEL};
    work.duration_ns = spec()->copy_latency_ns + (uint64_t)((double)bytes * 1e9 / (double)spec()->device_bytes_per_s);
    return queue_push(stream, &work, NULL);
}

enum moving { DISCARD, PREFETCH };

static CUresult move(enum moving what, CUdeviceptr *pointers, size_t *sizes, size_t count, const CUmemLocation *places,
    const size_t *at, size_t place_count, unsigned long long flags, CUstream stream, bool own) {
    NEED(pointers && sizes && count && !flags && stream, CUDA_ERROR_INVALID_VALUE);
    NEED(what == DISCARD || (places && at && place_count && place_count <= count && at[0] == 0),
        CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0, place = 0; i < count; i++) {
        TRY(managed_check(pointers[i], sizes[i]));
        if (what == DISCARD)
            continue;
        while (place + 1 < place_count && at[place + 1] <= i)
            place++;
        TRY(managed_prefetch(pointers[i], sizes[i], places[place], stream, own));
    }
    return CUDA_SUCCESS;
}

#define FLAVOUR(suffix, own)                                                                                           \
    CUresult cuMemcpyBatchAsync##suffix(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,               \
        CUmemcpyAttributes *attributes, size_t *at, size_t attribute_count, size_t *failed, CUstream stream) {         \
        return lists(to, from, sizes, count, attributes, at, attribute_count, failed, stream, own);                    \
    }                                                                                                                  \
    CUresult cuMemcpyBatchAsync_v2##suffix(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,            \
        CUmemcpyAttributes *attributes, size_t *at, size_t attribute_count, CUstream stream) {                         \
        return lists(to, from, sizes, count, attributes, at, attribute_count, NULL, stream, own);                      \
    }                                                                                                                  \
    CUresult cuMemcpyWithAttributesAsync##suffix(                                                                      \
        CUdeviceptr to, CUdeviceptr from, size_t size, CUmemcpyAttributes *attributes, CUstream stream) {              \
        NEED(attributes, CUDA_ERROR_INVALID_VALUE);                                                                    \
        return linear(to, from, size, stream, own);                                                                    \
    }                                                                                                                  \
    CUresult cuMemcpy3DBatchAsync##suffix(                                                                             \
        size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream stream) {        \
        return volumes(ops, count, failed, flags, stream, own);                                                        \
    }                                                                                                                  \
    CUresult cuMemcpy3DBatchAsync_v2##suffix(                                                                          \
        size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream) {                        \
        return volumes(ops, count, NULL, flags, stream, own);                                                          \
    }                                                                                                                  \
    CUresult cuMemcpy3DWithAttributesAsync##suffix(                                                                    \
        CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream) {                                       \
        return volumes(op, 1, NULL, flags, stream, own);                                                               \
    }                                                                                                                  \
    CUresult cuMemBatchDecompressAsync##suffix(                                                                        \
        CUmemDecompressParams *params, size_t count, unsigned int flags, size_t *failed, CUstream stream) {            \
        (void)failed;                                                                                                  \
        return decompress(params, count, flags, stream, own);                                                          \
    }                                                                                                                  \
    CUresult cuMemPrefetchBatchAsync##suffix(CUdeviceptr *pointers, size_t *sizes, size_t count,                       \
        CUmemLocation *places, size_t *at, size_t place_count, unsigned long long flags, CUstream stream) {            \
        return move(PREFETCH, pointers, sizes, count, places, at, place_count, flags, stream, own);                    \
    }                                                                                                                  \
    CUresult cuMemDiscardBatchAsync##suffix(                                                                           \
        CUdeviceptr *pointers, size_t *sizes, size_t count, unsigned long long flags, CUstream stream) {               \
        return move(DISCARD, pointers, sizes, count, NULL, NULL, 0, flags, stream, own);                               \
    }                                                                                                                  \
    CUresult cuMemDiscardAndPrefetchBatchAsync##suffix(CUdeviceptr *pointers, size_t *sizes, size_t count,             \
        CUmemLocation *places, size_t *at, size_t place_count, unsigned long long flags, CUstream stream) {            \
        return move(PREFETCH, pointers, sizes, count, places, at, place_count, flags, stream, own);                    \
    }

FLAVOUR(, false)
FLAVOUR(_ptsz, true)
