/*
 * front.h - the values in memory that streams wait for and write: what a card's front end does.
 *
 * Each is an entry of its queue. The model judges a wait when it comes to the head (engine.h), in whatever process looks
 * at the machine, so no thread here is in the way of the device. A write is stored by its own process, whichever of its
 * threads looks. One thread, started with the first value, sees to it that somebody looks: when the next value is due by
 * the model, and again and again while a word is not as a wait wants it. A store alone is seen by the next such look; the
 * thread also sleeps on the word as on a futex, so whoever wakes it is served at once.
 */
#ifndef GEMINI_SIM_FRONT_H
#define GEMINI_SIM_FRONT_H

#include "libhook/sim/driver/queue.h"

/* Before the first value: the thread. */
CUresult front_start(void);

extern _Atomic bool front_used; /* a value was ever pushed */

/* queue_values_hold(), at no cost where there was never a value. */
static inline bool front_holds(const struct span *touched, int count) {
    return __builtin_expect(atomic_load_explicit(&front_used, memory_order_relaxed), 0) &&
           queue_values_hold(touched, count);
}

void front_forget(void);

/* The calling thread does what a card does by itself, which waits for no processor. */
void front_ask_for_short_slices(void);

#endif
