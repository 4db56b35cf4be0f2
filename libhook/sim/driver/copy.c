/*
 * Copies. Every one is a CUDA_MEMCPY3D inside: a linear copy is one row. Its ends decide the engine: between host and
 * device the copy engine of that direction; inside a card, between cards, and between host addresses (which costs
 * nothing on the card) the compute engine. The bytes move when the copy is submitted, or behind a pending host step
 * in stream order.
 */
#include <stdlib.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/array.h"
#include "libhook/sim/driver/copy.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/host.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/op_run.h"

struct end {
    char *start;
    size_t pitch, slice; /* bytes from row to row, from slice to slice */
    bool on_device;
    CUdevice device;
};

/* Where does one end of a copy lie, and may all of it be touched? */
static CUresult locate(CUmemorytype type, const void *host, CUdeviceptr pointer, CUarray array, size_t pitch,
    size_t height, const size_t at[3], const CUDA_MEMCPY3D *c, struct end *out) {
    struct block block;
    char *base;
    pitch = pitch ? pitch : c->WidthInBytes + at[0];
    height = height ? height : c->Height + at[1];
    *out = (struct end){.device = CU_DEVICE_CPU};
    if (type == CU_MEMORYTYPE_ARRAY) {
        NEED(slab_has(SLAB_ARRAY, array), CUDA_ERROR_INVALID_VALUE);
        pitch = array->pitch;
        height = array->rows;
        NEED(at[0] + c->WidthInBytes <= array->row_bytes && at[1] + c->Height <= array->rows &&
                 at[2] + c->Depth <= array->slices,
            CUDA_ERROR_INVALID_VALUE);
        base = (char *)array->address;
        out->on_device = true;
        out->device = array->device;
    } else {
        NEED(type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED, CUDA_ERROR_INVALID_VALUE);
        base = type == CU_MEMORYTYPE_HOST ? (char *)(uintptr_t)host : (char *)pointer;
        bool known = heap_find((uint64_t)base, &block);
        NEED(base && (known || type != CU_MEMORYTYPE_DEVICE), CUDA_ERROR_INVALID_VALUE);
        NEED(pitch >= at[0] + c->WidthInBytes || c->Height * c->Depth <= 1, CUDA_ERROR_INVALID_VALUE);
        uint64_t last = (uint64_t)base + (at[2] + c->Depth - 1) * pitch * height + (at[1] + c->Height - 1) * pitch +
                        at[0] + c->WidthInBytes;
        if (known && block_on_device(block.kind)) {
            NEED(block.kind == BLOCK_MAPPED || last <= block.address + block.bytes, CUDA_ERROR_INVALID_VALUE);
            out->on_device = !block_is_managed(&block) || type == CU_MEMORYTYPE_DEVICE;
            out->device = block.device;
        }
    }
    out->start = base + at[2] * pitch * height + at[1] * pitch + at[0];
    out->pitch = pitch;
    out->slice = pitch * height;
    return CUDA_SUCCESS;
}

static CUresult ends(const CUDA_MEMCPY3D *c, struct end *from, struct end *to) {
    const size_t from_at[3] = {c->srcXInBytes, c->srcY, c->srcZ}, to_at[3] = {c->dstXInBytes, c->dstY, c->dstZ};
    TRY(locate(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcPitch, c->srcHeight, from_at, c, from));
    return locate(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstPitch, c->dstHeight, to_at, c, to);
}

static bool empty(const CUDA_MEMCPY3D *c) {
    return !c->WidthInBytes || !c->Height || !c->Depth;
}

CUresult op_copy_check(const CUDA_MEMCPY3D *c) {
    struct end from, to;
    return empty(c) ? CUDA_SUCCESS : ends(c, &from, &to);
}

void op_copy_move(const CUDA_MEMCPY3D *c) {
    struct end from, to;
    if (empty(c) || ends(c, &from, &to))
        return;
    for (size_t z = 0; z < c->Depth; z++)
        for (size_t y = 0; y < c->Height; y++)
            memmove(
                to.start + z * to.slice + y * to.pitch, from.start + z * from.slice + y * from.pitch, c->WidthInBytes);
}

