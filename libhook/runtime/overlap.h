/*
 * overlap.h - how much of what is in flight on several streams the card runs at once.
 *
 * What is believed of launches on different streams adds up to the card's time only where the card runs one of them after
 * the other. Small kernels run beside each other, and which do is the card's business. So it is learned, from three sums
 * over the chunks that are over: what was believed of them, for how long each stream had one under way, and for how long
 * the card worked for any. The second by the third is how many streams had work at once, the first by the third how many
 * of them the card ran at once. Of a single stream that is one, whatever was believed.
 *
 * Where the first is behind the second the card is full: so many run at once, and no more. Where it is not, all that was
 * there at once ran at once; then more of it than was there may, and what is in flight may be up to twice as much. A
 * program that fills one stream after the other would never have two in flight else, for the cap has it wait at the first.
 * That is a step, and the next look says whether it was right. Where streams hardly ever had work at once nothing is seen,
 * and what is known fades.
 *
 * Of one lane alone all adds up. Not learned while other tenants' work runs beside ours.
 */
#ifndef GEMINI_RUNTIME_OVERLAP_H
#define GEMINI_RUNTIME_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

struct gate;

#define OVERLAP_ONE 1024

#pragma GCC visibility push(hidden)

/* So much was believed of a chunk that is over, and its lane had it under way from start to end. Any thread. */
void overlap_learn(struct gate *gate, uint64_t believed_ns, uint64_t start_ns, uint64_t end_ns);

/* The card's time for what is in flight: `sum_ns` on all lanes, `most_ns` of it on one. */
uint64_t overlap_of(const struct gate *gate, uint64_t sum_ns, uint64_t most_ns);

/* Does the card run streams beside each other, by what was seen of late? */
bool overlap_is_seen(const struct gate *gate);

/* Account for `work_ns` of the time between these, in which it lay `anywhere`, as beside others, or at the end. */
void overlap_account(
    struct gate *gate, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns, uint64_t work_ns, bool anywhere);

/* The cap. Where streams run beside each other it is more: a program that fills one after the other waits at each for what
 * is more than the cap in it, while the others have nothing. */
uint64_t overlap_cap_ns(const struct gate *gate);

#pragma GCC visibility pop

#endif
