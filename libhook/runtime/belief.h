/*
 * belief.h - what is believed of a launch's length before it goes, and what is learned of it when it is over.
 *
 * Two figures: what it likely takes, which says how much is in flight, and what it may take. Where the second is far from
 * the first the launch is *wild*: its function was seen a few times only, or its lengths lie far apart lately. A wild launch
 * stands between two events of its own, so that its length is known when it is over, and few of them are in flight
 * (gate_slow.c): however long they turn out to be, it is few that do.
 *
 * A chunk of several kinds teaches nothing of any of them. Where its length is far from what was believed of all
 * together, nothing that was learned is trusted before it was seen again.
 */
#ifndef GEMINI_RUNTIME_BELIEF_H
#define GEMINI_RUNTIME_BELIEF_H

#include <stdbool.h>
#include <stdint.h>

struct chunk;
struct gate;
struct gate_thread;

struct belief {
    uint64_t ns;      /* what it likely takes */
    uint64_t most_ns; /* what it may take; as much as `ns` where it is not wild */
    uint64_t paused_ns; /* not 0: it may stand still, and one took so long of late; whether it worked is not known */
    bool wild;
    bool young; /* seen a few times only: it may be anything */
    bool measure; /* it is to stand between two events of its own */
    bool unknown; /* nothing is known of its length */
};

#pragma GCC visibility push(hidden)

/* Of the launch with this key; `family` and `guess_ns` as in gate.h. Where it is known well the thread's own table has it
 * afterwards. */
struct belief belief_of(const struct gate *gate, struct gate_thread *thread, uint64_t key, uint64_t family,
    uint64_t guess_ns, uint64_t now_ns);
/* Was something learned since the thread's last belief by which that may be too short? */
bool belief_is_old(const struct gate *gate, const struct gate_thread *thread);
/* A chunk took from start to end. `queued`: all of it was launched before what was ahead of it was over. `sure_ns`: what of
 * its length the device surely worked; 0: not known. */
void belief_learn(const struct gate *gate, struct gate_thread *thread, const struct chunk *chunk, uint64_t start_ns,
    uint64_t end_ns, bool queued, uint64_t sure_ns);

#pragma GCC visibility pop

#endif
