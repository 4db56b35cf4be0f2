/* extremes.c - the table of extremes.h. */
#include "libhook/core/extremes.h"

#include "libhook/core/peek.h"

static uint32_t window_at(uint64_t now_ns) {
    return (uint32_t)(now_ns / EXTREMES_WINDOW_NS);
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* How many windows ago its own began. Streams are looked at one after the other: what is learned may have been over in the
 * window before, and takes nothing of that back. */
static uint32_t age_at(const struct extremes *entry, uint64_t now_ns) {
    int32_t age = (int32_t)(window_at(now_ns) - PEEK(entry->window));

    return age > 0 ? (uint32_t)age : 0;
}

uint64_t extremes_most(const struct extremes *table, uint64_t size, uint64_t key, uint64_t now_ns) {
    const struct extremes *entry = &table[key & (size - 1)];
    uint32_t age = age_at(entry, now_ns);

    if (PEEK(entry->key) != key || age > 1)
        return 0;
    return age ? PEEK(entry->most_ns) : larger(PEEK(entry->most_ns), PEEK(entry->most_before_ns));
}

void extremes_learn(struct extremes *table, uint64_t size, uint64_t key, uint64_t ns, uint64_t now_ns) {
    struct extremes *entry = &table[key & (size - 1)];
    uint32_t age = age_at(entry, now_ns);
    uint32_t most_ns = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;

    if (PEEK(entry->key) != key || age) {
        POKE(entry->most_before_ns, PEEK(entry->key) == key && age == 1 ? PEEK(entry->most_ns) : 0);
        POKE(entry->most_ns, most_ns);
        POKE(entry->window, window_at(now_ns));
        POKE(entry->key, key);
        return;
    }
    POKE(entry->most_ns, larger(PEEK(entry->most_ns), most_ns));
}