static bool run_move(void *argument) {
    op_copy_move(argument);
    return true;
}

/* From its first byte to its last. */
static struct span span_of(const struct end *end, const CUDA_MEMCPY3D *c) {
    return (struct span){
        (uint64_t)end->start, (c->Depth - 1) * end->slice + (c->Height - 1) * end->pitch + c->WidthInBytes};
}

static CUresult price(const CUDA_MEMCPY3D *c, struct work *work, struct span touched[2]) {
    struct end from, to;
    const struct sim_spec *s = spec();
    TRY(ends(c, &from, &to));
    touched[0] = span_of(&from, c);
    touched[1] = span_of(&to, c);
    uint64_t per_s = s->host_bytes_per_s, bytes = c->WidthInBytes * c->Height * c->Depth;
    if (from.on_device && to.on_device) {
        work->kind = SIM_KERNEL;
        per_s = from.device == to.device ? s->device_bytes_per_s : s->peer_bytes_per_s;
    } else {
        work->kind = to.on_device ? SIM_TO_DEVICE : from.on_device ? SIM_TO_HOST : SIM_NOTHING;
    }
    work->duration_ns = s->copy_latency_ns + (uint64_t)((double)bytes * 1e9 / (double)per_s);
    return CUDA_SUCCESS;
}

CUresult op_copy_run(struct CUstream_st *stream, const CUDA_MEMCPY3D *c) {
    struct work work = {0};
    struct span touched[2];
    if (empty(c))
        return CUDA_SUCCESS;
    TRY(price(c, &work, touched));
    if (host_has_to_wait(touched, 2)) {
        CUDA_MEMCPY3D *later = malloc(sizeof(*later));
        NEED(later, CUDA_ERROR_OUT_OF_MEMORY);
        *later = *c;
        TRY(host_push(stream, &(struct host_step){run_move, free, later, false}));
    } else {
        op_copy_move(c);
    }
    return queue_push(stream, &work, NULL);
}

CUresult op_copy_submit(const CUDA_MEMCPY3D *c, CUstream handle, bool per_thread, bool blocking) {
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    TRY(context_current(&ctx));
    TRY(op_copy_check(c));
    TRY(stream_of(handle, per_thread, &stream));
    if (blocking) {
        TRY(capture_check_sync(stream));
        TRY(capture_check_legacy(stream));
    }
    TRY(op_submit(stream, &(struct op){.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *c}));
    if (blocking)
        queue_wait_stream(stream);
    return CUDA_SUCCESS;
}

/* A copy that waits for its end, in both flavours. */
#define BLOCKING(name, parameters, ...)                                                                                \
    CUresult name parameters {                                                                                         \
        return op_copy_submit(&(CUDA_MEMCPY3D){__VA_ARGS__}, NULL, false, true);                                       \
    }                                                                                                                  \
    CUresult name##_ptds parameters {                                                                                  \
        return op_copy_submit(&(CUDA_MEMCPY3D){__VA_ARGS__}, NULL, true, true);                                        \
    }

#define ASYNC(name, parameters, ...)                                                                                   \
    CUresult name parameters {                                                                                         \
        return op_copy_submit(&(CUDA_MEMCPY3D){__VA_ARGS__}, stream, false, false);                                    \
    }                                                                                                                  \
    CUresult name##_ptsz parameters {                                                                                  \
        return op_copy_submit(&(CUDA_MEMCPY3D){__VA_ARGS__}, stream, true, false);                                     \
    }

BLOCKING(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), FROM_ANY(from), TO_ANY(to), LINEAR(bytes))
BLOCKING(
    cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), FROM_HOST(from), TO_DEVICE(to), LINEAR(bytes))
BLOCKING(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), FROM_DEVICE(from), TO_HOST(to), LINEAR(bytes))
BLOCKING(
    cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), FROM_DEVICE(from), TO_DEVICE(to), LINEAR(bytes))
BLOCKING(cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t bytes), FROM_DEVICE(from), TO_ARRAY(to, at),
    LINEAR(bytes))
BLOCKING(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t at, size_t bytes), FROM_ARRAY(from, at), TO_DEVICE(to),
    LINEAR(bytes))
