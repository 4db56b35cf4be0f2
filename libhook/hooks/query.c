/*
 * query.c - what the tenant is told about its memory through the driver: the card is as large as its limit, and what all
 * of its processes hold is used. The real figures are bounds: nobody is promised what the card has not got.
 */
#include <stddef.h>

#include "libhook/driver/real.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent_memory.h"

bool memory_figures(int device, uint64_t *limit, uint64_t *used) {
    if (device < 0)
        return false;
    memory_synchronized();
    if (agent_memory_figures(device, true, limit, used) != 0 || *limit == 0)
        return false;
    uint64_t credit = account_credit(device); /* ours, and nobody uses it */
    *used -= credit < *used ? credit : *used;
    return true;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    uint64_t limit;
    uint64_t used;
    CUresult result = real.cuMemGetInfo_v2(free_bytes, total_bytes);
    if (result != CUDA_SUCCESS || !memory_figures(memory_device(), &limit, &used))
        return result;
    uint64_t left = limit > used ? limit - used : 0;
    if (free_bytes != NULL && *free_bytes > left)
        *free_bytes = left;
    if (total_bytes != NULL && *total_bytes > limit)
        *total_bytes = limit;
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    uint64_t limit;
    uint64_t used;
    CUresult result = real.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS && bytes != NULL && memory_figures(memory_device_of(device), &limit, &used) &&
        *bytes > limit)
        *bytes = limit;
    return result;
}
