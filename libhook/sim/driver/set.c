/* Memsets: on the compute engine, as fast as copies inside the card. The bytes are set as copies' bytes are moved. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/heap.h"
#include "libhook/sim/driver/host.h"
#include "libhook/sim/driver/queue.h"
#include "libhook/sim/driver/op_run.h"

static size_t rows(const CUDA_MEMSET_NODE_PARAMS *set) {
    return set->height ? set->height : 1;
}

CUresult op_set_check(const CUDA_MEMSET_NODE_PARAMS *set) {
    struct block block;
    size_t row = set->width * set->elementSize;
    NEED(set->elementSize == 1 || set->elementSize == 2 || set->elementSize == 4, CUDA_ERROR_INVALID_VALUE);
    NEED(set->dst % set->elementSize == 0, CUDA_ERROR_INVALID_VALUE);
    NEED(rows(set) == 1 || set->pitch >= row, CUDA_ERROR_INVALID_VALUE);
    if (!row)
        return CUDA_SUCCESS;
    NEED(heap_find(set->dst, &block), CUDA_ERROR_INVALID_VALUE);
    uint64_t last = set->dst + (rows(set) - 1) * set->pitch + row;
    NEED(block.kind == BLOCK_MAPPED || last <= block.address + block.bytes, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

enum { PAGE = 4096, WORTH_A_CALL = 1 << 16 };

/* Zeroes of the card's memory are holes in its file: clearing what was never touched costs nothing, as on a card, where it
 * takes no time of the host's either. */
static void clear(char *at, size_t bytes) {
    char *first = (char *)(((uintptr_t)at + PAGE - 1) & -(uintptr_t)PAGE);
    char *last = (char *)(((uintptr_t)at + bytes) & -(uintptr_t)PAGE);
    int errors = errno;
    struct block block;
    if (bytes >= WORTH_A_CALL && heap_find((uint64_t)at, &block) && block_on_device(block.kind) &&
        !madvise(first, (size_t)(last - first), MADV_REMOVE)) {
        memset(at, 0, (size_t)(first - at));
        memset(last, 0, (size_t)(at + bytes - last));
    } else {
        memset(at, 0, bytes);
    }
    errno = errors;
}

void op_set_move(const CUDA_MEMSET_NODE_PARAMS *set) {
    if (op_set_check(set))
        return;
    for (size_t y = 0; y < rows(set); y++) {
        char *row = (char *)set->dst + y * set->pitch;
        if (!set->value)
            clear(row, set->width * set->elementSize);
        else if (set->elementSize == 1)
            memset(row, (int)set->value, set->width);
        else if (set->elementSize == 2)
            for (size_t x = 0; x < set->width; x++)
                ((uint16_t *)row)[x] = (uint16_t)set->value;
        else
            for (size_t x = 0; x < set->width; x++)
                ((uint32_t *)row)[x] = set->value;
    }
}

static bool run_set(void *argument) {
    op_set_move(argument);
    return true;
}

CUresult op_set_run(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set) {
    uint64_t bytes = set->width * set->elementSize * rows(set);
    if (!bytes)
        return CUDA_SUCCESS;
    struct span touched = {set->dst, (rows(set) - 1) * set->pitch + set->width * set->elementSize};
    if (host_has_to_wait(&touched, 1)) {
        CUDA_MEMSET_NODE_PARAMS *later = malloc(sizeof(*later));
        NEED(later, CUDA_ERROR_OUT_OF_MEMORY);
        *later = *set;
        TRY(host_push(stream, &(struct host_step){run_set, free, later, false}));
    } else {
        op_set_move(set);
    }
    struct work work = {.kind = SIM_KERNEL};
    work.duration_ns = spec()->copy_latency_ns + (uint64_t)((double)bytes * 1e9 / (double)spec()->device_bytes_per_s);
    return queue_push(stream, &work, NULL);
}

/* Memsets of device memory do not wait, even the ones without a stream: they go into the default stream. */
static CUresult submit(CUdeviceptr to, size_t pitch, unsigned int value, unsigned int element, size_t width,
    size_t height, CUstream handle, bool per_thread) {
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    struct op op = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .set = {to, pitch, value, element, width, height}};
    TRY(context_current(&ctx));
    TRY(op_set_check(&op.set));
    TRY(stream_of(handle, per_thread, &stream));
    return op_submit(stream, &op);
}

#define SETS(name, type, element)                                                                                      \
    CUresult cuMemset##name##_v2(CUdeviceptr to, type value, size_t count) {                                           \
        return submit(to, 0, value, element, count, 1, NULL, false);                                                   \
    }                                                                                                                  \
    CUresult cuMemset##name##_v2_ptds(CUdeviceptr to, type value, size_t count) {                                      \
        return submit(to, 0, value, element, count, 1, NULL, true);                                                    \
    }                                                                                                                  \
    CUresult cuMemset##name##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {                        \
        return submit(to, 0, value, element, count, 1, stream, false);                                                 \
    }                                                                                                                  \
    CUresult cuMemset##name##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream) {                   \
        return submit(to, 0, value, element, count, 1, stream, true);                                                  \
    }

#define SETS_2D(name, type, element)                                                                                   \
    CUresult cuMemset##name##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {              \
        return submit(to, pitch, value, element, width, height, NULL, false);                                          \
    }                                                                                                                  \
    CUresult cuMemset##name##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {         \
        return submit(to, pitch, value, element, width, height, NULL, true);                                           \
    }                                                                                                                  \
    CUresult cuMemset##name##Async(                                                                                    \
        CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) {                      \
        return submit(to, pitch, value, element, width, height, stream, false);                                        \
    }                                                                                                                  \
    CUresult cuMemset##name##Async_ptsz(                                                                               \
        CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) {                      \
        return submit(to, pitch, value, element, width, height, stream, true);                                         \
    }

SETS(D8, unsigned char, 1)
SETS(D16, unsigned short, 2)
SETS(D32, unsigned int, 4)
SETS_2D(D2D8, unsigned char, 1)
SETS_2D(D2D16, unsigned short, 2)
SETS_2D(D2D32, unsigned int, 4)
