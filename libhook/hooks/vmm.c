/*
 * vmm.c - physical memory made by cuMemCreate. It is counted from its creation until the last handle is released and the
 * last mapping is gone, whichever comes last; reserving addresses takes nothing.
 *
 * What was exported may live on in descriptors, in messages on their way and in whoever imported it, and nobody says
 * when it is gone. It counts for its maker until that process ends, and then for its tenant (the daemon's ledger.py).
 * So the daemon is told before there is a descriptor. The descriptor bears a mark (mark.h). A process that imports one
 * with the mark that its tenant has now imports what is charged already, and pays nothing. Any other import is counted
 * as if it had been made here: when it comes, where the mark says its size, and when it is mapped, where none does.
 */
#include <stddef.h>

#include "libhook/core/ledger.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/mark.h"
#include "libhook/hooks/memory.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/agent_memory.h"

/* The least that any device maps (cuMemGetAllocationGranularity): how far to go on where a range has a hole. */
static const uint64_t GRANULE = 2ull << 20;

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

/* Could the driver make memory of this kind and size at all? */
static bool is_sane(size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
    size_t granularity = 0;
    return flags == 0 && real.cuMemGetAllocationGranularity(&granularity, prop, 0 /* the least */) == CUDA_SUCCESS &&
           granularity != 0 && size % granularity == 0;
}

CUresult cuMemCreate(
    CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags) {
    bool counted = handle != NULL && prop != NULL && size != 0 && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    int device = counted ? memory_device_of(prop->location.id) : -1;
    if (device < 0)
        return real.cuMemCreate(handle, size, prop, flags);
    if (memory_reserve(device, size, false) != 0) /* the size's last bits decide whether it is one at all */
        return memory_refused(
            real.cuMemCreate(handle, MEMORY_BEYOND_ANY_CARD | (size & (MEMORY_PAGE - 1)), prop, flags),
            is_sane(size, prop, flags));
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

/* The object behind a handle, a copy of it; refs 0 where it is none of ours. */
static struct ledger_entry object_of(CUmemGenericAllocationHandle handle, bool hold) {
    struct ledger *ledger = account_lock();
    struct ledger_entry *entry = ledger_find(ledger, LEDGER_HANDLE, handle);
    struct ledger_entry *object = entry == NULL ? NULL : ledger_find(ledger, LEDGER_OBJECT, entry->link);
    struct ledger_entry found = {0};
    if (object != NULL) {
        object->refs += hold;
        found = *object;
    }
    account_unlock();
    return found;
}

static bool is_first_export(const struct ledger_entry *object) {
    return object->owner == LEDGER_MADE || object->owner == LEDGER_FOREIGN_IMPORT;
}

/* After the driver's answer: the reference is kept for ever, or given back. */
static void settle_export(const struct ledger_entry *before, bool exported) {
    uint64_t freed = 0;
    int device = before->device;
    struct ledger *ledger = account_lock();
    struct ledger_entry *object = ledger_find(ledger, LEDGER_OBJECT, before->key);
    bool first = exported && object != NULL && is_first_export(object);
    if (first)
        object->owner = LEDGER_EXPORTED;
    else
        freed = drop_object(ledger, before->key, &device);
    account_unlock();
    if (!first && is_first_export(before)) /* it failed, or another thread's was first */
        agent_memory_exported(device, -(int64_t)before->bytes);
    account_return(device, freed, false);
}

CUresult cuMemExportToShareableHandle(void *shareable_handle, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType handle_type, unsigned long long flags) {
    struct ledger_entry object = object_of(handle, true);
    if (object.refs == 0)
        return real.cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags);
    uint64_t bytes = object.owner == LEDGER_OWN_IMPORT ? object.link : object.bytes;
    uint64_t mark = agent_memory_exported(object.device, is_first_export(&object) ? (int64_t)object.bytes : 0);
    CUresult result = real.cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags);
    if (result == CUDA_SUCCESS && handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        mark_set(*(int *)shareable_handle, mark, bytes);
    settle_export(&object, result == CUDA_SUCCESS);
    return result;
}

