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
    if (!s->base) {
        s->stride = (size + 63) & ~(size_t)63;
        void *base =
            mmap(NULL, s->stride * SLOTS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        s->base = base == MAP_FAILED ? NULL : base;
    }
    /* Prefer slots never used, up to a point: the longer a dead handle stays dead the better. */
    if (s->base && s->used < SLOTS && (s->used < 256 || !s->first_free)) {
        object = (struct slab_head *)(s->base + s->stride * s->used++);
    } else if (s->base && s->first_free) {
        object = (struct slab_head *)(s->base + s->stride * (s->first_free - 1));
        s->first_free = object->next_free;
        if (!s->first_free)
            s->last_free = 0;
    }
    if (object) {
        memset(object, 0, size);
        object->live = 1;
    }
    pthread_mutex_unlock(&lock);
    return object;
}

void slab_give(enum slab_type type, void *value) {
    struct slab *s = &slab[type];
    struct slab_head *object = value;
    pthread_mutex_lock(&lock);
    uint32_t number = (uint32_t)((size_t)((char *)value - s->base) / s->stride) + 1;
    object->live = 0;
    object->next_free = 0;
    if (s->last_free)
        ((struct slab_head *)(s->base + s->stride * (s->last_free - 1)))->next_free = number;
    else
        s->first_free = number;
    s->last_free = number;
    pthread_mutex_unlock(&lock);
}

void *slab_at(enum slab_type type, uint32_t i) {
    struct slab_head *object = (struct slab_head *)(slab[type].base + slab[type].stride * i);
    return object->live ? object : NULL;
}

void slab_forget_all(void) {
    pthread_mutex_init(&lock, NULL);
    memset(slab, 0, sizeof(slab)); /* the parent's objects stay mapped and are never looked at again */
}
