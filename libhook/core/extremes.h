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
};

/* The longest lately; 0: not known. `size` is a power of two, `now_ns` of any clock; of one before the last it
 * is as if it were that. */
uint64_t extremes_most(const struct extremes *table, uint64_t size, uint64_t key, uint64_t now_ns);
/* One launch took `ns`, and surely no less: it did not wait for its host. */
void extremes_learn(struct extremes *table, uint64_t size, uint64_t key, uint64_t ns, uint64_t now_ns);
/* cffi: end */

#endif
