/*
 * slab.h - handles that can be told from garbage. Each type of object has one slab: a reserved stretch of addresses
 * from which objects are cut. A value is a live handle iff it points at the start of an object there that is marked
 * live. Slots are reused oldest first, so a dangling handle is noticed for as long as can be.
 */
#ifndef GEMINI_SIM_SLAB_H
#define GEMINI_SIM_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slab_head {
    uint32_t live;
    uint32_t next_free; /* number of the slot, plus 1 */
};

struct slab {
    char *base;
    size_t stride;
    uint32_t used, first_free, last_free;
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

/* The live object with number i, or NULL; for walking over all: 0 .. slab[type].used - 1. */
void *slab_at(enum slab_type type, uint32_t i);

/* In a forked child: no handle of the parent lives on. */
void slab_forget_all(void);

static inline bool slab_has(enum slab_type type, const void *value) {
    const struct slab *s = &slab[type];
    size_t offset = (size_t)((const char *)value - s->base);
    return s->base && (const char *)value >= s->base && offset < (size_t)s->used * s->stride &&
           offset % s->stride == 0 && ((const struct slab_head *)value)->live;
}

#endif
