/* extremes.c - the table of extremes.h. */
#include "libhook/core/extremes.h"

#include "libhook/core/peek.h"

#define AVERAGED 16 /* the part of the mean that one launch is */

static uint32_t window_at(uint64_t now_ns) {
    return (uint32_t)(now_ns / EXTREMES_WINDOW_NS);
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t saturated(uint64_t ns) {
    return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

uint64_t extremes_most(const struct extremes *table, uint64_t size, uint64_t key, uint64_t now_ns) {
    const struct extremes *entry = &table[key & (size - 1)];
    uint32_t age = window_at(now_ns) - PEEK(entry->window);

    if (PEEK(entry->key) != key || age > 1)
        return 0;
    return age ? PEEK(entry->most_ns) : larger(PEEK(entry->most_ns), PEEK(entry->most_before_ns));
}

void extremes_learn(struct extremes *table, uint64_t size, uint64_t key, uint64_t ns, uint64_t now_ns) {
    struct extremes *entry = &table[key & (size - 1)];
    uint32_t window = window_at(now_ns), age = window - PEEK(entry->window);
    uint32_t most_ns = saturated(ns);

    if (PEEK(entry->key) != key) {
        POKE(entry->mean_ns, 0);
        POKE(entry->left_ns, 0);
    }
    if (PEEK(entry->key) != key || age) {
        POKE(entry->most_before_ns, PEEK(entry->key) == key && age == 1 ? PEEK(entry->most_ns) : 0);
        POKE(entry->most_ns, most_ns);
        POKE(entry->window, window);
        POKE(entry->key, key);
        return;
    }
    POKE(entry->most_ns, larger(PEEK(entry->most_ns), most_ns));
}

void extremes_average(struct extremes *table, uint64_t size, uint64_t key, uint64_t ns) {
    struct extremes *entry = &table[key & (size - 1)];
    int64_t mean_ns = PEEK(entry->mean_ns), one_ns = saturated(ns);

    if (PEEK(entry->key) == key)
        POKE(entry->mean_ns, (uint32_t)(mean_ns ? mean_ns + (one_ns - mean_ns) / AVERAGED : one_ns));
}

uint64_t extremes_spend(
    struct extremes *table, uint64_t size, uint64_t key, uint64_t launches, uint64_t length_ns, uint64_t now_ns) {
    struct extremes *entry = &table[key & (size - 1)];
    uint64_t mean_ns = PEEK(entry->key) == key ? PEEK(entry->mean_ns) : 0;

    if (!mean_ns)
        return 0;
    uint64_t due_ns = PEEK(entry->left_ns) + mean_ns * launches, most_ns = extremes_most(table, size, key, now_ns);
    uint64_t spent_ns = length_ns < due_ns ? length_ns : due_ns, left_ns = due_ns - spent_ns;
    POKE(entry->left_ns, (uint32_t)(left_ns < most_ns ? left_ns : most_ns));
    return spent_ns;
}
