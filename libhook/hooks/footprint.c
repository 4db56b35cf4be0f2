/*
 * footprint.c - measuring contexts.
 *
 * Before: what the last context on this device cost is reserved, or what the daemon knows of the tenant's; FIRST_GUESS
 * where nobody has looked yet. So a tenant at its limit is refused before anything is allocated. After the tenant's first
 * one on a device the daemon is asked what it took: it has NVML open, sees the host's pids, and asks the card once for a
 * tenant. To start NVML in each process costs tens of milliseconds on a real card, and grows with the number of processes
 * that are on it. If the context cost more than was reserved and the rest is refused, the caller destroys it again: for
 * that moment, and by that much, the tenant is above its limit.
 *
 * Where the daemon cannot say, NVML is asked from here, and knows this process where the pids are the host's. Where
 * that fails too, FALLBACK is counted. Once that is known of a tenant, it is reserved for each context before it is
 * made, and one for which there is no room is not made at all. The simulated card takes 32 MiB for each context and
 * says so by its NVML.
 *
 * The lock is held across the driver's calls that make and end contexts: it orders nothing else, and no callback of the
 * program runs under it.
 */
#include "libhook/hooks/footprint.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

#include "libhook/core/ledger.h"
#include "libhook/core/wire.h"
#include "libhook/driver/real.h"
#include "libhook/driver/real_nvml.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent_memory.h"
#include "libhook/runtime/devices.h"
#include "libhook/runtime/forks.h"

static const uint64_t FIRST_GUESS = 32ull << 20;
/* Of a context on Hopper 500 MiB, and 100 more with its first kernels, from memory. To be replaced by what gpu-check
 * measures. */
static const uint64_t FALLBACK = 640ull << 20;

enum { PRIMARY = 1, READINGS = 256 };

FORKS_LOCK(lock, take_lock);
static uint64_t measured[WIRE_MAX_DEVICES]; /* the last context's; under lock */

