/* estimate.c - the table of estimate.h. */
#include "libhook/core/estimate.h"

#define EARLY_SAMPLES 4

static uint32_t saturated(uint64_t ns) {
    return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

const struct estimate *estimate_find(const struct estimate *table, uint64_t size, uint64_t key) {
    const struct estimate *entry = &table[key & (size - 1)];
    return entry->key == key ? entry : NULL;
}

void estimate_put(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns, uint32_t samples) {
    struct estimate *entry = &table[key & (size - 1)];
    *entry = (struct estimate){.key = key, .ns = saturated(ns), .samples = samples};
}

uint64_t estimate_learn(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns) {
    struct estimate *entry = &table[key & (size - 1)];
    uint64_t old = entry->ns;

    if (entry->key != key || !entry->samples) {
        estimate_put(table, size, key, ns, 1);
        return entry->ns;
    }
    if (ns < old || entry->samples < EARLY_SAMPLES)
        old = old / 2 + ns / 2;
    else
        old += (ns - old) / 8;
    entry->ns = saturated(old);
    if (entry->samples < UINT32_MAX)
        entry->samples++;
    return entry->ns;
}