/* Enter what was imported, under its handle; how much of `bytes` is to be given back. */
static uint64_t enter_import(CUmemGenericAllocationHandle handle, int device, bool own, uint64_t bytes) {
    struct ledger *ledger = account_lock();
    struct ledger_entry *known = ledger_find(ledger, LEDGER_HANDLE, handle);
    if (known != NULL) { /* the driver knew it again */
        known->refs++;
    } else {
        uint64_t object = ++objects;
        ledger_put(ledger, &(struct ledger_entry){.kind = LEDGER_OBJECT,
                               .key = object,
                               .bytes = own ? 0 : bytes,
                               .owner = own ? LEDGER_OWN_IMPORT : LEDGER_FOREIGN_IMPORT,
                               .link = bytes,
                               .device = device,
                               .refs = 1});
        ledger_put(ledger,
            &(struct ledger_entry){.kind = LEDGER_HANDLE, .key = handle, .device = device, .refs = 1, .link = object});
    }
    account_unlock();
    return own || known == NULL ? 0 : bytes;
}

CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType sh_handle_type) {
    CUmemAllocationProp prop;
    uint64_t bytes = 0, mark = 0;
    CUresult result = real.cuMemImportFromShareableHandle(handle, os_handle, sh_handle_type);
    if (result != CUDA_SUCCESS || real.cuMemGetAllocationPropertiesFromHandle(&prop, *handle) != CUDA_SUCCESS ||
        prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return result;
    int device = memory_device_of(prop.location.id);
    if (device < 0)
        return result;
    if (sh_handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        mark = mark_get((int)(intptr_t)os_handle, &bytes);
    uint64_t ours = agent_memory_exported(device, 0);
    bool own = ours == 0 || mark == ours; /* 0: an older daemon, which does not tell */
    if (!own && memory_reserve(device, bytes, false) != 0) {
        real.cuMemRelease(*handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    account_return(device, enter_import(*handle, device, own, bytes), false);
    return result;
}

/* Of an import without a mark the size is known only now: what of this mapping is to be reserved. */
static uint64_t lacks(const struct ledger_entry *object, size_t size) {
    bool may = object->owner == LEDGER_FOREIGN_IMPORT || object->owner == LEDGER_EXPORTED;
    return object->refs != 0 && may && size > object->bytes ? size - object->bytes : 0;
}

CUresult cuMemMap(
    CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    struct ledger_entry known = object_of(handle, false);
    uint64_t reserved = lacks(&known, size), taken = 0;
    if (reserved != 0 && memory_reserve(known.device, reserved, false) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = real.cuMemMap(ptr, size, offset, handle, flags);
    if (result != CUDA_SUCCESS) {
        account_return(known.device, reserved, false);
        return result;
    }
    struct ledger *ledger = account_lock();
    struct ledger_entry *entry = ledger_find(ledger, LEDGER_HANDLE, handle);
    struct ledger_entry *object = entry == NULL ? NULL : ledger_find(ledger, LEDGER_OBJECT, entry->link);
    if (object != NULL) {
        uint64_t lacking = lacks(object, size);
        taken = lacking < reserved ? lacking : reserved;
        object->bytes += taken;
        struct ledger_entry mapping = {
            .kind = LEDGER_MAPPING, .key = ptr, .bytes = size, .device = object->device, .link = object->key};
        object->refs++;
        if (ledger_put(ledger, &mapping) != 0)
            object->refs--; /* no memory for a note of it: then it does not hold the object either */
    }
    account_unlock();
    account_return(known.device, reserved - taken, false);
    if (taken != 0 && known.owner == LEDGER_EXPORTED)
        agent_memory_exported(known.device, (int64_t)taken);
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
