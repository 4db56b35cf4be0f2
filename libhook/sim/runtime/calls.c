/* Streams, events, memory and pools: calls that are one line over the driver, each once. */
#include "libhook/sim/runtime/runtime.h"

/* ---- the device as a whole ---- */

CALL(cudaDeviceSynchronize, (void), cu.cuCtxSynchronize())
CALL(cudaDeviceGetLimit, (size_t *value, int limit), cu.cuCtxGetLimit(value, limit))
CALL(cudaDeviceSetLimit, (int limit, size_t value), cu.cuCtxSetLimit(limit, value))
CALL(cudaDeviceGetCacheConfig, (int *config), cu.cuCtxGetCacheConfig(config))
CALL(cudaDeviceSetCacheConfig, (int config), cu.cuCtxSetCacheConfig(config))
CALL(cudaDeviceGetSharedMemConfig, (int *config), cu.cuCtxGetSharedMemConfig(config))
CALL(cudaDeviceSetSharedMemConfig, (int config), cu.cuCtxSetSharedMemConfig(config))
CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), cu.cuCtxGetStreamPriorityRange(least, greatest))
CALL(cudaCtxResetPersistingL2Cache, (void), cu.cuCtxResetPersistingL2Cache())
CALL(cudaProfilerStart, (void), cu.cuProfilerStart())
CALL(cudaProfilerStop, (void), cu.cuProfilerStop())

/* ---- streams ---- */

CALL(cudaStreamCreate, (cudaStream_t * out), cu.cuStreamCreate(out, 0))
CALL(cudaStreamCreateWithFlags, (cudaStream_t * out, unsigned int flags), cu.cuStreamCreate(out, flags))
CALL(cudaStreamCreateWithPriority, (cudaStream_t * out, unsigned int flags, int priority),
    cu.cuStreamCreateWithPriority(out, flags, priority))
CALL(cudaStreamDestroy, (cudaStream_t stream), cu.cuStreamDestroy_v2(stream))
STREAM(cudaStreamSynchronize, (cudaStream_t stream), cu.cuStreamSynchronize(stream))
STREAM(cudaStreamQuery, (cudaStream_t stream), cu.cuStreamQuery(stream))
STREAM(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
    cu.cuStreamWaitEvent(stream, event, flags))
STREAM(cudaStreamAddCallback, (cudaStream_t stream, CUstreamCallback callback, void *data, unsigned int flags),
    cu.cuStreamAddCallback(stream, callback, data, flags))
STREAM(cudaStreamAttachMemAsync, (cudaStream_t stream, void *pointer, size_t bytes, unsigned int flags),
    cu.cuStreamAttachMemAsync(stream, (CUdeviceptr)pointer, bytes, flags))
STREAM(cudaStreamGetPriority, (cudaStream_t stream, int *priority), cu.cuStreamGetPriority(stream, priority))
STREAM(cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags), cu.cuStreamGetFlags(stream, flags))
STREAM(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), cu.cuStreamGetId(stream, id))
STREAM(cudaStreamGetAttribute, (cudaStream_t stream, int attribute, CUstreamAttrValue *value),
    cu.cuStreamGetAttribute(stream, attribute, value))
STREAM(cudaStreamSetAttribute, (cudaStream_t stream, int attribute, const CUstreamAttrValue *value),
    cu.cuStreamSetAttribute(stream, attribute, value))
STREAM(cudaStreamCopyAttributes, (cudaStream_t to, cudaStream_t stream), cu.cuStreamCopyAttributes(to, stream))
STREAM(cudaLaunchHostFunc, (cudaStream_t stream, CUhostFn function, void *data),
    cu.cuLaunchHostFunc(stream, function, data))

static cudaError_t device_of(cudaStream_t stream, int *device) {
    CUcontext context;
    TRY(cu.cuStreamGetCtx(stream, &context));
    TRY(cu.cuCtxPushCurrent_v2(context));
    cudaError_t result = (cudaError_t)cu.cuCtxGetDevice(device);
    cu.cuCtxPopCurrent_v2(&context);
    return result;
}
STREAM(cudaStreamGetDevice, (cudaStream_t stream, int *device), device_of(stream, device))

/* ---- events ---- */

CALL(cudaEventCreate, (cudaEvent_t * event), cu.cuEventCreate(event, 0))
CALL(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags), cu.cuEventCreate(event, flags))
CALL(cudaEventDestroy, (cudaEvent_t event), cu.cuEventDestroy_v2(event))
STREAM(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cu.cuEventRecord(event, stream))
STREAM(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
    cu.cuEventRecordWithFlags(event, stream, flags))
CALL(cudaEventQuery, (cudaEvent_t event), cu.cuEventQuery(event))
CALL(cudaEventSynchronize, (cudaEvent_t event), cu.cuEventSynchronize(event))
CALL(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end),
    cu.cuEventElapsedTime(milliseconds, start, end))

/* ---- memory of the device ---- */

/* Of no bytes at all the runtime gives no address and no error; the driver refuses. */
CALL(cudaMalloc, (void **pointer, size_t bytes),
    bytes || !pointer ? cu.cuMemAlloc_v2((CUdeviceptr *)pointer, bytes) : (*pointer = NULL, CUDA_SUCCESS))
CALL(cudaFree, (void *pointer), cu.cuMemFree_v2((CUdeviceptr)pointer))
CALL(cudaMallocPitch, (void **pointer, size_t *pitch, size_t width, size_t height),
    cu.cuMemAllocPitch_v2((CUdeviceptr *)pointer, pitch, width, height, 4))
