/*
 * heap.h - the simulated device memory of this process, and what every address means.
 *
 * Theory. One sparse memfd is mapped once; allocations are cut from it, so copies really move bytes, memory that is
 * never touched costs nothing, and another process can open an allocation by IPC. Freed memory is punched out again.
 * Every range a program may name (device, managed, pinned and registered host memory, mappings of the virtual memory
 * API) is a block in one sorted table. This file knows nothing of the card's capacity: see card_take() in memory.c.
 */
#ifndef GEMINI_SIM_HEAP_H
#define GEMINI_SIM_HEAP_H

#include "libhook/sim/driver/driver.h"

enum block_kind {
    BLOCK_FREE = 0,   /* a hole in the heap */
    BLOCK_DEVICE,     /* cuMemAlloc, cuMemAllocPitch */
    BLOCK_POOLED,     /* from a memory pool */
    BLOCK_MANAGED,
    BLOCK_ARRAY,
    BLOCK_HOST,       /* cuMemAllocHost, cuMemHostAlloc */
    BLOCK_REGISTERED, /* cuMemHostRegister: not ours */
    BLOCK_IMPORTED,   /* opened by IPC: another process's */
    BLOCK_RESERVED,   /* address space of cuMemAddressReserve */
    BLOCK_MAPPED,     /* a mapping in it */
};

struct block {
    uint64_t address, bytes; /* bytes: as asked for; `room` is what it takes */
    uint64_t room;
    enum block_kind kind;
    CUdevice device;
    unsigned int flags;
    uint64_t id;
    struct CUctx_st *ctx;
    void *of; /* its pool, or the physical memory it maps */
    bool sync_memops;
    /* Memory of a graph: how many allocation nodes have this address, and does it hold memory since a launch? */
    uint32_t nodes;
    bool live;
    /* Managed memory: from a pool of such, what was advised of it, and where it was prefetched to last. */
    bool managed;
    bool read_mostly;
    uint32_t accessed_by;
    CUmemLocation preferred, prefetched; /* type INVALID: nothing was said */
};

/* Cut out a range. Returns its address or 0. The rest of `what` is kept with it. */
uint64_t heap_take(const struct block *what, uint64_t alignment);

/* Enter a range that is not from the heap. */
bool heap_enter(const struct block *what);

/* Take the block that starts at `address` out of the table (and give its memory back). Fills *out; false: none. */
bool heap_give(uint64_t address, struct block *out);

/* The innermost block that holds the address; BLOCK_MAPPED is found before the BLOCK_RESERVED around it. */
bool heap_find(uint64_t address, struct block *out);

/* Change the block that starts at the address. */
bool heap_update(uint64_t address, const struct block *what);

/* The next block at or above `address`, for walking. */
bool heap_next(uint64_t address, struct block *out);

/* For IPC: the memfd and the offset of an address in it. */
int heap_descriptor(uint64_t address, uint64_t *offset);

void heap_forget_all(void);

static inline bool block_is_managed(const struct block *block) {
    return block->kind == BLOCK_MANAGED || block->managed;
}

static inline bool block_on_device(enum block_kind kind) {
    return kind != BLOCK_HOST && kind != BLOCK_REGISTERED && kind != BLOCK_FREE && kind != BLOCK_RESERVED;
}

#endif
