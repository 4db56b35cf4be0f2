/*
 * copy.c - copies and memsets.
 *
 * Memsets, and copies from device to device or peer to peer, run where kernels run: they pass the gate, with a cost that
 * is guessed from their bytes and then learned per kind and power of two. Copies between host and device have engines of
 * their own: metered, never held up. Where only the addresses tell which it is, the driver is asked for their kind.
 * Copies that block the caller say, when they return, that earlier work is over: they are watched like synchronisations.
 */
#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/watch.h"

#define GUESS_START_NS 2000     /* what a launch costs at least */
#define GUESS_BYTES_PER_NS 1000 /* a first guess only: 1 TB/s */
#define BATCH_LOOK 16           /* of a batch, so many copies are looked at */

enum direction { ON_DEVICE, TO_DEVICE, TO_HOST, ON_HOST };
enum kind { SET = 0x736574, COPY = 0x636f7079 };

static bool begin(CUstream stream, enum kind kind, uint64_t bytes) {
    unsigned int log2 = bytes ? 63u - (unsigned int)__builtin_clzll(bytes) : 0;
    return gate_begin(stream, estimate_mix(kind, log2, 0, 2), 0, GUESS_START_NS + bytes / GUESS_BYTES_PER_NS);
}

static bool is_host(CUdeviceptr pointer) {
    unsigned int type = 0;
    CUresult result = real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
    return result != CUDA_SUCCESS ||
           type == CU_MEMORYTYPE_HOST; /* memory that the driver does not know is the host's */
}

static enum direction between(bool from_host, bool to_host) {
    if (from_host)
        return to_host ? ON_HOST : TO_DEVICE;
    return to_host ? TO_HOST : ON_DEVICE;
}

static enum direction by_pointers(CUdeviceptr dst, CUdeviceptr src) {
    return between(is_host(src), is_host(dst));
}

static bool side_is_host(CUmemorytype type, CUdeviceptr pointer) {
    return type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && is_host(pointer));
}

/* The three descriptors name their fields alike. */
#define BY_DESCRIPTOR(copy)                                                                                            \
    between(side_is_host((copy)->srcMemoryType, (copy)->srcDevice),                                                    \
        side_is_host((copy)->dstMemoryType, (copy)->dstDevice))

static enum direction by_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, size_t count) {
    enum direction seen = ON_HOST;
    for (size_t i = 0; dsts && srcs && i < count && i < BATCH_LOOK; i++) {
        enum direction one = by_pointers(dsts[i], srcs[i]);
        if (one == ON_DEVICE)
            return ON_DEVICE;
        seen = one;
    }
    return seen;
}

static uint64_t batch_bytes(const size_t *sizes, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; sizes && i < count; i++)
        sum += sizes[i];
    return sum;
}

/* Through the gate. */
#define GATED(stream, kind, bytes, call)                                                                               \
    do {                                                                                                               \
        bool gated = begin(stream, kind, bytes);                                                                       \
        CUresult result = call;                                                                                        \
        if (gated)                                                                                                     \
            gate_end();                                                                                                \
        return result;                                                                                                 \
    } while (0)

/* Between host and device. */
#define BILLED(to_device, bytes, call)                                                                                 \
    do {                                                                                                               \
        CUresult result = call;                                                                                        \
        if (result == CUDA_SUCCESS)                                                                                    \
            watch_copy(to_device, bytes);                                                                              \
        return result;                                                                                                 \
    } while (0)

/* ... and the caller waits for it. */
#define BLOCKING(to_device, bytes, call)                                                                               \
    do {                                                                                                               \
        watch_sync_before(WATCH_SOME, NULL);                                                                           \
        CUresult result = call;                                                                                        \
        watch_sync_after(WATCH_SOME, NULL, result);                                                                    \
        if (result == CUDA_SUCCESS)                                                                                    \
            watch_copy(to_device, bytes);                                                                              \
        return result;                                                                                                 \
    } while (0)

/* Either, as the direction says. */
#define BY_DIRECTION(direction_of, elsewhere, stream, bytes, call)                                                     \
    do {                                                                                                               \
        enum direction direction = direction_of;                                                                       \
        if (direction == ON_DEVICE)                                                                                    \
            GATED(stream, COPY, bytes, call);                                                                          \
        if (direction == ON_HOST)                                                                                      \
            return call;                                                                                               \
        elsewhere(direction == TO_DEVICE, bytes, call);                                                                \
    } while (0)

