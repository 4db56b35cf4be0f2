/*
 * slab.h - handles that can be told from garbage. Each type of object has one slab: a reserved stretch of addresses
 * from which objects are cut. A value is a live handle iff it points at the start of an object there that is marked
 * live. Slots are reused oldest first, so a dangling handle is noticed for as long as can be.
 *
 * Objects are taken and given back under one lock. Whether a value is a live handle is asked without it, by any thread
 * and with any value: what is read for that (base, used, live) is written by releasing stores.
 */
#ifndef GEMINI_SIM_SLAB_H
#define GEMINI_SIM_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slab_head {
    _Atomic uint32_t live;
    uint32_t next_free; /* number of the slot, plus 1; under the lock */
};

struct slab {
    char *_Atomic base; /* NULL before the first object */
    size_t stride;      /* written before the base is */
    _Atomic uint32_t used;
    uint32_t first_free, last_free; /* under the lock */
};

enum slab_type {
    SLAB_CONTEXT,
    SLAB_STREAM,
    SLAB_EVENT,
    SLAB_MODULE,
    SLAB_FUNCTION,
    SLAB_LIBRARY,
    SLAB_KERNEL,
    SLAB_GRAPH,
    SLAB_NODE,
    SLAB_EXEC,
    SLAB_POOL,
    SLAB_ARRAY,
    SLAB_MIPMAP,
    SLAB_PHYSICAL,
    SLAB_USER_OBJECT,
    SLAB_RESOURCES,
    SLAB_GREEN,
    SLABS,
};

extern struct slab slab[SLABS];

/* A zeroed live object of `size` bytes, or NULL. */
void *slab_take(enum slab_type type, size_t size);
void slab_give(enum slab_type type, void *object);

/* How many slots have ever been used, and the live object with number i, or NULL; for walking over all. */
uint32_t slab_used(enum slab_type type);
void *slab_at(enum slab_type type, uint32_t i);

/* In a forked child: no handle of the parent lives on. */
void slab_forget_all(void);

static inline bool slab_live(const struct slab_head *object) {
    return atomic_load_explicit(&object->live, memory_order_acquire) != 0;
}

static inline bool slab_has(enum slab_type type, const void *value) {
    struct slab *s = &slab[type];
    const char *base = atomic_load_explicit(&s->base, memory_order_acquire);
    if (!base || (const char *)value < base)
        return false;
    size_t offset = (size_t)((const char *)value - base);
    return offset < (size_t)atomic_load_explicit(&s->used, memory_order_acquire) * s->stride &&
           offset % s->stride == 0 && slab_live(value);
}

#endif
