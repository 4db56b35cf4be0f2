/* The program's calls about pools that heed captures: memory in stream order, and a pool's end. */
#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/stream.h"

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    struct CUmemPoolHandle_st *pool;
    TRY(pool_of(handle, &pool));
    TRY(capture_guard());
    return pool_end(pool);
}

static CUresult take(CUdeviceptr *out, size_t bytes, CUmemoryPool handle, CUstream stream_handle, bool per_thread) {
    struct CUmemPoolHandle_st *pool = handle;
    struct CUstream_st *stream;
    NEED(out && bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(stream_handle, per_thread, &stream));
    if (!pool)
        TRY(cuDeviceGetMemPool(&pool, stream->ctx->device));
    NEED(slab_has(SLAB_POOL, pool), CUDA_ERROR_INVALID_VALUE);
    if (stream_capturing(stream)) {
        struct op op = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,

            .alloc = {.poolProps = pool->props, .bytesize = bytes}};
        if (!pool->host)
            TRY(pool_of_graphs(pool->device, &pool));
        TRY(pool_take(pool, stream->ctx, bytes, &op.alloc.dptr));
        *out = op.alloc.dptr;
        return capture_op(stream, &op);
    }
    TRY(capture_check_legacy(stream));
    NEED(bytes < VAST_BYTES, vast());
    return pool_take(pool, stream->ctx, bytes, out);
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return take(pointer, bytes, NULL, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    return take(pointer, bytes, NULL, stream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    NEED(pool, CUDA_ERROR_INVALID_VALUE);
    return take(pointer, bytes, pool, stream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
    NEED(pool, CUDA_ERROR_INVALID_VALUE);
    return take(pointer, bytes, pool, stream, true);
}

static CUresult give(CUdeviceptr pointer, CUstream handle, bool per_thread) {
    struct CUstream_st *stream;
    TRY(stream_of(handle, per_thread, &stream));
    if (stream_capturing(stream))
        return capture_op(stream, &(struct op){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = pointer});
    TRY(capture_check_legacy(stream));
    return pool_give(pointer);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    return give(pointer, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
    return give(pointer, stream, true);
}