/* ---- copies ---- */

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    BY_DIRECTION(by_pointers(dst, src), BLOCKING, CU_STREAM_LEGACY, bytes, real.cuMemcpy(dst, src, bytes));
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    BY_DIRECTION(by_pointers(dst, src), BLOCKING, CU_STREAM_PER_THREAD, bytes, real.cuMemcpy_ptds(dst, src, bytes));
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2D_v2(copy);
    BY_DIRECTION(
        BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height, real.cuMemcpy2D_v2(copy));
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2D_v2_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height,
        real.cuMemcpy2D_v2_ptds(copy));
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy2DAsync_v2(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_legacy(stream), copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DAsync_v2(copy, stream));
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy2DAsync_v2_ptsz(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_per_thread(stream), copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DAsync_v2_ptsz(copy, stream));
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2DUnaligned_v2(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DUnaligned_v2(copy));
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *copy) {
    if (!copy)
        return real.cuMemcpy2DUnaligned_v2_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height,
        real.cuMemcpy2DUnaligned_v2_ptds(copy));
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) {
    if (!copy)
        return real.cuMemcpy3D_v2(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3D_v2(copy));
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy) {
    if (!copy)
        return real.cuMemcpy3D_v2_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3D_v2_ptds(copy));
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DAsync_v2(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_legacy(stream), copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DAsync_v2(copy, stream));
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DAsync_v2_ptsz(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_per_thread(stream),
        copy->WidthInBytes * copy->Height * copy->Depth, real.cuMemcpy3DAsync_v2_ptsz(copy, stream));
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy) {
    if (!copy)
        return real.cuMemcpy3DPeer(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_LEGACY, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DPeer(copy));
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *copy) {
    if (!copy)
        return real.cuMemcpy3DPeer_ptds(copy);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BLOCKING, CU_STREAM_PER_THREAD, copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DPeer_ptds(copy));
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DPeerAsync(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_legacy(stream), copy->WidthInBytes * copy->Height * copy->Depth,
        real.cuMemcpy3DPeerAsync(copy, stream));
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
    if (!copy)
        return real.cuMemcpy3DPeerAsync_ptsz(copy, stream);
    BY_DIRECTION(BY_DESCRIPTOR(copy), BILLED, stream_per_thread(stream),
        copy->WidthInBytes * copy->Height * copy->Depth, real.cuMemcpy3DPeerAsync_ptsz(copy, stream));
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    BY_DIRECTION(
        by_pointers(dst, src), BILLED, stream_legacy(stream), bytes, real.cuMemcpyAsync(dst, src, bytes, stream));
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    BY_DIRECTION(by_pointers(dst, src), BILLED, stream_per_thread(stream), bytes,
        real.cuMemcpyAsync_ptsz(dst, src, bytes, stream));
}

