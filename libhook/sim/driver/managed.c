/* Managed memory: simply memory here. Advice has nothing to move; a prefetch takes the time of the copy it would be. */
#include "libhook/sim/driver/managed.h"

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/queue.h"

CUresult managed_check(CUdeviceptr pointer, size_t bytes) {
    struct block block;
    INIT();
    NEED(bytes && heap_find(pointer, &block) && block.kind == BLOCK_MANAGED, CUDA_ERROR_INVALID_VALUE);
    return pointer + bytes <= block.address + block.bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t count, CUmem_advise advice, CUdevice device) {
    (void)device;
    NEED(advice >= 1 && advice <= 6, CUDA_ERROR_INVALID_VALUE);
    return managed_check(pointer, count);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t count, CUmem_advise advice, CUmemLocation location) {
    return cuMemAdvise(pointer, count, advice, location.id);
}

CUresult managed_prefetch(CUdeviceptr pointer, size_t bytes, bool to_device, CUstream handle, bool per_thread) {
    struct CUstream_st *stream;
    TRY(managed_check(pointer, bytes));
    TRY(stream_of(handle, per_thread, &stream));
    NEED(!stream_capturing(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct work work = {.kind = to_device ? SIM_TO_DEVICE : SIM_TO_HOST};
    work.duration_ns = spec()->copy_latency_ns + (uint64_t)((double)bytes * 1e9 / (double)spec()->host_bytes_per_s);
    return queue_push(stream, &work, NULL);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t count, CUdevice device, CUstream stream) {
    return managed_prefetch(pointer, count, device >= 0, stream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t count, CUdevice device, CUstream stream) {
    return managed_prefetch(pointer, count, device >= 0, stream, true);
}

CUresult cuMemPrefetchAsync_v2(
    CUdeviceptr pointer, size_t count, CUmemLocation location, unsigned int flags, CUstream stream) {
    NEED(!flags, CUDA_ERROR_INVALID_VALUE);
    return managed_prefetch(pointer, count, location.type == CU_MEM_LOCATION_TYPE_DEVICE, stream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(
    CUdeviceptr pointer, size_t count, CUmemLocation location, unsigned int flags, CUstream stream) {
    NEED(!flags, CUDA_ERROR_INVALID_VALUE);
    return managed_prefetch(pointer, count, location.type == CU_MEM_LOCATION_TYPE_DEVICE, stream, true);
}

CUresult cuMemRangeGetAttribute(
    void *data, size_t bytes, CUmem_range_attribute attribute, CUdeviceptr pointer, size_t count) {
    NEED(data && bytes >= 4 && attribute >= 1 && attribute <= 8, CUDA_ERROR_INVALID_VALUE);
    TRY(managed_check(pointer, count));
    *(int *)data = attribute == 1 ? 0 : CU_DEVICE_INVALID;
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttributes(
    void **data, size_t *bytes, CUmem_range_attribute *attributes, size_t number, CUdeviceptr pointer, size_t count) {
    NEED(data && bytes && attributes && number, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < number; i++)
        TRY(cuMemRangeGetAttribute(data[i], bytes[i], attributes[i], pointer, count));
    return CUDA_SUCCESS;
}
