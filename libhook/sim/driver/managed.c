/*
 * Managed memory: simply memory here. Advice is remembered, of a whole allocation, and has nothing to move; a prefetch
 * takes the time of the copy it would be.
 */
#include "libhook/sim/driver/managed.h"

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/queue.h"

/* CUmem_advise and CUmem_range_attribute. */
enum {
    ADVISE_READ_MOSTLY = 1,
    ADVISE_NOT_READ_MOSTLY,
    ADVISE_PREFERRED,
    ADVISE_NOT_PREFERRED,
    ADVISE_ACCESSED_BY,
    ADVISE_NOT_ACCESSED_BY
};
enum {
    RANGE_READ_MOSTLY = 1,
    RANGE_PREFERRED,
    RANGE_ACCESSED_BY,
    RANGE_PREFETCHED,
    RANGE_PREFERRED_TYPE,
    RANGE_PREFERRED_ID,
    RANGE_PREFETCHED_TYPE,
    RANGE_PREFETCHED_ID
};

CUresult managed_check(CUdeviceptr pointer, size_t bytes) {
    struct block block;
    INIT();
    NEED(bytes && heap_find(pointer, &block) && block_is_managed(&block), CUDA_ERROR_INVALID_VALUE);
    return pointer + bytes <= block.address + block.bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Places are the cards, and after them the CPU. */
static bool is_place(CUmemLocation place) {
    return place.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_exists(place.id)
                                                     : place.type != CU_MEM_LOCATION_TYPE_INVALID;
}

static uint32_t place_bit(CUmemLocation place) {
    return 1u << (place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : SIM_DEVICES);
}

static CUmemLocation place_of(CUdevice device) {
    return (CUmemLocation){
        device >= 0 ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST, device >= 0 ? device : 0};
}

/* As the older calls name a place. */
static int place_number(CUmemLocation place) {
    return place.type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
           : place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id
                                                       : CU_DEVICE_CPU;
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t count, CUmem_advise advice, CUmemLocation place) {
    struct block block;
    TRY(managed_check(pointer, count));
    bool about_a_place = advice == ADVISE_PREFERRED || advice == ADVISE_ACCESSED_BY || advice == ADVISE_NOT_ACCESSED_BY;
    NEED(heap_find(pointer, &block) && (!about_a_place || is_place(place)), CUDA_ERROR_INVALID_VALUE);
    switch (advice) {
    case ADVISE_READ_MOSTLY: block.read_mostly = true; break;
    case ADVISE_NOT_READ_MOSTLY: block.read_mostly = false; break;
    case ADVISE_PREFERRED: block.preferred = place; break;
    case ADVISE_NOT_PREFERRED: block.preferred = (CUmemLocation){0}; break;
    case ADVISE_ACCESSED_BY: block.accessed_by |= place_bit(place); break;
    case ADVISE_NOT_ACCESSED_BY: block.accessed_by &= ~place_bit(place); break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return heap_update(block.address, &block) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t count, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(pointer, count, advice, place_of(device));
}

CUresult managed_prefetch(CUdeviceptr pointer, size_t bytes, CUmemLocation to, CUstream handle, bool per_thread) {
    struct CUstream_st *stream;
    struct block block;
    TRY(managed_check(pointer, bytes));
    TRY(stream_of(handle, per_thread, &stream));
    NEED(!stream_capturing(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct work work = {.kind = to.type == CU_MEM_LOCATION_TYPE_DEVICE ? SIM_TO_DEVICE : SIM_TO_HOST};
    work.duration_ns = spec()->copy_latency_ns + (uint64_t)((double)bytes * 1e9 / (double)spec()->host_bytes_per_s);
    if (heap_find(pointer, &block)) {
        block.prefetched = to;
        heap_update(block.address, &block);
    }
    return queue_push(stream, &work, NULL);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t count, CUdevice device, CUstream stream) {
    return managed_prefetch(pointer, count, place_of(device), stream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t count, CUdevice device, CUstream stream) {
    return managed_prefetch(pointer, count, place_of(device), stream, true);
}

CUresult cuMemPrefetchAsync_v2(
    CUdeviceptr pointer, size_t count, CUmemLocation location, unsigned int flags, CUstream stream) {
    NEED(!flags, CUDA_ERROR_INVALID_VALUE);
    return managed_prefetch(pointer, count, location, stream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(
    CUdeviceptr pointer, size_t count, CUmemLocation location, unsigned int flags, CUstream stream) {
    NEED(!flags, CUDA_ERROR_INVALID_VALUE);
    return managed_prefetch(pointer, count, location, stream, true);
}

/* The places of a set, the cards first; what is left of the room says that there is none. */
static void list_places(uint32_t set, int *out, size_t room) {
    size_t count = 0;
    for (int place = 0; place <= SIM_DEVICES; place++)
        if (set & 1u << place && count < room)
            out[count++] = place == SIM_DEVICES ? CU_DEVICE_CPU : place;
    while (count < room)
        out[count++] = CU_DEVICE_INVALID;
}

CUresult cuMemRangeGetAttribute(
    void *data, size_t bytes, CUmem_range_attribute attribute, CUdeviceptr pointer, size_t count) {
    struct block block;
    int *out = data;
    NEED(data && bytes >= 4 && bytes % 4 == 0, CUDA_ERROR_INVALID_VALUE);
    TRY(managed_check(pointer, count));
    NEED(heap_find(pointer, &block), CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case RANGE_READ_MOSTLY: *out = block.read_mostly; return CUDA_SUCCESS;
    case RANGE_PREFERRED: *out = place_number(block.preferred); return CUDA_SUCCESS;
    case RANGE_ACCESSED_BY: list_places(block.accessed_by, out, bytes / 4); return CUDA_SUCCESS;
    case RANGE_PREFETCHED: *out = place_number(block.prefetched); return CUDA_SUCCESS;
    case RANGE_PREFERRED_TYPE: *out = (int)block.preferred.type; return CUDA_SUCCESS;
    case RANGE_PREFERRED_ID: *out = block.preferred.id; return CUDA_SUCCESS;
    case RANGE_PREFETCHED_TYPE: *out = (int)block.prefetched.type; return CUDA_SUCCESS;
    case RANGE_PREFETCHED_ID: *out = block.prefetched.id; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemRangeGetAttributes(
    void **data, size_t *bytes, CUmem_range_attribute *attributes, size_t number, CUdeviceptr pointer, size_t count) {
    NEED(data && bytes && attributes && number, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < number; i++)
        TRY(cuMemRangeGetAttribute(data[i], bytes[i], attributes[i], pointer, count));
    return CUDA_SUCCESS;
}
