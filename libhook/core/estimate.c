/* estimate.c - the table of estimate.h. */
#include "libhook/core/estimate.h"

#include "libhook/core/peek.h"

#define EARLY_SAMPLES 4
#define MOST_TIMES 8 /* that a sample may be as long as the estimate and be believed */

static uint32_t saturated(uint64_t ns) {
    return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static struct estimate *group_of(const struct estimate *table, uint64_t size, uint64_t key) {
    return (struct estimate *)&table[key & (size - 1) & ~(uint64_t)(ESTIMATE_GROUP - 1)];
}

const struct estimate *estimate_find(const struct estimate *table, uint64_t size, uint64_t key) {
    const struct estimate *group = group_of(table, size, key);

    for (int i = 0; i < ESTIMATE_GROUP; i++)
        if (PEEK(group[i].key) == key)
            return &group[i];
    return NULL;
}

/* The key's own place, else a free one, else that of one of the others. */
static struct estimate *place_for(struct estimate *table, uint64_t size, uint64_t key) {
    struct estimate *group = group_of(table, size, key), *place = NULL;

    for (int i = 0; i < ESTIMATE_GROUP; i++) {
        if (PEEK(group[i].key) == key)
            return &group[i];
        if (!place && !PEEK(group[i].key))
            place = &group[i];
    }
    return place ? place : &group[key / size % ESTIMATE_GROUP];
}

void estimate_put(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns, uint32_t samples) {
    estimate_write(place_for(table, size, key), key, ns, samples);
}

void estimate_write(struct estimate *entry, uint64_t key, uint64_t ns, uint32_t samples) {
    POKE(entry->key, key);
    POKE(entry->ns, saturated(ns));
    POKE(entry->samples, samples);
}

uint64_t estimate_learn(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns) {
    struct estimate *entry = place_for(table, size, key);
    uint64_t old = PEEK(entry->ns);
    uint32_t samples = PEEK(entry->samples);

    if (PEEK(entry->key) != key || !samples) {
        estimate_write(entry, key, ns, 1);
        return saturated(ns);
    }
    if (old && ns > old * MOST_TIMES)
        ns = old * MOST_TIMES;
    if (ns < old || samples < EARLY_SAMPLES)
        old = old / 2 + ns / 2;
    else
        old += (ns - old) / 8;
    POKE(entry->ns, saturated(old));
    if (samples < UINT32_MAX)
        POKE(entry->samples, samples + 1);
    return saturated(old);
}
