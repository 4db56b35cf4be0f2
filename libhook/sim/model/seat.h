/*
 * seat.h - a process's place at the simulated machine: the mapping, and the way to change what all share.
 *
 * Every function is safe from any thread of the process. None takes a lock that another process could hold.
 */
#ifndef GEMINI_SIM_SEAT_H
#define GEMINI_SIM_SEAT_H

#include <pthread.h>

#include "libhook/sim/model/clock.h"
#include "libhook/sim/model/engine.h"

struct sim_seat {
    struct sim_machine *machine; /* NULL: no seat */
    int number;                  /* of its sim_process */
    uint64_t owner;
    pthread_mutex_t mutex; /* over the members below; the innermost lock of the process */
    struct sim_state *work, *ahead;
    struct engine *engine;
    uint64_t seen_head[SIM_QUEUES]; /* how far each own queue had come when we last looked; atomic, no lock needed */
    struct {
        uint64_t last;    /* index plus 1 of the newest wait or write of a value; the pusher's, before the tail */
        uint64_t written; /* up to here every write was stored; under mutex, or the pusher's while there is none left */
    } value[SIM_QUEUES]; /* of each own queue; atomic */
    struct sim_watch {
        uint64_t owner;
        int pidfd;
    } watch[SIM_PROCESSES];
    uint64_t unwatched_ns; /* when those that are gone were closed last */
};

/* Take a seat at the machine that `text` (GEMINI_SIM) describes: the one of that id, made if it is not there. One that
 * is there but differs in what the text names is replaced if nobody sits at it, else it is used as it is. With `make`
 * false a machine that is not there is -ENOENT. Returns 0 or -errno and a line in `why`. */
int sim_sit(struct sim_seat *seat, const char *text, bool make, char *why, size_t why_size);

/* Give everything back, as if the process had died. */
void sim_rise(struct sim_seat *seat);

/* The process is ending, other threads may still be at it: give back memory and queued work, but keep the seat until
 * the others find the process gone. Does nothing if a thread is stuck in the middle (exit from a signal handler). */
void sim_leave(struct sim_seat *seat);

/* In a forked child: forget the parent's seat without touching what is shared. */
void sim_forget(struct sim_seat *seat);

/* Bring the state to now, apply `change` to it (may be NULL) and commit. `change` may run more than once, each time on
 * a fresh copy, and must touch nothing but the state and `argument`. What it returns comes back; not 0: without its
 * changes. It may keep what it reads. */
typedef int (*sim_change)(struct sim_state *state, void *argument);
int sim_commit(struct sim_seat *seat, sim_change change, void *argument);

/* Has our queue retired entry `index`? The cheap one answers from what was seen last. */
static inline bool sim_seen_retired(struct sim_seat *seat, uint32_t queue, uint64_t index) {
    return __atomic_load_n(&seat->seen_head[queue], __ATOMIC_ACQUIRE) > index;
}
bool sim_retired(struct sim_seat *seat, uint32_t queue, uint64_t index);

/* A value is about to be pushed into our queue at this index. Returns true if no other of the queue was outstanding. */
bool sim_value_comes(struct sim_seat *seat, uint32_t queue, uint64_t index);

/* The index plus 1 of the newest value in our queue; 0: there was none. */
static inline uint64_t sim_value_last(const struct sim_seat *seat, uint32_t queue) {
    return __atomic_load_n(&seat->value[queue].last, __ATOMIC_ACQUIRE);
}

/* Is a value outstanding in our queue, by what was seen last? */
static inline bool sim_value_outstanding(const struct sim_seat *seat, uint32_t queue) {
    return sim_value_last(seat, queue) > __atomic_load_n(&seat->seen_head[queue], __ATOMIC_ACQUIRE);
}

/* Bring the state to now; what of our writes is due is stored then. When is the next value due, at least if nobody else
 * does anything? *unmet: what our queues wait for now. */
uint64_t sim_next_value(struct sim_seat *seat, struct engine_unmet *unmet);

/* Sleep until it has. With `patience_ns` not 0, give up after that long. Returns whether it has. */
bool sim_wait(struct sim_seat *seat, uint32_t queue, uint64_t index, uint64_t patience_ns);

#endif
