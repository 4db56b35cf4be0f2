/*
 * estimate.h - how long a launch will take, learned per key (a hash of function and grid). Pure, no allocation.
 *
 * A table is an array of a power of two of entries in groups. The key names the group, and has any place there: two kernels
 * that the program launches in turn would, at one place, be new to us each time, and a new one is measured. Where all are
 * taken, who comes later takes another's. A thread's own table, which stands before the process's, is addressed directly by
 * the key: there it only has to be quick. Entries may be read while another thread writes: the worst is one wrong estimate.
 *
 * A sample can only be too long (the launch waited for other work), hardly ever too short. So an estimate follows
 * shorter samples fast and longer ones slowly, and no sample is taken for more than eight times the estimate. For a
 * thread that was stopped between its launch's time and its launch measures how long it was stopped. A process that
 * believed that would launch one kernel a turn, for it would fill any quota, and learn little from so few.
 */
#ifndef GEMINI_CORE_ESTIMATE_H
#define GEMINI_CORE_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define ESTIMATE_GROUP 4 /* 64 bytes */

struct estimate {
    uint64_t key; /* 0: free */
    uint32_t ns;
    uint32_t samples; /* 0: a guess */
};

/* The entry of `key`, or NULL. `size` is a power of two, and a group at least. */
const struct estimate *estimate_find(const struct estimate *table, uint64_t size, uint64_t key);
/* Put a first figure in a place of the key's (samples 0: a guess). */
void estimate_put(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns, uint32_t samples);
/* The same in a place that the caller knows. */
void estimate_write(struct estimate *entry, uint64_t key, uint64_t ns, uint32_t samples);
/* Learn that one launch took `ns`; returns the new estimate. */
uint64_t estimate_learn(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns);
/* cffi: end */

/* The key of a launch that may stand still on its way, and whether one is: how long such a launch took may be no work. */
static inline uint64_t estimate_pausing(uint64_t mixed) {
    return (mixed & INT64_MAX) | 1;
}

static inline bool estimate_pauses(uint64_t key) {
    return key && !(key >> 63);
}

/* Mixes what tells one launch from another; never 0, and the highest bit is set. Inline: it runs at every launch. */
static inline uint64_t estimate_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t hash =
        a * 0x9E3779B97F4A7C15ull ^ b * 0xD6E8FEB86659FD93ull ^ c * 0xBF58476D1CE4E5B9ull ^ d * 0x94D049BB133111EBull;
    return (hash ^ hash >> 32) | 1ull << 63;
}

#endif
