/*
 * The virtual memory API. Physical memory is a memfd of its own, counted against the card as long as its handle or a
 * mapping of it lives. Once it was exported, it counts until the last descriptor, handle and mapping of whoever has it
 * is gone: an flock() of the open file says so, for it ends with the last of them. The maker looks when it is asked for
 * memory or figures; imported memory is its exporter's. When that process has ended one importer after the other has it
 * counted (a lock on the file says which), from when it is asked for memory or figures next. Reserved addresses hold no
 * memory. A mapping can be touched once cuMemSetAccess said so.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/queue.h"

enum { GRAIN = 2 << 20 };

struct physical {
    struct slab_head head;
    CUmemAllocationProp prop;
    uint64_t bytes;
    int fd, references; /* the handle, each retain, each mapping */
    int probe;          /* once exported, or counted as an import: the same file, opened anew; else 0 */
    int handles;
    bool imported;
    uint64_t maker; /* of an import: the owner whose it is; 0: nobody knows */
};

static const char NAME[] = "/memfd:gemini-sim-physical-"; /* and whose it is, and of which card */

static atomic_bool shared; /* something was exported or imported */

static void drop(struct physical *physical) {
    if (--physical->references)
        return;
    close(physical->fd);
    if (physical->probe && !physical->imported)
        return; /* it may live elsewhere: vmm_reap */
    if (physical->probe)
        close(physical->probe);
    if ((!physical->imported || physical->probe) && physical->prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        card_give(physical->prop.location.id, physical->bytes);
    slab_give(SLAB_PHYSICAL, physical);
}

/* The same file, opened anew: locks of it are another's. */
static int open_anew(int fd) {
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* An import whose maker has ended counts here, unless it does for another import. */
static void adopt(struct physical *physical) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    if (physical->probe || !physical->references || !physical->maker ||
        card_has(physical->prop.location.id, physical->maker))
        return;
    int probe = open_anew(physical->fd);
    if (probe < 0)
        return;
    if (fcntl(probe, F_OFD_SETLK, &lock) == 0 && card_adopt(physical->prop.location.id, physical->bytes))
        physical->probe = probe;
    else
        close(probe);
}

void vmm_reap(void) {
    if (!atomic_load_explicit(&shared, memory_order_relaxed))
        return;
    pthread_mutex_lock(&driver.lock);
    for (uint32_t i = 0; i < slab_used(SLAB_PHYSICAL); i++) {
        struct physical *physical = slab_at(SLAB_PHYSICAL, i);
        if (physical && physical->imported)
            adopt(physical);
        if (!physical || physical->imported || !physical->probe || physical->references ||
            flock(physical->probe, LOCK_EX | LOCK_NB))
            continue;
        close(physical->probe);
        card_give(physical->prop.location.id, physical->bytes);
        slab_give(SLAB_PHYSICAL, physical);
    }
    pthread_mutex_unlock(&driver.lock);
}

/* From now on others may hold it. */
static bool be_exported(struct physical *physical) {
    if (physical->imported || physical->probe || physical->prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return true;
    int probe = open_anew(physical->fd);
    if (probe < 0 || flock(physical->fd, LOCK_EX))
        return false;
    physical->probe = probe;
    atomic_store(&shared, true);
    return true;
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
    NEED(prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    NEED((unsigned)prop->requestedHandleTypes <= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return device_exists(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    return prop->location.type >= CU_MEM_LOCATION_TYPE_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationGranularity(
    size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option) {
    INIT();
    NEED(granularity && option >= 0 && option <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(check_prop(prop));
    *granularity = GRAIN;
    return CUDA_SUCCESS;
}

static struct physical *make(int fd, uint64_t bytes, const CUmemAllocationProp *prop, bool imported) {
    struct physical *physical = slab_take(SLAB_PHYSICAL, sizeof(*physical));
    if (!physical)
        return NULL;
    physical->prop = *prop;
    physical->bytes = bytes;
    physical->fd = fd;
    physical->references = physical->handles = 1;
    physical->imported = imported;
    return physical;
}

CUresult cuMemCreate(
    CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags) {
    INIT();
    NEED(handle && bytes && bytes % GRAIN == 0 && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(check_prop(prop)); /* allowed during captures, unlike cuMemAlloc: it touches no stream */
    NEED(bytes < VAST_BYTES, vast());
    vmm_reap();
    bool of_card = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (of_card)
        TRY(card_take(prop->location.id, bytes));
    char name[sizeof(NAME) + 40];
    snprintf(name, sizeof(name), "%s%llx-%u", strchr(NAME, ':') + 1, (unsigned long long)driver.seat.owner,
        of_card ? driver.physical[prop->location.id] : 0);
    int fd = memfd_create(name, MFD_CLOEXEC);
    struct physical *physical = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 ? make(fd, bytes, prop, false) : NULL;
    if (!physical) {
        if (fd >= 0)
            close(fd);
        if (of_card)
            card_give(prop->location.id, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (CUmemGenericAllocationHandle)physical;
    return CUDA_SUCCESS;
}

static CUresult physical_of(CUmemGenericAllocationHandle handle, struct physical **out) {
    INIT();
    *out = (struct physical *)handle;
    NEED(slab_has(SLAB_PHYSICAL, *out) && (*out)->handles > 0, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct physical *physical;
    TRY(physical_of(handle, &physical));
    pthread_mutex_lock(&driver.lock);
    physical->handles--;
    drop(physical);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    struct block block;
    INIT();
    NEED(handle && heap_find((uint64_t)address, &block) && block.kind == BLOCK_MAPPED, CUDA_ERROR_INVALID_VALUE);
    struct physical *physical = block.of;
    pthread_mutex_lock(&driver.lock);
    physical->references++;
    physical->handles++;
    pthread_mutex_unlock(&driver.lock);
    *handle = (CUmemGenericAllocationHandle)physical;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
    struct physical *physical;
    NEED(prop, CUDA_ERROR_INVALID_VALUE);
    TRY(physical_of(handle, &physical));
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(
    void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
    struct physical *physical;
    NEED(shareable && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(physical_of(handle, &physical));
    NEED(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && physical->prop.requestedHandleTypes & type,
        CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver.lock);
    int fd = be_exported(physical) ? fcntl(physical->fd, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&driver.lock);
    NEED(fd >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

/* Who made it, as its file's name says, and on which card; 0: that is none of ours, or it is not seen here. */
static uint64_t maker_of(int fd, CUmemAllocationProp *prop) {
    char path[40], name[sizeof(NAME) + 60] = {0};
    unsigned long long maker;
    unsigned int card;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof(name) - 1) < 0 || strncmp(name, NAME, sizeof(NAME) - 1) != 0 ||
        sscanf(name + sizeof(NAME) - 1, "%llx-%u", &maker, &card) != 2)
        return 0;
    for (CUdevice device = 0; device < driver.devices; device++)
        if (driver.physical[device] == card) {
            prop->location.id = device;
            return maker;
        }
    return 0;
}

CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType type) {
    struct stat status;
    struct CUctx_st *ctx;
    NEED(handle && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    int fd = fcntl((int)(intptr_t)os_handle, F_DUPFD_CLOEXEC, 0);
    NEED(fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0, CUDA_ERROR_INVALID_VALUE);
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = type,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ctx->device},
    };
    uint64_t maker = maker_of(fd, &prop);
    struct physical *physical = make(fd, (uint64_t)status.st_size, &prop, true);
    *handle = (CUmemGenericAllocationHandle)physical;
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->maker = maker;
    atomic_store(&shared, true);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(
    CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags) {
    INIT();
    NEED(pointer && bytes && bytes % GRAIN == 0 && !flags, CUDA_ERROR_INVALID_VALUE);
    NEED(!(alignment & (alignment - 1)), CUDA_ERROR_INVALID_VALUE);
    alignment = alignment > GRAIN ? alignment : GRAIN;
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *base = mmap((void *)wanted, bytes + alignment, PROT_NONE, kind, -1, 0);
    NEED(base != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    char *start = (char *)(((uint64_t)base + alignment - 1) / alignment * alignment);
    if (start > base)
        munmap(base, (size_t)(start - base));
    munmap(start + bytes, (size_t)(base + alignment - start));
    *pointer = (CUdeviceptr)start;
    struct block block = {.address = *pointer, .bytes = bytes, .room = bytes, .kind = BLOCK_RESERVED};
    return heap_enter(&block) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
    struct block block, inside;
    INIT();
    NEED(heap_find(pointer, &block) && block.kind == BLOCK_RESERVED && block.address == pointer && block.bytes == bytes,
        CUDA_ERROR_INVALID_VALUE);
    NEED(!heap_next(pointer + 1, &inside) || inside.address >= pointer + bytes, CUDA_ERROR_INVALID_VALUE);
    heap_give(pointer, &block);
    munmap((void *)pointer, bytes);
    return CUDA_SUCCESS;
}

/* The reservation that holds all of this range, with no mapping in its way. */
static bool inside_reservation(CUdeviceptr pointer, size_t bytes) {
    struct block block, other;
    if (!heap_find(pointer, &block) || block.kind != BLOCK_RESERVED || pointer + bytes > block.address + block.bytes)
        return false;
    return !heap_next(pointer + 1, &other) || other.address >= pointer + bytes;
}

CUresult cuMemMap(
    CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    struct physical *physical;
    TRY(physical_of(handle, &physical));
    NEED(!flags && !offset && bytes && bytes <= physical->bytes && inside_reservation(pointer, bytes),
        CUDA_ERROR_INVALID_VALUE);
    void *at = mmap((void *)pointer, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, 0);
    NEED(at != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
    struct block block = {.address = pointer,
        .bytes = bytes,
        .room = bytes,
        .kind = BLOCK_MAPPED,
        .of = physical,
        .device = physical->prop.location.id};
    pthread_mutex_lock(&driver.lock);
    physical->references++;
    pthread_mutex_unlock(&driver.lock);
    return heap_enter(&block) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
    struct block block;
    INIT();
    TRY(capture_guard());
    NEED(
        heap_find(pointer, &block) && block.kind == BLOCK_MAPPED && block.address == pointer, CUDA_ERROR_INVALID_VALUE);
    queue_wait_device(block.device < 0 ? 0 : block.device);
    for (uint64_t at = pointer; at < pointer + bytes; at = block.address + block.bytes) {
        NEED(heap_find(at, &block) && block.kind == BLOCK_MAPPED && block.address == at, CUDA_ERROR_INVALID_VALUE);
        heap_give(at, &block);
        mmap((void *)at, block.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        pthread_mutex_lock(&driver.lock);
        drop(block.of);
        pthread_mutex_unlock(&driver.lock);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *desc, size_t count) {
    struct block block;
    int access = PROT_NONE;
    INIT();
    NEED(pointer && bytes && desc && count, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        NEED(desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device_exists(desc[i].location.id),
            CUDA_ERROR_INVALID_DEVICE);
        access |= desc[i].flags ? PROT_READ : 0;
        access |= desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0;
    }
    for (uint64_t at = pointer; at < pointer + bytes; at = block.address + block.bytes) {
        NEED(heap_find(at, &block) && block.kind == BLOCK_MAPPED, CUDA_ERROR_INVALID_VALUE);
        block.flags = (unsigned int)access;
        heap_update(block.address, &block);
    }
    return mprotect((void *)pointer, bytes, access) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer) {
    struct block block;
    INIT();
    NEED(flags && location && heap_find(pointer, &block) && block.kind == BLOCK_MAPPED, CUDA_ERROR_INVALID_VALUE);
    *flags = block.flags;
    return CUDA_SUCCESS;
}
