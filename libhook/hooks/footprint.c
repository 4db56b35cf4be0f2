/*
 * footprint.c - measuring contexts.
 *
 * Before: FIRST_GUESS is reserved (what the last context on this device cost, once one was measured), so that a tenant
 * at its limit is refused before anything is allocated. After: NVML is asked for the memory of each process on the card;
 * what was added since before is the context's. The process is found by its pid, or, in a pid namespace, where NVML knows
 * another number for it, as the only one that appeared. If the context cost more than was reserved and the rest is
 * refused, the caller destroys it again: for that moment, and by that much, the tenant is above its limit.
 *
 * Where NVML cannot be had, or cannot tell, FALLBACK is counted. The simulated card takes 32 MiB for each context and
 * says so by its NVML. The daemon sees the host's pids, and may correct the figures from there.
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
#include "libhook/hooks/devices.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent.h"

static const uint64_t FIRST_GUESS = 32ull << 20;
/* Of a context without a module on cards since Volta: about 100 to 500 MB. To be replaced by what gpu-check measures. */
static const uint64_t FALLBACK = 256ull << 20;

enum { PRIMARY = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t measured[WIRE_MAX_DEVICES]; /* the last context's; under lock */

static void forget_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void take_lock(void) {
    static int watching;
    if (__atomic_exchange_n(&watching, 1, __ATOMIC_RELAXED) == 0)
        pthread_atfork(NULL, NULL, forget_in_child);
    pthread_mutex_lock(&lock);
}

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

/* The processes on the card and their memory. Returns how many, or -1 where nobody can say. */
static int read_processes(CUdevice device, nvmlProcessInfo_t *infos) {
    const struct real_nvml *nvml = real_nvml(true);
    nvmlDevice_t handle;
    unsigned int count = FOOTPRINT_READINGS;
    int found = -1;
    if (nvml == NULL || nvml->nvmlInit_v2 == NULL || nvml->nvmlShutdown == NULL || nvml->nvmlInit_v2() != NVML_SUCCESS)
        return -1;
    __typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *list = nvml->nvmlDeviceGetComputeRunningProcesses_v3;
    if (list == NULL)
        list = nvml->nvmlDeviceGetComputeRunningProcesses_v2;
    if (list != NULL && nvml_device(nvml, device, &handle) && list(handle, &count, infos) == NVML_SUCCESS)
        found = (int)count;
    nvml->nvmlShutdown(); /* it counts its users */
    return found;
}

static uint64_t before_of(const struct footprint *footprint, unsigned int pid) {
    for (int i = 0; i < footprint->readings; i++)
        if (footprint->before[i].pid == pid)
            return footprint->before[i].bytes;
    return 0;
}

static bool sensible(unsigned long long bytes) {
    return bytes > 0 && bytes != UINT64_MAX; /* NVML_VALUE_NOT_AVAILABLE is all ones */
}

/* What of this process's memory is counted and not credit. */
static uint64_t in_use(int device) {
    uint64_t held = account_held(device);
    uint64_t credit = account_credit(device);
    return held > credit ? held - credit : 0;
}

/* What the context cost, or 0: nobody can say. */
static uint64_t measure(const struct footprint *footprint) {
    nvmlProcessInfo_t infos[FOOTPRINT_READINGS];
    int count = footprint->readings < 0 ? -1 : read_processes(footprint->cuda_device, infos);
    unsigned int own = (unsigned int)getpid();
    uint64_t newcomer = 0;
    int newcomers = 0;
    for (int i = 0; i < count; i++) {
        uint64_t before = before_of(footprint, infos[i].pid);
        if (!sensible(infos[i].usedGpuMemory) || infos[i].usedGpuMemory <= before)
            continue;
        if (infos[i].pid == own) {
            uint64_t added = infos[i].usedGpuMemory - before;
            uint64_t now = in_use(footprint->device); /* other threads may have allocated meanwhile */
            uint64_t others = now > footprint->in_use ? now - footprint->in_use : 0;
            return added > others ? added - others : 0;
        }
        if (before == 0) {
            newcomer = infos[i].usedGpuMemory;
            newcomers++;
        }
    }
    return newcomers == 1 ? newcomer : 0;
}

CUresult footprint_making(struct footprint *footprint, CUdevice device, bool primary) {
    footprint->locked = false;
    footprint->device = memory_device_of(device);
    footprint->cuda_device = device;
    footprint->primary = primary;
    footprint->readings = -1;
    if (footprint->device < 0 || footprint->device >= WIRE_MAX_DEVICES)
        return CUDA_SUCCESS;
    take_lock();
    if (primary && footprint_primary(device) != NULL) { /* it is there, and counted */
        pthread_mutex_unlock(&lock);
        return CUDA_SUCCESS;
    }
    uint64_t guess = measured[footprint->device] != 0 ? measured[footprint->device] : FIRST_GUESS;
    if (memory_reserve(footprint->device, guess, false) != 0) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    footprint->locked = true;
    footprint->reserved = guess;
    footprint->in_use = in_use(footprint->device);
    nvmlProcessInfo_t infos[FOOTPRINT_READINGS];
    footprint->readings = read_processes(device, infos);
    for (int i = 0; i < footprint->readings; i++) {
        footprint->before[i].pid = infos[i].pid;
        footprint->before[i].bytes = infos[i].usedGpuMemory;
    }
    return CUDA_SUCCESS;
}

/* Make `reserved` equal to what the context costs; -ENOMEM where the tenant has not so much. */
static int adjust(struct footprint *footprint) {
    uint64_t bytes = measure(footprint);
    if (bytes == 0)
        bytes = measured[footprint->device] != 0 ? measured[footprint->device] : FALLBACK;
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
