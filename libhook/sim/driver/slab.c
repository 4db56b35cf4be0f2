#include "libhook/sim/driver/slab.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOTS = 1 << 20 };

struct slab slab[SLABS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *slab_take(enum slab_type type, size_t size) {
    struct slab *s = &slab[type];
    struct slab_head *object = NULL;
    pthread_mutex_lock(&lock);
    char *base = atomic_load_explicit(&s->base, memory_order_relaxed);
    uint32_t used = atomic_load_explicit(&s->used, memory_order_relaxed);
    if (!base) {
        s->stride = (size + 63) & ~(size_t)63;
        base =
            mmap(NULL, s->stride * SLOTS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        base = base == MAP_FAILED ? NULL : base;
        atomic_store_explicit(&s->base, base, memory_order_release);
    }
    /* Prefer slots never used, up to a point: the longer a dead handle stays dead the better. */
    if (base && used < SLOTS && (used < 256 || !s->first_free)) {
        object = (struct slab_head *)(base + s->stride * used);
        atomic_store_explicit(&s->used, used + 1, memory_order_release);
    } else if (base && s->first_free) {
        object = (struct slab_head *)(base + s->stride * (s->first_free - 1));
        s->first_free = object->next_free;
        if (!s->first_free)
            s->last_free = 0;
    }
    if (object) {
        memset(object + 1, 0, size - sizeof *object); /* not the head: others may look at it */
        atomic_store_explicit(&object->live, 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return object;
}

void slab_give(enum slab_type type, void *value) {
    struct slab *s = &slab[type];
    struct slab_head *object = value;
    pthread_mutex_lock(&lock);
    uint32_t number = (uint32_t)((size_t)((char *)value - s->base) / s->stride) + 1;
    atomic_store_explicit(&object->live, 0, memory_order_release);
    object->next_free = 0;
    if (s->last_free)
        ((struct slab_head *)(s->base + s->stride * (s->last_free - 1)))->next_free = number;
    else
        s->first_free = number;
    s->last_free = number;
    pthread_mutex_unlock(&lock);
}

uint32_t slab_used(enum slab_type type) {
    return atomic_load_explicit(&slab[type].used, memory_order_acquire);
}

void *slab_at(enum slab_type type, uint32_t i) {
    struct slab_head *object = (struct slab_head *)(slab[type].base + slab[type].stride * i);
    return slab_live(object) ? object : NULL;
}

void slab_forget_all(void) {
    pthread_mutex_init(&lock, NULL);
    memset(slab, 0, sizeof(slab)); /* the parent's objects stay mapped and are never looked at again */
}
