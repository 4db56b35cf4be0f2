/* Copies and memsets. The kind of a copy decides which of the driver's calls it is: that is how a copy's engine is told. */
#include "libhook/sim/runtime/runtime.h"

#include <stddef.h>

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    const CUdeviceptr dst = (CUdeviceptr)to, src = (CUdeviceptr)from;
    if (!bytes)
        return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice: return (cudaError_t)cu.cuMemcpyHtoD_v2(dst, from, bytes);
    case cudaMemcpyDeviceToHost: return (cudaError_t)cu.cuMemcpyDtoH_v2(to, src, bytes);
    case cudaMemcpyDeviceToDevice: return (cudaError_t)cu.cuMemcpyDtoD_v2(dst, src, bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return (cudaError_t)cu.cuMemcpy(dst, src, bytes);
    }
    return cudaErrorInvalidMemcpyDirection;
}

static cudaError_t copy_on(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    const CUdeviceptr dst = (CUdeviceptr)to, src = (CUdeviceptr)from;
    if (!bytes)
        return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice: return (cudaError_t)cu.cuMemcpyHtoDAsync_v2(dst, from, bytes, stream);
    case cudaMemcpyDeviceToHost: return (cudaError_t)cu.cuMemcpyDtoHAsync_v2(to, src, bytes, stream);
    case cudaMemcpyDeviceToDevice: return (cudaError_t)cu.cuMemcpyDtoDAsync_v2(dst, src, bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return (cudaError_t)cu.cuMemcpyAsync(dst, src, bytes, stream);
    }
    return cudaErrorInvalidMemcpyDirection;
}

static cudaError_t copy_and_wait(
    void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    TRY(copy_on(to, from, bytes, kind, stream));
    return (cudaError_t)cu.cuStreamSynchronize(stream);
}

CALL(cudaMemcpy, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind), copy(to, from, bytes, kind))
CALL(cudaMemcpy_ptds, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
    copy_and_wait(to, from, bytes, kind, CU_STREAM_PER_THREAD))
STREAM(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
    copy_on(to, from, bytes, kind, stream))

/* ---- between cards ---- */

static cudaError_t peers(int to_device, int from_device, CUcontext *to, CUcontext *from) {
    TRY(runtime_primary(to_device, to));
    return runtime_primary(from_device, from);
}

static cudaError_t copy_peer(
    void *to, int to_device, const void *from, int from_device, size_t bytes, const cudaStream_t *stream) {
    CUcontext dst, src;
    TRY(peers(to_device, from_device, &dst, &src));
    if (stream)
        return (cudaError_t)cu.cuMemcpyPeerAsync((CUdeviceptr)to, dst, (CUdeviceptr)from, src, bytes, *stream);
    return (cudaError_t)cu.cuMemcpyPeer((CUdeviceptr)to, dst, (CUdeviceptr)from, src, bytes);
}
CALL(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t bytes),
    copy_peer(to, to_device, from, from_device, bytes, NULL))
CALL(cudaMemcpyPeerAsync,
    (void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream),
    copy_peer(to, to_device, from, from_device, bytes, &stream))

/* ---- in two and three dimensions ---- */

