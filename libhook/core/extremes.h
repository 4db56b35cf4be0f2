/*
 * extremes.h - the longest that a launch took lately, per key. Pure, no allocation.
 *
 * An estimate (estimate.h) says what to expect; where the lengths of one key lie far apart, as those of a persistent kernel
 * do, which keeps its grid whatever it has to do, what may come is said here. "Lately" is the last EXTREMES_WINDOW_NS
 * to twice that. A table is addressed like that of the estimates, and read without a lock, too.
 */
#ifndef GEMINI_CORE_EXTREMES_H
#define GEMINI_CORE_EXTREMES_H

#include <stdint.h>

/* cffi: begin */
#define EXTREMES_WINDOW_NS 16000000000

struct extremes {
    uint64_t key; /* 0: free */
    uint32_t window; /* that most_ns is of */
    uint32_t most_ns;
    uint32_t most_before_ns; /* of the window before */
    uint32_t mean_ns; /* of all, the last dozen most; 0: not known */
    uint32_t left_ns; /* of the means of those that were counted: what they were shorter by (extremes_spend) */
};

/* The longest lately; 0: not known. `size` is a power of two, `now_ns` any clock that does not go back. */
uint64_t extremes_most(const struct extremes *table, uint64_t size, uint64_t key, uint64_t now_ns);
/* One launch took `ns`, and surely no less: it did not wait for its host. */
void extremes_learn(struct extremes *table, uint64_t size, uint64_t key, uint64_t ns, uint64_t now_ns);
/* One launch of a key that is known took exactly so long. */
void extremes_average(struct extremes *table, uint64_t size, uint64_t key, uint64_t ns);
/* So many of a key took `length_ns` or less, nobody knows what of it was their work: on average it is what such took. What
 * one is shorter by is left for the next, as much as the longest lately. Returns what counts; 0: of the key nothing is known. */
uint64_t extremes_spend(
    struct extremes *table, uint64_t size, uint64_t key, uint64_t launches, uint64_t length_ns, uint64_t now_ns);
/* cffi: end */

#endif
