/*
 * estimate.h - how long a launch will take, learned per key (a hash of function and grid). Pure, no allocation.
 *
 * A table is an array of a power of two of entries, addressed directly by the key: who comes later takes the place. A
 * thread's own small table stands before the process's large one. Entries may be read while another thread writes: the
 * worst is one wrong estimate.
 *
 * A sample can only be too long (the launch waited for other work), hardly ever too short; so an estimate follows
 * shorter samples fast and longer ones slowly, and no sample is taken for more than eight times the estimate: a thread
 * that was stopped between its launch's time and its launch measures how long it was stopped. Who believed that would
 * launch one kernel a turn, for it would fill any quota, and learn little from so few.
 */
#ifndef GEMINI_CORE_ESTIMATE_H
#define GEMINI_CORE_ESTIMATE_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
struct estimate {
    uint64_t key; /* 0: free */
    uint32_t ns;
    uint32_t samples; /* 0: a guess */
};

/* The entry of `key`, or NULL. `size` is a power of two. */
const struct estimate *estimate_find(const struct estimate *table, uint64_t size, uint64_t key);
/* Put a first figure in the key's place (samples 0: a guess). */
void estimate_put(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns, uint32_t samples);
/* Learn that one launch took `ns`; returns the new estimate. */
uint64_t estimate_learn(struct estimate *table, uint64_t size, uint64_t key, uint64_t ns);
/* cffi: end */

/* Mixes what tells one launch from another; never 0. Inline: it runs at every launch. */
static inline uint64_t estimate_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    uint64_t hash =
        a * 0x9E3779B97F4A7C15ull ^ b * 0xD6E8FEB86659FD93ull ^ c * 0xBF58476D1CE4E5B9ull ^ d * 0x94D049BB133111EBull;
    return (hash ^ hash >> 32) | 1ull << 63;
}

#endif
