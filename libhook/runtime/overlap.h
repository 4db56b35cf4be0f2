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

#define OVERLAP_ONE 1024

#pragma GCC visibility push(hidden)

/* So much was believed of a chunk that is over; the time in which it ran is in the account already. Any thread. */
void overlap_learn(struct gate *gate, uint64_t believed_ns);

/* The card's time for what is in flight: `sum_ns` on all lanes, `most_ns` of it on one. */
uint64_t overlap_of(const struct gate *gate, uint64_t sum_ns, uint64_t most_ns);

#pragma GCC visibility pop

#endif