/* NVML's handle of a CUDA device, found by UUID. */
static bool nvml_device(const struct real_nvml *nvml, CUdevice device, nvmlDevice_t *handle) {
    CUuuid uuid;
    char text[48] = "GPU-";
    static const char digits[] = "0123456789abcdef";
    if (real.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
        return false;
    char *out = text + 4;
    for (int i = 0; i < 16; i++) {
        unsigned char byte = ((const unsigned char *)&uuid)[i];
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = digits[byte >> 4];
        *out++ = digits[byte & 15];
    }
    *out = '\0';
    return nvml->nvmlDeviceGetHandleByUUID != NULL && nvml->nvmlDeviceGetHandleByUUID(text, handle) == NVML_SUCCESS;
}

/* What NVML says that the card holds for this process, or 0. */
static uint64_t read_own(CUdevice device) {
    const struct real_nvml *nvml = real_nvml(true);
    nvmlProcessInfo_t infos[READINGS];
    nvmlDevice_t handle;
    unsigned int count = READINGS, own = (unsigned int)getpid();
    uint64_t found = 0;
    if (nvml == NULL || nvml->nvmlInit_v2 == NULL || nvml->nvmlShutdown == NULL || nvml->nvmlInit_v2() != NVML_SUCCESS)
        return 0;
    __typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *list = nvml->nvmlDeviceGetComputeRunningProcesses_v3;
    if (list == NULL)
        list = nvml->nvmlDeviceGetComputeRunningProcesses_v2;
    if (list != NULL && nvml_device(nvml, device, &handle) && list(handle, &count, infos) == NVML_SUCCESS)
        for (unsigned int i = 0; i < count; i++)
            if (infos[i].pid == own && infos[i].usedGpuMemory != UINT64_MAX) /* NVML_VALUE_NOT_AVAILABLE */
                found = infos[i].usedGpuMemory;
    nvml->nvmlShutdown(); /* it counts its users */
    return found;
}

/* What of this process's memory is counted and not credit. */
static uint64_t in_use(int device) {
    uint64_t held = account_held(device);
    uint64_t credit = account_credit(device);
    return held > credit ? held - credit : 0;
}

/* What the context took that was just made: as the last one, for all of a program's are alike; else as it is said. */
static uint64_t cost_of(const struct footprint *footprint) {
    if (measured[footprint->device] != 0)
        return measured[footprint->device];
    uint64_t now = in_use(footprint->device), held = now > footprint->reserved ? now - footprint->reserved : 0;
    uint64_t bytes = agent_memory_of_context(footprint->device, held);
    if (bytes == 0) {
        uint64_t own = read_own(footprint->cuda_device);
        bytes = own > held ? own - held : 0;
    }
    return bytes != 0 ? bytes : FALLBACK;
}

/* What to reserve for a context that is about to be made; under lock. */
static uint64_t guess_for(int device) {
    if (measured[device] != 0)
        return measured[device];
    uint64_t known = agent_memory_context_known(device);
    if (known == WIRE_CONTEXT_KNOWN)
        return FALLBACK;
    measured[device] = known;
    return known != 0 ? known : FIRST_GUESS;
}

CUresult footprint_making(struct footprint *footprint, CUdevice device, bool primary) {
    footprint->locked = false;
    footprint->device = memory_device_of(device);
    footprint->cuda_device = device;
    footprint->primary = primary;
    if (footprint->device < 0 || footprint->device >= WIRE_MAX_DEVICES)
        return CUDA_SUCCESS;
    take_lock();
    if (primary && footprint_primary(device) != NULL) { /* it is there, and counted */
        pthread_mutex_unlock(&lock);
        return CUDA_SUCCESS;
    }
    uint64_t guess = guess_for(footprint->device);
    if (memory_reserve(footprint->device, guess, false) != 0) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    footprint->locked = true;
    footprint->reserved = guess;
    return CUDA_SUCCESS;
}

/* Make `reserved` equal to what the context costs; -ENOMEM where the tenant has not so much. */
static int adjust(struct footprint *footprint) {
    uint64_t bytes = cost_of(footprint);
    measured[footprint->device] = bytes;
    if (bytes > footprint->reserved && memory_reserve(footprint->device, bytes - footprint->reserved, false) != 0)
        return -ENOMEM;
    if (bytes < footprint->reserved)
        account_return(footprint->device, footprint->reserved - bytes, false);
    footprint->reserved = bytes;
    return 0;
}

CUresult footprint_made(struct footprint *footprint, CUresult result, CUcontext context) {
    if (!footprint->locked)
        return result;
    if (result == CUDA_SUCCESS && adjust(footprint) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        account_enter(&(struct ledger_entry){.kind = LEDGER_CONTEXT,
            .key = (uint64_t)(uintptr_t)context,
            .owner = (uint64_t)(uintptr_t)context,
            .bytes = footprint->reserved,
            .device = footprint->device,
            .link = (uint64_t)footprint->cuda_device,
            .refs = footprint->primary ? PRIMARY : 0});
    else
        account_return(footprint->device, footprint->reserved, false);
    pthread_mutex_unlock(&lock);
    return result;
}

void footprint_ending(void) {
    take_lock();
}

void footprint_ended(CUcontext context, bool gone) {
    if (gone && context != NULL)
        account_owner_ended((uint64_t)(uintptr_t)context);
    pthread_mutex_unlock(&lock);
}

CUcontext footprint_primary(CUdevice device) {
    CUcontext context = NULL;
    size_t cursor = 0;
    struct ledger *ledger = account_lock();
    for (struct ledger_entry *entry; (entry = ledger_next(ledger, &cursor)) != NULL;)
        if (entry->kind == LEDGER_CONTEXT && entry->refs == PRIMARY && entry->link == (uint64_t)device)
            context = (CUcontext)(uintptr_t)entry->key;
    account_unlock();
    return context;
}
