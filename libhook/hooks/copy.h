/*
 * copy.h - what the wrappers of copies and memsets share: copy.c, batch.c, set.c.
 *
 * Memsets, and copies from device to device or peer to peer, run where kernels run: they pass the gate, with a cost that
 * is guessed from their bytes and then learned per kind and power of two. Copies between host and device have engines of
 * their own: metered, never held up. Where only the addresses tell which it is, the driver is asked for their kind.
 * Copies that block the caller say, when they return, that earlier work is over: they are watched like synchronisations.
 */
#ifndef GEMINI_HOOKS_COPY_H
#define GEMINI_HOOKS_COPY_H

#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/gate_begin.h"
#include "libhook/runtime/watch.h"

#define GUESS_START_NS 2000     /* what a launch costs at least */
#define GUESS_BYTES_PER_NS 1000 /* a first guess only: 1 TB/s */

enum direction { ON_DEVICE, TO_DEVICE, TO_HOST, ON_HOST };
enum copy_kind { SET = 0x736574, COPY = 0x636f7079, MOVE = 0x6d6f7665, UNPACK = 0x756e706b };

static inline enum gate_answer copy_begin(CUstream stream, enum copy_kind kind, uint64_t bytes) {
    unsigned int log2 = bytes ? 63u - (unsigned int)__builtin_clzll(bytes) : 0;
    return gate_begin(stream, estimate_mix(kind, log2, 0, 2), 0, GUESS_START_NS + bytes / GUESS_BYTES_PER_NS);
}

static inline bool copy_is_host(CUdeviceptr pointer) {
    unsigned int type = 0;
    CUresult result = real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
    return result != CUDA_SUCCESS ||
           type == CU_MEMORYTYPE_HOST; /* memory that the driver does not know is the host's */
}

static inline enum direction copy_between(bool from_host, bool to_host) {
    if (from_host)
        return to_host ? ON_HOST : TO_DEVICE;
    return to_host ? TO_HOST : ON_DEVICE;
}

static inline enum direction copy_by_pointers(CUdeviceptr dst, CUdeviceptr src) {
    return copy_between(copy_is_host(src), copy_is_host(dst));
}

static inline bool copy_side_is_host(CUmemorytype type, CUdeviceptr pointer) {
    return type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && copy_is_host(pointer));
}

/* The three descriptors name their fields alike. */
#define BY_DESCRIPTOR(copy)                                                                                            \
    copy_between(copy_side_is_host((copy)->srcMemoryType, (copy)->srcDevice),                                          \
        copy_side_is_host((copy)->dstMemoryType, (copy)->dstDevice))

/* Through the gate. */
#define GATED(stream, kind, bytes, call)                                                                               \
    do {                                                                                                               \
        enum gate_answer answer = copy_begin(stream, kind, bytes);                                                     \
        if (answer == GATE_REFUSED)                                                                                    \
            return GATE_REFUSAL;                                                                                       \
        CUresult result = call;                                                                                        \
        if (answer == GATE_PASSED)                                                                                     \
            gate_end();                                                                                                \
        return result;                                                                                                 \
    } while (0)

/* Between host and device. */
#define BILLED(to_device, stream, bytes, call)                                                                         \
    do {                                                                                                               \
        watch_copy_coming(stream);                                                                                     \
        CUresult result = call;                                                                                        \
        if (result == CUDA_SUCCESS)                                                                                    \
            watch_copy(to_device, bytes);                                                                              \
        return result;                                                                                                 \
    } while (0)

/* ... and the caller waits for it. */
#define BLOCKING(to_device, stream, bytes, call)                                                                       \
    do {                                                                                                               \
        watch_sync_before(WATCH_SOME, NULL);                                                                           \
        CUresult result = call;                                                                                        \
        watch_sync_after(WATCH_SOME, NULL, result);                                                                    \
        if (result == CUDA_SUCCESS)                                                                                    \
            watch_copy(to_device, bytes);                                                                              \
        return result;                                                                                                 \
    } while (0)

/* Either, as the direction says. */
#define BY_DIRECTION(direction_of, elsewhere, stream, bytes, call)                                                     \
    do {                                                                                                               \
        enum direction direction = direction_of;                                                                       \
        if (direction == ON_DEVICE)                                                                                    \
            GATED(stream, COPY, bytes, call);                                                                          \
        if (direction == ON_HOST)                                                                                      \
            return call;                                                                                               \
        elsewhere(direction == TO_DEVICE, stream, bytes, call);                                                        \
    } while (0)

#endif