BLOCKING(cuMemcpyHtoA_v2, (CUarray to, size_t at, const void *from, size_t bytes), FROM_HOST(from), TO_ARRAY(to, at),
    LINEAR(bytes))
BLOCKING(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t at, size_t bytes), FROM_ARRAY(from, at), TO_HOST(to),
    LINEAR(bytes))
BLOCKING(cuMemcpyAtoA_v2, (CUarray to, size_t to_at, CUarray from, size_t at, size_t bytes), FROM_ARRAY(from, at),
    TO_ARRAY(to, to_at), LINEAR(bytes))
BLOCKING(cuMemcpyPeer, (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t bytes),
    FROM_DEVICE(((void)to_ctx, (void)from_ctx, from)), TO_DEVICE(to), LINEAR(bytes))

ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), FROM_ANY(from), TO_ANY(to),
    LINEAR(bytes))
ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), FROM_HOST(from),
    TO_DEVICE(to), LINEAR(bytes))
ASYNC(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), FROM_DEVICE(from), TO_HOST(to),
    LINEAR(bytes))
ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), FROM_DEVICE(from),
    TO_DEVICE(to), LINEAR(bytes))
ASYNC(cuMemcpyHtoAAsync_v2, (CUarray to, size_t at, const void *from, size_t bytes, CUstream stream), FROM_HOST(from),
    TO_ARRAY(to, at), LINEAR(bytes))
ASYNC(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t at, size_t bytes, CUstream stream), FROM_ARRAY(from, at),
    TO_HOST(to), LINEAR(bytes))
ASYNC(cuMemcpyPeerAsync,
    (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t bytes, CUstream stream),
    FROM_DEVICE(((void)to_ctx, (void)from_ctx, from)), TO_DEVICE(to), LINEAR(bytes))

/* ---- given as structs ---- */

static CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D *c) {
    return (CUDA_MEMCPY3D){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = 1,
    };
}

/* The two structs differ by the contexts only, which lie where the other has reserved words. */
static CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER *c) {
    CUDA_MEMCPY3D copy;
    _Static_assert(sizeof(copy) == sizeof(*c), "same layout");
    memcpy(&copy, c, sizeof(copy));
    return copy;
}

#define STRUCT_COPY(name, suffix, type, parameters, stream, blocking, convert)                                         \
    CUresult name parameters {                                                                                         \
        NEED(copy, CUDA_ERROR_INVALID_VALUE);                                                                          \
        CUDA_MEMCPY3D c = convert;                                                                                     \
        return op_copy_submit(&c, stream, false, blocking);                                                            \
    }                                                                                                                  \
    CUresult name##suffix parameters {                                                                                 \
        NEED(copy, CUDA_ERROR_INVALID_VALUE);                                                                          \
        CUDA_MEMCPY3D c = convert;                                                                                     \
        return op_copy_submit(&c, stream, true, blocking);                                                             \
    }

STRUCT_COPY(cuMemcpy2D_v2, _ptds, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy), NULL, true, from_2d(copy))
STRUCT_COPY(cuMemcpy2DUnaligned_v2, _ptds, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy), NULL, true, from_2d(copy))
STRUCT_COPY(cuMemcpy2DAsync_v2, _ptsz, CUDA_MEMCPY2D, (const CUDA_MEMCPY2D *copy, CUstream stream), stream, false,
    from_2d(copy))
STRUCT_COPY(cuMemcpy3D_v2, _ptds, CUDA_MEMCPY3D, (const CUDA_MEMCPY3D *copy), NULL, true, *copy)
STRUCT_COPY(
    cuMemcpy3DAsync_v2, _ptsz, CUDA_MEMCPY3D, (const CUDA_MEMCPY3D *copy, CUstream stream), stream, false, *copy)
STRUCT_COPY(cuMemcpy3DPeer, _ptds, CUDA_MEMCPY3D_PEER, (const CUDA_MEMCPY3D_PEER *copy), NULL, true, from_peer(copy))
STRUCT_COPY(cuMemcpy3DPeerAsync, _ptsz, CUDA_MEMCPY3D_PEER, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), stream,
    false, from_peer(copy))
