/*
 * waited.h - for how long a lane's host waited because the card did others' work.
 *
 * A host that goes on launching while its work waits for the card loses nothing by that. So only time counts in which it
 * launched nothing, or stood still in a launch, and only as far as its work would have been over had it had the card
 * alone. A clock that stands while such time passes tells when that is; each chunk that is over moves on what the card
 * would have done by it.
 */
#ifndef GEMINI_RUNTIME_WAITED_H
#define GEMINI_RUNTIME_WAITED_H

#include <stdint.h>

struct waited {
    uint64_t total_ns; /* of all time: by so much the clock is slow */
    uint64_t alone_ns; /* by that clock: when the last chunk would have been over */
};

/* A chunk that is over. */
struct waited_chunk {
    uint64_t before_ns; /* total_ns when it was launched */
    uint64_t first_ns;  /* when its first launch could have begun, */
    uint64_t out_ns;    /* ... and its last one; */
    uint64_t end_ns;    /* when it was over; */
    uint64_t busy_ns;   /* how long the card works for it alone, */
    uint64_t each_ns;   /* ... and for one of its launches; */
    uint64_t silent_ns; /* while the card had it in hand its host launched nothing for so long */
};

#pragma GCC visibility push(hidden)

/* It ran beside others' work: what of the silent time its host waited in vain. */
uint64_t waited_beside(struct waited *waited, const struct waited_chunk *chunk);
/* It ran alone. */
void waited_alone(struct waited *waited, uint64_t end_ns);

#pragma GCC visibility pop

#endif
