/*
 * segments.h - launches that the device holds, in segments of some hundred microseconds: their numbers, and who lets them
 * go (ahead.h says what for).
 *
 * Before each segment the device waits for a word to reach its number, and behind it stores that into another word.
 * Raising the first word by a store lets segments go; the second tells how far the device is. Segments are let go only
 * while the gate is open, and only so many that what runs stays below the cap, as launches themselves would.
 */
#ifndef GEMINI_RUNTIME_SEGMENTS_H
#define GEMINI_RUNTIME_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

#define SEGMENTS 128          /* remembered; a power of two */
#define SEGMENTS_BYTES 4096   /* of memory for the words */
#define SEGMENTS_SHARED_NS 1500000 /* beside others so much may be let go at once, or the cap, if that is more */
#define SEGMENTS_APART 128    /* two lines of the processor's caches for each gate, one for each word */
#define SEGMENTS_DONE_AT 64   /* the second word, behind the first */

struct gate;
struct gate_thread;

#pragma GCC visibility push(hidden)

/* Of our own, and never unmapped: a device may look at it as long as its context lives. NULL: nothing was ever held. */
extern unsigned char *segments_words;

/* Are there segments that the device may not begin yet? */
bool segments_held(const struct gate *gate);
/* Was this one let go? */
bool segments_is_released(int ordinal, uint32_t number);
/* When that was; 0: it is none. UINT64_MAX: not yet. */
uint64_t segments_released_ns(int ordinal, uint32_t number);
/* Is what is held in this stream, as the thread understands it? */
bool segments_in_stream(const struct gate *gate, const struct gate_thread *thread, CUstream stream);
/* Is less than that not known to be over? */
bool segments_have_room(const struct gate *gate, uint64_t most_ns, uint32_t most_launches, uint32_t most);

/* Beside others: so much is let go at once, to bridge their short turns. */
uint64_t segments_shared_ns(const struct gate *gate);

/* Begin one, by one thread at a time. `first`: nothing is held, and what the stream has in flight becomes a segment before
 * it, let go already. Returns its number; 0: all that was held was let go meanwhile. */
uint32_t segments_begin(struct gate *gate, CUstream stream, const struct gate_thread *thread, bool first,
    uint64_t inflight_ns, uint64_t now_ns);
/* May a launch of `ns` join this one? Add it; and take it back, for it does not go. */
bool segments_take(const struct gate *gate, uint32_t number, uint64_t ns, uint64_t most_ns, uint32_t most_launches);
void segments_add(struct gate *gate, uint32_t number, uint64_t ns);
void segments_take_back(struct gate *gate, uint32_t number, uint64_t ns);

/* Let go what may run by now. Returns in how many ns more may (UINT64_MAX: nothing is held, or the gate is closed). */
uint64_t segments_pump(struct gate *gate, uint64_t now_ns);
/* The gate opens: what is held now was held while it was closed. */
void segments_opened(struct gate *gate, uint64_t now_ns);
/* Let all of it go, whatever the gate says. */
void segments_release(struct gate *gate);
/* Let go, whatever the gate says, what nothing else would: the next one where all is over that was let go and a thread is
 * `stuck` in the driver for what is held, and all of it where what was let go stands still (behind.h). */
void segments_release_due(struct gate *gate, bool stuck, uint64_t now_ns);
/* After gate_close: whoever lets segments go has seen that. */
void segments_close(struct gate *gate);
/* Wake the threads that wait (gate.awaiting) when the newest segment, or the next one, is let go. */
void segments_call_for(struct gate *gate, bool newest);
/* By so much what is in flight may be above the cap, for it was held: else the host would wait for what it gained. */
uint64_t segments_over_cap_ns(const struct gate *gate, uint64_t now_ns);

struct segments_look {
    bool drained; /* what was let go is over */
    uint64_t end_ns; /* ... by then */
    uint64_t inflight_ns;
};
/* While segments are held: what the device is doing with those let go. */
void segments_look(struct gate *gate, uint64_t now_ns, struct segments_look *look);
/* In a forked child. */
void segments_reset_after_fork(void);

#pragma GCC visibility pop

#endif