CALL(cudaMallocManaged, (void **pointer, size_t bytes, unsigned int flags),
    cu.cuMemAllocManaged((CUdeviceptr *)pointer, bytes, flags))
CALL(cudaMemGetInfo, (size_t *free, size_t *total), cu.cuMemGetInfo_v2(free, total))

static cudaError_t malloc_3d(struct cudaPitchedPtr *out, struct cudaExtent extent) {
    CUdeviceptr pointer;
    NEED(out, cudaErrorInvalidValue);
    TRY(cu.cuMemAllocPitch_v2(&pointer, &out->pitch, extent.width, extent.height * extent.depth, 4));
    out->ptr = (void *)pointer;
    out->xsize = extent.width;
    out->ysize = extent.height;
    return cudaSuccess;
}
CALL(cudaMalloc3D, (struct cudaPitchedPtr * out, struct cudaExtent extent), malloc_3d(out, extent))

/* ---- memory in stream order ---- */

STREAM(cudaMallocAsync, (void **pointer, size_t bytes, cudaStream_t stream),
    cu.cuMemAllocAsync((CUdeviceptr *)pointer, bytes, stream))
STREAM(cudaMallocFromPoolAsync, (void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
    cu.cuMemAllocFromPoolAsync((CUdeviceptr *)pointer, bytes, pool, stream))
STREAM(cudaFreeAsync, (void *pointer, cudaStream_t stream), cu.cuMemFreeAsync((CUdeviceptr)pointer, stream))
CALL(cudaMemPoolCreate, (cudaMemPool_t * pool, const CUmemPoolProps *props), cu.cuMemPoolCreate(pool, props))
CALL(cudaMemPoolDestroy, (cudaMemPool_t pool), cu.cuMemPoolDestroy(pool))
CALL(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes), cu.cuMemPoolTrimTo(pool, bytes))
CALL(cudaMemPoolGetAttribute, (cudaMemPool_t pool, int attribute, void *value),
    cu.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value))
CALL(cudaMemPoolSetAttribute, (cudaMemPool_t pool, int attribute, void *value),
    cu.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value))
CALL(cudaMemPoolSetAccess, (cudaMemPool_t pool, const CUmemAccessDesc *list, size_t count),
    cu.cuMemPoolSetAccess(pool, list, count))
CALL(cudaMemPoolGetAccess, (CUmemAccess_flags * flags, cudaMemPool_t pool, CUmemLocation *location),
    cu.cuMemPoolGetAccess(flags, pool, location))

/* ---- memory of the host ---- */

CALL(cudaMallocHost, (void **pointer, size_t bytes), cu.cuMemHostAlloc(pointer, bytes, 0))
CALL(cudaHostAlloc, (void **pointer, size_t bytes, unsigned int flags), cu.cuMemHostAlloc(pointer, bytes, flags))
CALL(cudaFreeHost, (void *pointer), pointer ? cu.cuMemFreeHost(pointer) : CUDA_SUCCESS)
CALL(
    cudaHostRegister, (void *pointer, size_t bytes, unsigned int flags), cu.cuMemHostRegister_v2(pointer, bytes, flags))
CALL(cudaHostUnregister, (void *pointer), cu.cuMemHostUnregister(pointer))
CALL(cudaHostGetDevicePointer, (void **out, void *pointer, unsigned int flags),
    cu.cuMemHostGetDevicePointer_v2((CUdeviceptr *)out, pointer, flags))
CALL(cudaHostGetFlags, (unsigned int *flags, void *pointer), cu.cuMemHostGetFlags(flags, pointer))

/* ---- advice ---- */

#if CUDA_MAJOR >= 13
STREAM(cudaMemPrefetchAsync,
    (const void *pointer, size_t bytes, CUmemLocation location, unsigned int flags, cudaStream_t stream),
    cu.cuMemPrefetchAsync_v2((CUdeviceptr)pointer, bytes, location, flags, stream))
CALL(cudaMemAdvise, (const void *pointer, size_t bytes, int advice, CUmemLocation location),
    cu.cuMemAdvise_v2((CUdeviceptr)pointer, bytes, advice, location))
#else
STREAM(cudaMemPrefetchAsync, (const void *pointer, size_t bytes, int device, cudaStream_t stream),
    cu.cuMemPrefetchAsync((CUdeviceptr)pointer, bytes, device, stream))
CALL(cudaMemAdvise, (const void *pointer, size_t bytes, int advice, int device),
    cu.cuMemAdvise((CUdeviceptr)pointer, bytes, advice, device))
#endif
CALL(cudaMemRangeGetAttribute, (void *data, size_t data_bytes, int attribute, const void *pointer, size_t bytes),
    cu.cuMemRangeGetAttribute(data, data_bytes, attribute, (CUdeviceptr)pointer, bytes))

/* ---- between processes ---- */

CALL(cudaIpcGetMemHandle, (CUipcMemHandle * handle, void *pointer), cu.cuIpcGetMemHandle(handle, (CUdeviceptr)pointer))
CALL(cudaIpcOpenMemHandle, (void **pointer, CUipcMemHandle handle, unsigned int flags),
    cu.cuIpcOpenMemHandle_v2((CUdeviceptr *)pointer, handle, flags))
CALL(cudaIpcCloseMemHandle, (void *pointer), cu.cuIpcCloseMemHandle((CUdeviceptr)pointer))
CALL(cudaIpcGetEventHandle, (CUipcEventHandle * handle, cudaEvent_t event), cu.cuIpcGetEventHandle(handle, event))
CALL(cudaIpcOpenEventHandle, (cudaEvent_t * event, CUipcEventHandle handle), cu.cuIpcOpenEventHandle(event, handle))