static CUmemorytype side(enum cudaMemcpyKind kind, bool source) {
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    return (source ? kind & 2 : kind & 1) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

static CUDA_MEMCPY2D plane(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    enum cudaMemcpyKind kind) {
    return (CUDA_MEMCPY2D){
        .srcMemoryType = side(kind, true),
        .srcHost = from,
        .srcDevice = (CUdeviceptr)from,
        .srcPitch = from_pitch,
        .dstMemoryType = side(kind, false),
        .dstHost = to,
        .dstDevice = (CUdeviceptr)to,
        .dstPitch = to_pitch,
        .WidthInBytes = width,
        .Height = height,
    };
}

CALL(cudaMemcpy2D,
    (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
        enum cudaMemcpyKind kind),
    cu.cuMemcpy2D_v2(&(CUDA_MEMCPY2D[1]){plane(to, to_pitch, from, from_pitch, width, height, kind)}[0]))
STREAM(cudaMemcpy2DAsync,
    (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
        enum cudaMemcpyKind kind, cudaStream_t stream),
    cu.cuMemcpy2DAsync_v2(&(CUDA_MEMCPY2D[1]){plane(to, to_pitch, from, from_pitch, width, height, kind)}[0], stream))

/* Positions and widths count elements where an array takes part; arrays are given in bytes of one here. */
static cudaError_t box(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *out) {
    NEED(p, cudaErrorInvalidValue);
    *out = (CUDA_MEMCPY3D){
        .srcXInBytes = p->srcPos.x,
        .srcY = p->srcPos.y,
        .srcZ = p->srcPos.z,
        .srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : side(p->kind, true),
        .srcHost = p->srcPtr.ptr,
        .srcDevice = (CUdeviceptr)p->srcPtr.ptr,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPtr.pitch,
        .srcHeight = p->srcPtr.ysize,
        .dstXInBytes = p->dstPos.x,
        .dstY = p->dstPos.y,
        .dstZ = p->dstPos.z,
        .dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : side(p->kind, false),
        .dstHost = p->dstPtr.ptr,
        .dstDevice = (CUdeviceptr)p->dstPtr.ptr,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPtr.pitch,
        .dstHeight = p->dstPtr.ysize,
        .WidthInBytes = p->extent.width,
        .Height = p->extent.height,
        .Depth = p->extent.depth,
    };
    return cudaSuccess;
}

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, const cudaStream_t *stream) {
    CUDA_MEMCPY3D copy;
    TRY(box(p, &copy));
    return (cudaError_t)(stream ? cu.cuMemcpy3DAsync_v2(&copy, *stream) : cu.cuMemcpy3D_v2(&copy));
}
CALL(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), copy_3d(p, NULL))
STREAM(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t stream), copy_3d(p, &stream))

/* ---- variables of the device ---- */

static cudaError_t place(const void *symbol, size_t offset, size_t count, char **address) {
    CUdeviceptr base;
    size_t bytes;
    TRY(runtime_symbol(symbol, &base, &bytes));
    NEED(offset <= bytes && count <= bytes - offset, cudaErrorInvalidValue);
    *address = (char *)base + offset;
    return cudaSuccess;
}

static cudaError_t symbol(const void *symbol, void *other, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
    const cudaStream_t *stream, bool into) {
    char *address;
    TRY(place(symbol, offset, bytes, &address));
    void *to = into ? address : other;
    const void *from = into ? other : address;
    return stream ? copy_on(to, from, bytes, kind, *stream) : copy(to, from, bytes, kind);
}
CALL(cudaMemcpyToSymbol,
    (const void *variable, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind),
    symbol(variable, (void *)from, bytes, offset, kind, NULL, true))
CALL(cudaMemcpyFromSymbol, (void *to, const void *variable, size_t bytes, size_t offset, enum cudaMemcpyKind kind),
    symbol(variable, to, bytes, offset, kind, NULL, false))
STREAM(cudaMemcpyToSymbolAsync,
    (const void *variable, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
        cudaStream_t stream),
    symbol(variable, (void *)from, bytes, offset, kind, &stream, true))
STREAM(cudaMemcpyFromSymbolAsync,
    (void *to, const void *variable, size_t bytes, size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream),
    symbol(variable, to, bytes, offset, kind, &stream, false))

/* ---- memsets ---- */

CALL(cudaMemset, (void *pointer, int value, size_t bytes),
    cu.cuMemsetD8_v2((CUdeviceptr)pointer, (unsigned char)value, bytes))
STREAM(cudaMemsetAsync, (void *pointer, int value, size_t bytes, cudaStream_t stream),
    cu.cuMemsetD8Async((CUdeviceptr)pointer, (unsigned char)value, bytes, stream))
CALL(cudaMemset2D, (void *pointer, size_t pitch, int value, size_t width, size_t height),
    cu.cuMemsetD2D8_v2((CUdeviceptr)pointer, pitch, (unsigned char)value, width, height))
STREAM(cudaMemset2DAsync, (void *pointer, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
    cu.cuMemsetD2D8Async((CUdeviceptr)pointer, pitch, (unsigned char)value, width, height, stream))
