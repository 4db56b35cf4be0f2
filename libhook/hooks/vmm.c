/*
 * vmm.c - physical memory made by cuMemCreate. It is counted from its creation until the last handle is released and the
 * last mapping is gone, whichever comes last; reserving addresses takes nothing. Handles that were imported belong to
 * their exporter: they are not in the ledger, and neither are mappings of them.
 *
 * What was exported may live on in descriptors, in messages on their way and in whoever imported it, and nobody says
 * when it is gone: it counts for its maker until that process ends, and then for its tenant (the daemon's ledger.py). So
 * the daemon is told before there is a descriptor.
 */
#include <stddef.h>

#include "libhook/core/ledger.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/agent_memory.h"

/* The least that any device maps (cuMemGetAllocationGranularity): how far to go on where a range has a hole. */
static const uint64_t GRANULE = 2ull << 20;

/* In the `owner` of an object, which no context's end frees. */
static const uint64_t EXPORTED = 1;

static uint64_t objects; /* counted up for their keys; under the lock of the books */

/* One reference less. Returns the object's bytes when it was the last. Under the lock. */
static uint64_t drop_object(struct ledger *ledger, uint64_t key, int *device) {
    struct ledger_entry *object = ledger_find(ledger, LEDGER_OBJECT, key);
    struct ledger_entry gone;
    if (object == NULL || --object->refs > 0 || !ledger_take(ledger, LEDGER_OBJECT, key, &gone))
        return 0;
    *device = gone.device;
    return gone.bytes;
}

CUresult cuMemCreate(
    CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
    bool counted = handle != NULL && prop != NULL && size != 0 && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    int device = counted ? memory_device_of(prop->location.id) : -1;
    if (device < 0)
        return real.cuMemCreate(handle, size, prop, flags);
    if (memory_reserve(device, size, false) != 0) /* the size's last bits decide whether it is one at all */
        return memory_refused(
            real.cuMemCreate(handle, MEMORY_BEYOND_ANY_CARD | (size & (MEMORY_PAGE - 1)), prop, flags));
    CUresult result = real.cuMemCreate(handle, size, prop, flags);
    if (result != CUDA_SUCCESS) {
        account_return(device, size, false);
        return result;
    }
    struct ledger *ledger = account_lock();
    uint64_t object = ++objects;
    ledger_put(ledger,
        &(struct ledger_entry){.kind = LEDGER_OBJECT, .key = object, .bytes = size, .device = device, .refs = 1});
    ledger_put(ledger,
        &(struct ledger_entry){.kind = LEDGER_HANDLE, .key = *handle, .device = device, .refs = 1, .link = object});
    account_unlock();
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    /* Forgotten before the call, for afterwards the handle's value may be another's; remembered again if it fails. */
    struct ledger *ledger = account_lock();
    struct ledger_entry *entry = ledger_find(ledger, LEDGER_HANDLE, handle);
    struct ledger_entry before = {0};
    struct ledger_entry gone;
    if (entry != NULL) {
        before = *entry;
        if (--entry->refs == 0)
            ledger_take(ledger, LEDGER_HANDLE, handle, &gone);
    }
    account_unlock();
    CUresult result = real.cuMemRelease(handle);
    if (before.refs == 0)
        return result;
    uint64_t freed = 0;
    int device = -1;
    ledger = account_lock();
    if (result == CUDA_SUCCESS) {
        if (before.refs == 1)
            freed = drop_object(ledger, before.link, &device);
    } else {
        ledger_put(ledger, &before);
    }
    account_unlock();
    account_return(device, freed, false);
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    CUresult result = real.cuMemRetainAllocationHandle(handle, addr);
    if (result != CUDA_SUCCESS)
        return result;
    struct ledger *ledger = account_lock();
    struct ledger_entry *entry = ledger_find(ledger, LEDGER_HANDLE, *handle);
    if (entry != NULL) {
        entry->refs++;
    } else {
        /* The handle had been released, and lives again: the mapping at `addr` knows of which object. */
        size_t cursor = 0;
        struct ledger_entry *mapping;
        while ((mapping = ledger_next(ledger, &cursor)) != NULL)
            if (mapping->kind == LEDGER_MAPPING && (uintptr_t)addr >= mapping->key &&
                (uintptr_t)addr - mapping->key < mapping->bytes)
                break;
        struct ledger_entry *object = mapping == NULL ? NULL : ledger_find(ledger, LEDGER_OBJECT, mapping->link);
        if (object != NULL) {
            object->refs++;
            ledger_put(ledger,
                &(struct ledger_entry){
                    .kind = LEDGER_HANDLE, .key = *handle, .device = object->device, .refs = 1, .link = object->key});
        }
    }
    account_unlock();
    return result;
}

CUresult cuMemExportToShareableHandle(void *shareable_handle, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType handle_type, unsigned long long flags) {
    struct ledger *ledger = account_lock();
    struct ledger_entry *entry = ledger_find(ledger, LEDGER_HANDLE, handle);
    struct ledger_entry *object = entry == NULL ? NULL : ledger_find(ledger, LEDGER_OBJECT, entry->link);
    uint64_t key = 0;
    int64_t bytes = 0;
    int device = -1;
    if (object != NULL && object->owner != EXPORTED) {
        object->refs++; /* which nothing takes away once it is exported */
        key = object->key;
        bytes = (int64_t)object->bytes;
        device = object->device;
    }
    account_unlock();
    if (key == 0)
        return real.cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags);
    agent_memory_exported(device, bytes);
    CUresult result = real.cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags);
    uint64_t freed = 0;
    ledger = account_lock();
    object = ledger_find(ledger, LEDGER_OBJECT, key);
    bool first = result == CUDA_SUCCESS && object != NULL && object->owner != EXPORTED;
    if (first)
        object->owner = EXPORTED;
    else
        freed = drop_object(ledger, key, &device);
    account_unlock();
    if (!first) /* it failed, or another thread's was first */
        agent_memory_exported(device, -bytes);
    account_return(device, freed, false);
    return result;
}

CUresult cuMemMap(
    CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    CUresult result = real.cuMemMap(ptr, size, offset, handle, flags);
    if (result != CUDA_SUCCESS)
        return result;
    struct ledger *ledger = account_lock();
    struct ledger_entry *entry = ledger_find(ledger, LEDGER_HANDLE, handle);
    struct ledger_entry *object = entry == NULL ? NULL : ledger_find(ledger, LEDGER_OBJECT, entry->link);
    if (object != NULL) {
        struct ledger_entry mapping = {
            .kind = LEDGER_MAPPING, .key = ptr, .bytes = size, .device = object->device, .link = object->key};
        object->refs++;
        if (ledger_put(ledger, &mapping) != 0)
            object->refs--; /* no memory for a note of it: then it does not hold the object either */
    }
    account_unlock();
    return result;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    CUresult result = real.cuMemUnmap(ptr, size);
    if (result != CUDA_SUCCESS)
        return result;
    /* A range is unmapped by whole mappings, one or several. Its addresses stay reserved until cuMemAddressFree, so
     * nobody else can have been given them meanwhile, unless the program maps and unmaps one place in two threads. */
    for (CUdeviceptr at = ptr; at - ptr < size;) {
        struct ledger_entry mapping;
        uint64_t freed = 0;
        int device = -1;
        struct ledger *ledger = account_lock();
        bool found = ledger_take(ledger, LEDGER_MAPPING, at, &mapping);
        if (found)
            freed = drop_object(ledger, mapping.link, &device);
        account_unlock();
        account_return(device, freed, false);
        at += found && mapping.bytes > 0 ? mapping.bytes : GRANULE;
    }
    return result;
}
