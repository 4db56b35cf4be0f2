/*
 * inflight.h - how much of the card's time is in flight on a gate, by what is believed of launches.
 */
#ifndef GEMINI_RUNTIME_INFLIGHT_H
#define GEMINI_RUNTIME_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

struct belief;
struct chunk;
struct gate;
struct gate_thread;
struct lane;

#pragma GCC visibility push(hidden)

/* For how long this chunk, which is first on its lane, has been running. */
uint64_t inflight_gone_ns(const struct lane *lane, const struct chunk *head, uint64_t now_ns);
/* What the thread, which is the calling one, has in flight, less what the first chunk must have done of itself by now. Asks
 * the driver what is over. */
uint64_t inflight_of(struct gate *gate, struct gate_thread *thread, uint64_t now_ns, uint64_t *until_next_ns);
/* The same by our own books, without asking: never less. `full`: a ring is filling up. */
uint64_t inflight_booked(const struct gate *gate, const struct gate_thread *thread, bool *full);
/* How much of the thread's may be in flight, for nothing of it ends (behind.h); after inflight_of. 0: as much as ever. */
uint64_t inflight_behind(const struct gate *gate, const struct gate_thread *thread, uint64_t now_ns);
/* What the calling thread has in flight, were each launch as long as it may be, and those that may stand still so long. */
uint64_t inflight_worst(const struct gate *gate, const struct gate_thread *thread, uint64_t paused_ns);
/* May such a launch go to this lane of the calling thread? It may, but where the lane was given up (stands.h) and too much is
 * behind all that were: no drain waits for it, so it runs in others' turns. After lane_reap. */
bool inflight_may_stand(const struct gate *gate, const struct gate_thread *thread, const struct lane *lane,
    const struct belief *belief, uint64_t now_ns);
/* What other threads have in flight, as far as it should not be over by now. */
uint64_t inflight_of_others(const struct gate *gate, const struct gate_thread *self, uint64_t now_ns);

#pragma GCC visibility pop

#endif
