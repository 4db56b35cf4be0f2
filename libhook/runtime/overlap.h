/*
 * overlap.h - how much of what is in flight on several streams the card runs at once.
 *
 * What is believed of launches on different streams adds up to the card's time only where the card runs one of them after
 * the other. Small kernels run beside each other, and which do is the card's business. So it is learned: what was believed
 * of all chunks that are over, by the time in which the card worked for any of them. Above 1 so many ran at once; below,
 * they were longer than believed, or the card was not busy, and each counts for itself.
 *
 * Of one lane alone all adds up. Not learned while other tenants' work runs beside ours.
 */
#ifndef GEMINI_RUNTIME_OVERLAP_H
#define GEMINI_RUNTIME_OVERLAP_H

#include <stdint.h>

struct gate;
struct gate_thread;

#define OVERLAP_ONE 1024

struct overlap { /* zero: nothing is known, and nothing overlaps */
    uint64_t believed_ns; /* of what is over since the last look; atomic */
    uint64_t worked_ns;   /* burst.total_busy_ns at the last look */
    uint32_t more;        /* how many launches run at once, beyond the first, in parts of OVERLAP_ONE */
};

#pragma GCC visibility push(hidden)

/* So much was believed of a chunk that is over; the time in which it ran is in the account already. Any thread. */
void overlap_learn(struct gate *gate, uint64_t believed_ns);

/* The card's time for what is in flight: `sum_ns` on all lanes, `most_ns` of it on one. */
uint64_t overlap_of(const struct gate *gate, uint64_t sum_ns, uint64_t most_ns);

/* The card's time for what other threads have in flight on this gate, as far as it should not be over by now. */
uint64_t overlap_others(const struct gate *gate, const struct gate_thread *self, uint64_t now_ns);

#pragma GCC visibility pop

#endif
