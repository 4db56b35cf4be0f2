/* Allocations of the classic kind, host memory, inter-process handles, and what a pointer means. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/module.h"
#include "libhook/sim/driver/pool.h"
#include "libhook/sim/driver/queue.h"

enum { GRAIN = 512, PITCH = 512 };

static uint64_t grains(uint64_t bytes) {
    return (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* Take it of the card and of the heap. If the card is full, unused memory of this process's pools is given up first. */
static CUresult take(struct CUctx_st *ctx, size_t bytes, enum block_kind kind, unsigned int flags, CUdeviceptr *out) {
    bool of_card = kind != BLOCK_HOST;
    NEED(bytes < VAST_BYTES, vast());
    if (of_card && card_take(ctx->device, grains(bytes))) {
        pool_trim_all();
        TRY(card_take(ctx->device, grains(bytes)));
    }
    *out = heap_take(&(struct block){.bytes = bytes,
                         .kind = kind,
                         .device = ctx->device,
                         .flags = flags,
                         .id = atomic_fetch_add(&driver.next_id, 1) + 1,
                         .ctx = ctx},
        of_card && bytes >= 2 << 20 ? 2 << 20 : 4096);
    if (!*out && of_card)
        card_give(ctx->device, grains(bytes));
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    struct CUctx_st *ctx;
    NEED(pointer && bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    return take(ctx, bytes, BLOCK_DEVICE, 0, pointer);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element) {
    struct CUctx_st *ctx;
    NEED(pointer && pitch && width && height, CUDA_ERROR_INVALID_VALUE);
    NEED(element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    return take(ctx, *pitch * height, BLOCK_DEVICE, 0, pointer);
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags) {
    struct CUctx_st *ctx;
    NEED(pointer && bytes && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST), CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    return take(ctx, bytes, BLOCK_MANAGED, flags, pointer);
}

CUresult memory_global(struct CUctx_st *ctx, struct symbol *symbol) {
    return take(ctx, symbol->bytes, BLOCK_DEVICE, 0, &symbol->address);
}

/* Freeing waits for the work of the device, as the real call does. */
CUresult cuMemFree_v2(CUdeviceptr pointer) {
    struct block block;
    INIT();
    if (!pointer)
        return CUDA_SUCCESS;
    TRY(capture_guard());
    NEED(heap_find(pointer, &block) && block.address == pointer, CUDA_ERROR_INVALID_VALUE);
    if (block.kind == BLOCK_POOLED) {
        queue_wait_device(block.device);
        return pool_give(pointer);
    }
    NEED(block.kind == BLOCK_DEVICE || block.kind == BLOCK_MANAGED, CUDA_ERROR_INVALID_VALUE);
    queue_wait_device(block.device);
    NEED(heap_give(pointer, &block), CUDA_ERROR_INVALID_VALUE);
    card_give(block.device, grains(block.bytes));
    return CUDA_SUCCESS;
}

void memory_end_context(struct CUctx_st *ctx) {
    struct block block;
    for (uint64_t at = 0; heap_next(at, &block); at = block.address + 1) {
        if (block.ctx != ctx)
            continue;
        if (block.kind == BLOCK_POOLED) { /* pools belong to the device */
            block.ctx = NULL;
            heap_update(block.address, &block);
        } else if (block.kind == BLOCK_DEVICE || block.kind == BLOCK_MANAGED) {
            heap_give(block.address, &block);
            card_give(block.device, grains(block.bytes));
        } else if (block.kind == BLOCK_HOST) {
            heap_give(block.address, &block);
        }
    }
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    struct CUctx_st *ctx;
    uint64_t used, total;
    NEED(free_bytes && total_bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    vmm_reap();
    card_figures(ctx->device, &used, &total);
    *free_bytes = used < total ? total - used : 0;
    *total_bytes = total;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    struct block block;
    INIT();
    NEED(heap_find(pointer, &block) && block.kind != BLOCK_RESERVED, CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = block.address;
    if (bytes)
        *bytes = block.bytes;
    return CUDA_SUCCESS;
}

/* ---- host memory ---- */

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    struct CUctx_st *ctx;
    NEED(pointer && bytes && flags < 8, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    return take(ctx, bytes, BLOCK_HOST, flags, (CUdeviceptr *)pointer);
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) {
    return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer) {
    struct block block;
    INIT();
    TRY(capture_guard());
    NEED(heap_find((uint64_t)pointer, &block) && block.address == (uint64_t)pointer && block.kind == BLOCK_HOST,
        CUDA_ERROR_INVALID_VALUE);
    queue_wait_device(block.device);
    heap_give(block.address, &block);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags) {
    struct CUctx_st *ctx;
    struct block block;
    NEED(pointer && bytes && flags < 16, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    NEED(!heap_find((uint64_t)pointer, &block), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    block = (struct block){.address = (uint64_t)pointer,
        .bytes = bytes,
        .kind = BLOCK_REGISTERED,
        .flags = flags,
        .device = ctx->device,
        .ctx = ctx};
    return heap_enter(&block) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags) {
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void *pointer) {
    struct block block;
    INIT();
    TRY(capture_guard());
    NEED(heap_find((uint64_t)pointer, &block) && block.kind == BLOCK_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    NEED(block.address == (uint64_t)pointer, CUDA_ERROR_INVALID_VALUE);
    queue_wait_device(block.device);
    heap_give(block.address, &block);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_pointer, void *pointer, unsigned int flags) {
    struct block block;
    INIT();
    NEED(device_pointer && !flags && heap_find((uint64_t)pointer, &block), CUDA_ERROR_INVALID_VALUE);
    *device_pointer = (CUdeviceptr)pointer;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer) {
    struct block block;
    INIT();
    NEED(flags && heap_find((uint64_t)pointer, &block) && block.kind == BLOCK_HOST, CUDA_ERROR_INVALID_VALUE);
    *flags = block.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

/* ---- between processes: the exporter's memfd is opened through /proc ---- */

struct ipc {
    uint32_t magic;
    int32_t pid, fd;
    uint32_t device;
    uint64_t offset, bytes;
};
enum { IPC_MAGIC = 0x47494d49 };

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
    struct block block;
    struct ipc ipc = {.magic = IPC_MAGIC, .pid = getpid()};
    INIT();
    NEED(handle && heap_find(pointer, &block) && block.kind == BLOCK_DEVICE, CUDA_ERROR_INVALID_VALUE);
    ipc.fd = heap_descriptor(block.address, &ipc.offset);
    ipc.bytes = block.room;
    ipc.device = (uint32_t)block.device;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ipc, sizeof(ipc));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
    struct CUctx_st *ctx;
    struct ipc ipc;
    char path[64];
    memcpy(&ipc, &handle, sizeof(ipc));
    NEED(pointer && flags <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    NEED(ipc.magic == IPC_MAGIC && ipc.pid != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", ipc.pid, ipc.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    NEED(fd >= 0, CUDA_ERROR_MAP_FAILED);
    uint64_t before = ipc.offset & 4095;
    char *base = mmap(NULL, ipc.bytes + before, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(ipc.offset - before));
    close(fd);
    NEED(base != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
    struct block block = {.address = (uint64_t)base + before,
        .bytes = ipc.bytes,
        .kind = BLOCK_IMPORTED,
        .device = (CUdevice)ipc.device,
        .ctx = ctx};
    heap_enter(&block);
    *pointer = block.address;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) {
    return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
    struct block block;
    INIT();
    TRY(capture_guard());
    NEED(heap_find(pointer, &block) && block.kind == BLOCK_IMPORTED && block.address == pointer,
        CUDA_ERROR_INVALID_VALUE);
    queue_wait_device(block.device);
    heap_give(pointer, &block);
    munmap((void *)(pointer & ~4095ull), block.bytes + (pointer & 4095));
    return CUDA_SUCCESS;
}

/* ---- what a pointer is ---- */

static CUresult attribute_of(const struct block *b, CUdeviceptr pointer, CUpointer_attribute attribute, void *data) {
    bool host = !block_on_device(b->kind);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = b->ctx;
        return b->ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = pointer; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        NEED(host || block_is_managed(b), CUDA_ERROR_INVALID_VALUE);
        *(void **)data = (void *)pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *(unsigned int *)data = b->sync_memops; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: *(unsigned long long *)data = b->id; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned int *)data = block_is_managed(b); return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = b->device; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(int *)data = b->kind == BLOCK_DEVICE; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: *(CUdeviceptr *)data = b->address; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: *(size_t *)data = b->bytes; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int *)data = 1; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = b->kind == BLOCK_MAPPED ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: *(int *)data = 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(int *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = b->kind == BLOCK_POOLED ? b->of : NULL;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    struct block block;
    INIT();
    NEED(data && heap_find(pointer, &block) && block.kind != BLOCK_RESERVED, CUDA_ERROR_INVALID_VALUE);
    return attribute_of(&block, pointer, attribute, data);
}

/* Of a pointer CUDA does not know, each attribute is its zero: that is how programs tell plain host memory. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer) {
    struct block block;
    INIT();
    NEED(attributes && data && count, CUDA_ERROR_INVALID_VALUE);
    bool known = heap_find(pointer, &block) && block.kind != BLOCK_RESERVED;
    for (unsigned int i = 0; i < count; i++) {
        if (known && attribute_of(&block, pointer, attributes[i], data[i]) == CUDA_SUCCESS)
            continue;
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data[i] = CU_DEVICE_INVALID; break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(int *)data[i] = 0; break;
        default: *(uint64_t *)data[i] = 0;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    struct block block;
    INIT();
    NEED(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    NEED(heap_find(pointer, &block), CUDA_ERROR_INVALID_VALUE);
    block.sync_memops = *(const unsigned int *)value != 0;
    return heap_update(block.address, &block) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
