/*
 * memory.h - what the families of allocation calls share: memory.c (plain), pool.c, vmm.c, array.c, limit.c, footprint.c.
 *
 * Each wrapper does: memory_reserve() what the call may take at most; the driver's call; then either enter what it took
 * in the ledger and give back the rest, or, when it failed, give back all. What a call takes:
 *
 *     plain, managed   as the driver takes it: above 1 MiB in pages of 2 MiB, below in pieces of 512 bytes
 *     pitched          the same, of pitch x height
 *     pools            what the pool says it has reserved, not what was cut from it
 *     cuMemCreate      its size (always a multiple of the granularity), until the last handle and mapping is gone; once exported, for ever
 *     imports          the same, unless this tenant is charged for it as its exporter
 *     arrays, mipmaps  computed from the descriptor, rows in multiples of 512 bytes; sparse and deferred ones nothing
 *     contexts         measured (footprint.h)
 *     limits           what a context's stacks, printf buffer and heap are raised by (limit.c)
 *     host memory, IPC memory   nothing: the latter is its exporter's
 *
 * A process that is no tenant goes straight through: memory_device() says -1.
 */
#ifndef GEMINI_HOOKS_MEMORY_H
#define GEMINI_HOOKS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

#pragma GCC visibility push(hidden)

/* Is memory of this process to be counted? Attaches to the daemon. */
bool memory_is_counted(void);
/* The device of the calling thread's context whose memory is to be counted; -1: none. */
int memory_device(void);
/* The same for a device given by the caller. */
int memory_device_of(CUdevice device);
/* The device of a stream, as the driver numbers it; -1: nothing is to be counted. */
CUdevice memory_device_in(CUstream stream);

/* How much the driver takes for an allocation of `bytes`; saturates. */
uint64_t memory_rounded(uint64_t bytes);

/* Reserve, and before a refusal first give up what this process's pools hold without using it. 0 or -ENOMEM. */
int memory_reserve(int device, uint64_t bytes, bool spare);

/* What a refused call answers: CUDA_ERROR_OUT_OF_MEMORY, for which programs free what they keep and try again. But the
 * driver itself is asked first, for more than any card has: it may have another objection (a capture that forbids
 * allocating, flags or a stream that are none), and such a capture is to end as it would without us. A driver may call
 * so large a size an INVALID_VALUE; where all else that was given is `sane`, that is what it means. */
#define MEMORY_BEYOND_ANY_CARD ((size_t)1 << 62)
#define MEMORY_PAGE ((size_t)2 << 20)
static inline CUresult memory_refused(CUresult drivers, bool sane) {
    bool about_size = drivers == CUDA_SUCCESS || (sane && drivers == CUDA_ERROR_INVALID_VALUE);
    return about_size ? CUDA_ERROR_OUT_OF_MEMORY : drivers;
}

/* Enter an allocation that took `bytes` of the `reserved` ones, and give back the rest. It is freed with `owner`. */
void memory_enter(uint32_t kind, uint64_t key, int device, uint64_t reserved, uint64_t bytes, CUcontext owner);

/* Pools: count anew what they have reserved. Any thread, the agent's too; with `shrink`, make them give up the rest. */
void memory_settle_pools(bool shrink);

/* Freeing a plain allocation or one from a pool: before the driver's call take it out of the ledger (kind 0 where it is
 * not there); after the call say what it answered: its bytes are given back, or the entry is put back. */
struct ledger_entry;
void memory_freeing(CUdeviceptr pointer, struct ledger_entry *entry);
void memory_freed(const struct ledger_entry *entry, CUresult result);

/* An allocation from a pool was freed: what its pool gives back for that by itself. */
void memory_freed_pooled(const struct ledger_entry *entry);

/* The tenant's limit, and what all of its processes use of it, asked of the daemon. False: nothing to be told. */
bool memory_figures(int device, uint64_t *limit, uint64_t *used);

/* Graph memory: count anew what the driver holds for graphs on the current device. */
void memory_settle_graphs(void);

extern bool memory_pools_used;  /* some pool is in the ledger; atomic */
extern bool memory_graphs_used; /* some graph has held memory; atomic */

/* After a call at which the driver may have given memory of pools back: stream, event and context synchronisation. */
static inline void memory_synchronized(void) {
    if (__builtin_expect(__atomic_load_n(&memory_pools_used, __ATOMIC_RELAXED), 0))
        memory_settle_pools(false);
    if (__builtin_expect(__atomic_load_n(&memory_graphs_used, __ATOMIC_RELAXED), 0))
        memory_settle_graphs();
}

#pragma GCC visibility pop

#endif
