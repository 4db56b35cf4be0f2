/*
 * memory.c - plain allocations: cuMemAlloc, pitched, managed, and cuMemFree. memory.h says how all families count.
 *
 * A pointer is taken out of the ledger before the driver frees it, and put back if that fails: afterwards another thread
 * may already have got the same address. A pointer that is not in the ledger (allocated before we were there, imported,
 * from a pool) goes through.
 */
#include "libhook/hooks/memory.h"

#include <errno.h>
#include <stddef.h>

#include "libhook/core/ledger.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/devices.h"

/* Pitches are multiples of 512 bytes on every card since Kepler (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT). */
static const uint64_t PIECE = 512;
static const uint64_t SMALL = 1ull << 20;
static const uint64_t PAGE = 2ull << 20;

static uint64_t round_up(uint64_t bytes, uint64_t step) {
    return bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

uint64_t memory_rounded(uint64_t bytes) {
    return round_up(bytes, bytes > SMALL ? PAGE : PIECE);
}

/* Running free is no error: what is allocated now is said in a later Hello. */
bool memory_is_counted(void) {
    if (!agent_is_tenant() || !devices_begun())
        return false;
    agent_attach();
    return agent_is_tenant();
}

int memory_device_of(CUdevice device) {
    return memory_is_counted() ? devices_of_cuda(device) : -1;
}

int memory_device(void) {
    return memory_is_counted() ? context_current()->ordinal : -1;
}

CUdevice memory_device_in(CUstream stream) {
    return memory_is_counted() ? context_of_stream(stream).device : -1;
}

int memory_reserve(int device, uint64_t bytes, bool spare) {
    int error = account_reserve(device, bytes, spare);
    if (error == -ENOMEM && __atomic_load_n(&memory_pools_used, __ATOMIC_RELAXED)) {
        memory_settle_pools(true);
        error = account_reserve(device, bytes, spare);
    }
    return error;
}

void memory_enter(uint32_t kind, uint64_t key, int device, uint64_t reserved, uint64_t bytes, CUcontext owner) {
    if (bytes > reserved) /* it took more than it can; count what was granted, rather than what nobody granted */
        bytes = reserved;
    account_enter(&(struct ledger_entry){
        .kind = kind, .key = key, .bytes = bytes, .device = device, .owner = (uint64_t)(uintptr_t)owner});
    account_return(device, reserved - bytes, false);
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    int device = pointer == NULL || bytes == 0 ? -1 : memory_device();
    if (device < 0)
        return real.cuMemAlloc_v2(pointer, bytes);
    uint64_t rounded = memory_rounded(bytes);
    if (memory_reserve(device, rounded, false) != 0)
        return memory_refused(real.cuMemAlloc_v2(pointer, MEMORY_BEYOND_ANY_CARD), true);
    CUresult result = real.cuMemAlloc_v2(pointer, bytes);
    if (result == CUDA_SUCCESS)
        memory_enter(LEDGER_POINTER, *pointer, device, rounded, rounded, context_current()->context);
    else
        account_return(device, rounded, false);
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    int device = pointer == NULL || bytes == 0 ? -1 : memory_device();
    if (device < 0)
        return real.cuMemAllocManaged(pointer, bytes, flags);
    uint64_t rounded = memory_rounded(bytes);
    if (memory_reserve(device, rounded, false) != 0)
        return memory_refused(real.cuMemAllocManaged(pointer, MEMORY_BEYOND_ANY_CARD, flags),
            flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
    CUresult result = real.cuMemAllocManaged(pointer, bytes, flags);
    if (result == CUDA_SUCCESS)
        memory_enter(LEDGER_POINTER, *pointer, device, rounded, rounded, context_current()->context);
    else
        account_return(device, rounded, false);
    return result;
}

CUresult cuMemAllocPitch_v2(
    CUdeviceptr *pointer, size_t *pitch, size_t width_in_bytes, size_t height, unsigned int element_size_bytes) {
    uint64_t bytes;
    bool sensible = pointer != NULL && pitch != NULL && width_in_bytes != 0 && height != 0 &&
                    !__builtin_mul_overflow(round_up(width_in_bytes, PIECE), height, &bytes);
    int device = sensible ? memory_device() : -1;
    if (device < 0)
        return real.cuMemAllocPitch_v2(pointer, pitch, width_in_bytes, height, element_size_bytes);
    uint64_t rounded = memory_rounded(bytes);
    if (memory_reserve(device, rounded, false) != 0)
        return memory_refused(real.cuMemAllocPitch_v2(pointer, pitch, width_in_bytes,
                                  MEMORY_BEYOND_ANY_CARD / round_up(width_in_bytes, PIECE), element_size_bytes),
            element_size_bytes == 4 || element_size_bytes == 8 || element_size_bytes == 16);
    CUresult result = real.cuMemAllocPitch_v2(pointer, pitch, width_in_bytes, height, element_size_bytes);
    if (result == CUDA_SUCCESS)
        memory_enter(LEDGER_POINTER, *pointer, device, rounded, memory_rounded((uint64_t)*pitch * height),
            context_current()->context);
    else
        account_return(device, rounded, false);
    return result;
}

void memory_freeing(CUdeviceptr pointer, struct ledger_entry *entry) {
    if (!account_take(LEDGER_POOLED, pointer, entry) && !account_take(LEDGER_POINTER, pointer, entry))
        entry->kind = 0;
}

void memory_freed(const struct ledger_entry *entry, CUresult result) {
    if (entry->kind == 0)
        return;
    if (result != CUDA_SUCCESS)
        account_enter(entry);
    else if (entry->kind == LEDGER_POOLED)
        memory_freed_pooled(entry);
    else
        account_return(entry->device, entry->bytes, false);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    struct ledger_entry entry;
    memory_freeing(pointer, &entry);
    CUresult result = real.cuMemFree_v2(pointer);
    memory_freed(&entry, result);
    memory_synchronized(); /* freeing so synchronises, and pools may have shrunk */
    return result;
}