CUresult cuMemcpyAtoA_v2(CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyAtoA_v2(dst_array, dst_offset, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoA_v2_ptds(
    CUarray dst_array, size_t dst_offset, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes,
        real.cuMemcpyAtoA_v2_ptds(dst_array, dst_offset, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dst_device, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyAtoD_v2(dst_device, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dst_device, CUarray src_array, size_t src_offset, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes, real.cuMemcpyAtoD_v2_ptds(dst_device, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoH_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes) {
    BLOCKING(false, bytes, real.cuMemcpyAtoH_v2(dst_host, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoH_v2_ptds(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes) {
    BLOCKING(false, bytes, real.cuMemcpyAtoH_v2_ptds(dst_host, src_array, src_offset, bytes));
}

CUresult cuMemcpyAtoHAsync_v2(void *dst_host, CUarray src_array, size_t src_offset, size_t bytes, CUstream stream) {
    BILLED(false, bytes, real.cuMemcpyAtoHAsync_v2(dst_host, src_array, src_offset, bytes, stream));
}

CUresult cuMemcpyAtoHAsync_v2_ptsz(
    void *dst_host, CUarray src_array, size_t src_offset, size_t bytes, CUstream stream) {
    BILLED(false, bytes, real.cuMemcpyAtoHAsync_v2_ptsz(dst_host, src_array, src_offset, bytes, stream));
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs, CUstream stream) {
    BY_DIRECTION(by_batch(dsts, srcs, count), BILLED, stream_legacy(stream), batch_bytes(sizes, count),
        real.cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, stream));
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrs_idxs, size_t num_attrs, CUstream stream) {
    BY_DIRECTION(by_batch(dsts, srcs, count), BILLED, stream_per_thread(stream), batch_bytes(sizes, count),
        real.cuMemcpyBatchAsync_v2_ptsz(dsts, srcs, sizes, count, attrs, attrs_idxs, num_attrs, stream));
}

CUresult cuMemcpyDtoA_v2(CUarray dst_array, size_t dst_offset, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyDtoA_v2(dst_array, dst_offset, src_device, bytes));
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray dst_array, size_t dst_offset, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes, real.cuMemcpyDtoA_v2_ptds(dst_array, dst_offset, src_device, bytes));
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyDtoD_v2(dst_device, src_device, bytes));
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes, real.cuMemcpyDtoD_v2_ptds(dst_device, src_device, bytes));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    GATED(stream_legacy(stream), COPY, bytes, real.cuMemcpyDtoDAsync_v2(dst_device, src_device, bytes, stream));
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst_device, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    GATED(
        stream_per_thread(stream), COPY, bytes, real.cuMemcpyDtoDAsync_v2_ptsz(dst_device, src_device, bytes, stream));
}

CUresult cuMemcpyDtoH_v2(void *dst_host, CUdeviceptr src_device, size_t bytes) {
    BLOCKING(false, bytes, real.cuMemcpyDtoH_v2(dst_host, src_device, bytes));
}

CUresult cuMemcpyDtoH_v2_ptds(void *dst_host, CUdeviceptr src_device, size_t bytes) {
    BLOCKING(false, bytes, real.cuMemcpyDtoH_v2_ptds(dst_host, src_device, bytes));
}

CUresult cuMemcpyDtoHAsync_v2(void *dst_host, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    BILLED(false, bytes, real.cuMemcpyDtoHAsync_v2(dst_host, src_device, bytes, stream));
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dst_host, CUdeviceptr src_device, size_t bytes, CUstream stream) {
    BILLED(false, bytes, real.cuMemcpyDtoHAsync_v2_ptsz(dst_host, src_device, bytes, stream));
}

CUresult cuMemcpyHtoA_v2(CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes) {
    BLOCKING(true, bytes, real.cuMemcpyHtoA_v2(dst_array, dst_offset, src_host, bytes));
}

CUresult cuMemcpyHtoA_v2_ptds(CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes) {
    BLOCKING(true, bytes, real.cuMemcpyHtoA_v2_ptds(dst_array, dst_offset, src_host, bytes));
}

CUresult cuMemcpyHtoAAsync_v2(
    CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(true, bytes, real.cuMemcpyHtoAAsync_v2(dst_array, dst_offset, src_host, bytes, stream));
}

CUresult cuMemcpyHtoAAsync_v2_ptsz(
    CUarray dst_array, size_t dst_offset, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(true, bytes, real.cuMemcpyHtoAAsync_v2_ptsz(dst_array, dst_offset, src_host, bytes, stream));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes) {
    BLOCKING(true, bytes, real.cuMemcpyHtoD_v2(dst_device, src_host, bytes));
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dst_device, const void *src_host, size_t bytes) {
    BLOCKING(true, bytes, real.cuMemcpyHtoD_v2_ptds(dst_device, src_host, bytes));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst_device, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(true, bytes, real.cuMemcpyHtoDAsync_v2(dst_device, src_host, bytes, stream));
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst_device, const void *src_host, size_t bytes, CUstream stream) {
    BILLED(true, bytes, real.cuMemcpyHtoDAsync_v2_ptsz(dst_device, src_host, bytes, stream));
}

CUresult cuMemcpyPeer(
    CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context, size_t bytes) {
    GATED(CU_STREAM_LEGACY, COPY, bytes, real.cuMemcpyPeer(dst_device, dst_context, src_device, src_context, bytes));
}

CUresult cuMemcpyPeer_ptds(
    CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context, size_t bytes) {
    GATED(CU_STREAM_PER_THREAD, COPY, bytes,
        real.cuMemcpyPeer_ptds(dst_device, dst_context, src_device, src_context, bytes));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, CUcontext src_context,
    size_t bytes, CUstream stream) {
    GATED(stream_legacy(stream), COPY, bytes,
        real.cuMemcpyPeerAsync(dst_device, dst_context, src_device, src_context, bytes, stream));
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,
    CUcontext src_context, size_t bytes, CUstream stream) {
    GATED(stream_per_thread(stream), COPY, bytes,
        real.cuMemcpyPeerAsync_ptsz(dst_device, dst_context, src_device, src_context, bytes, stream));
}

/* ---- memsets ---- */

CUresult cuMemsetD16_v2(CUdeviceptr dst_device, unsigned short value, size_t count) {
    GATED(CU_STREAM_LEGACY, SET, count * 2, real.cuMemsetD16_v2(dst_device, value, count));
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dst_device, unsigned short value, size_t count) {
    GATED(CU_STREAM_PER_THREAD, SET, count * 2, real.cuMemsetD16_v2_ptds(dst_device, value, count));
}

CUresult cuMemsetD16Async(CUdeviceptr dst_device, unsigned short value, size_t count, CUstream stream) {
    GATED(stream_legacy(stream), SET, count * 2, real.cuMemsetD16Async(dst_device, value, count, stream));
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr dst_device, unsigned short value, size_t count, CUstream stream) {
    GATED(stream_per_thread(stream), SET, count * 2, real.cuMemsetD16Async_ptsz(dst_device, value, count, stream));
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height) {
    GATED(
        CU_STREAM_LEGACY, SET, width * height * 2, real.cuMemsetD2D16_v2(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D16_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height) {
    GATED(CU_STREAM_PER_THREAD, SET, width * height * 2,
        real.cuMemsetD2D16_v2_ptds(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D16Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height, CUstream stream) {
    GATED(stream_legacy(stream), SET, width * height * 2,
        real.cuMemsetD2D16Async(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D16Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned short value, size_t width, size_t height, CUstream stream) {
    GATED(stream_per_thread(stream), SET, width * height * 2,
        real.cuMemsetD2D16Async_ptsz(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height) {
    GATED(
        CU_STREAM_LEGACY, SET, width * height * 4, real.cuMemsetD2D32_v2(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D32_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height) {
    GATED(CU_STREAM_PER_THREAD, SET, width * height * 4,
        real.cuMemsetD2D32_v2_ptds(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D32Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height, CUstream stream) {
    GATED(stream_legacy(stream), SET, width * height * 4,
        real.cuMemsetD2D32Async(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D32Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned int value, size_t width, size_t height, CUstream stream) {
    GATED(stream_per_thread(stream), SET, width * height * 4,
        real.cuMemsetD2D32Async_ptsz(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height) {
    GATED(CU_STREAM_LEGACY, SET, width * height, real.cuMemsetD2D8_v2(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D8_v2_ptds(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height) {
    GATED(CU_STREAM_PER_THREAD, SET, width * height,
        real.cuMemsetD2D8_v2_ptds(dst_device, dst_pitch, value, width, height));
}

CUresult cuMemsetD2D8Async(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
    GATED(stream_legacy(stream), SET, width * height,
        real.cuMemsetD2D8Async(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD2D8Async_ptsz(
    CUdeviceptr dst_device, size_t dst_pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
    GATED(stream_per_thread(stream), SET, width * height,
        real.cuMemsetD2D8Async_ptsz(dst_device, dst_pitch, value, width, height, stream));
}

CUresult cuMemsetD32_v2(CUdeviceptr dst_device, unsigned int value, size_t count) {
    GATED(CU_STREAM_LEGACY, SET, count * 4, real.cuMemsetD32_v2(dst_device, value, count));
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dst_device, unsigned int value, size_t count) {
    GATED(CU_STREAM_PER_THREAD, SET, count * 4, real.cuMemsetD32_v2_ptds(dst_device, value, count));
}

CUresult cuMemsetD32Async(CUdeviceptr dst_device, unsigned int value, size_t count, CUstream stream) {
    GATED(stream_legacy(stream), SET, count * 4, real.cuMemsetD32Async(dst_device, value, count, stream));
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr dst_device, unsigned int value, size_t count, CUstream stream) {
    GATED(stream_per_thread(stream), SET, count * 4, real.cuMemsetD32Async_ptsz(dst_device, value, count, stream));
}

CUresult cuMemsetD8_v2(CUdeviceptr dst_device, unsigned char value, size_t count) {
    GATED(CU_STREAM_LEGACY, SET, count, real.cuMemsetD8_v2(dst_device, value, count));
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dst_device, unsigned char value, size_t count) {
    GATED(CU_STREAM_PER_THREAD, SET, count, real.cuMemsetD8_v2_ptds(dst_device, value, count));
}

CUresult cuMemsetD8Async(CUdeviceptr dst_device, unsigned char value, size_t count, CUstream stream) {
    GATED(stream_legacy(stream), SET, count, real.cuMemsetD8Async(dst_device, value, count, stream));
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dst_device, unsigned char value, size_t count, CUstream stream) {
    GATED(stream_per_thread(stream), SET, count, real.cuMemsetD8Async_ptsz(dst_device, value, count, stream));
}
