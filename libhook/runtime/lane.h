/*
 * lane.h - what one thread launched into one stream, cut into chunks that each end with an event.
 *
 * Only the thread that launches may record an event for certain (handle 0x2 means the calling thread's own stream). So
 * every lane belongs to one thread: it alone writes it (POKE where others look), cuts chunks (lane_cut), and takes
 * finished ones off (lane_reap). Work that was launched since the last cut is *open*. Events and their order tell when
 * chunks ended on the device's own clock: the end of chunk n is the end of chunk n-1 plus the time between their
 * events.
 *
 * The agent only looks (lane_probe). For open work of a thread that is elsewhere it records an event of its own on the
 * lane's stream; on the context's legacy stream for the default streams, since that one waits for all blocking streams
 * of the context. While one of those captures, nothing may be recorded there: so what threads launched into default
 * streams gets its event when a capture begins (watch.c), and each further launch at once. It is kept out while streams
 * and contexts are destroyed (visit.h).
 */
#ifndef GEMINI_RUNTIME_LANE_H
#define GEMINI_RUNTIME_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/peek.h"
#include "libhook/driver/cuda_types.h"
#include "libhook/runtime/chunk.h"
#include "libhook/runtime/segments.h"
#include "libhook/runtime/waited.h"

#define LANE_CHUNKS 64

struct gate;
struct gate_thread;

enum lane_state { LANE_FREE, LANE_LIVE, LANE_LOST };

struct lane {
    /* the launch path */
    uint64_t open_ns;
    uint64_t open_key;
    uint64_t open_mixed; /* not 0: not all launches had open_key */
    uint64_t launched;   /* ever */
    /* the owner's; the agent reads */
    uint64_t cut; /* of `launched`, how many are covered by events */
    struct lane *next;
    CUcontext context;
    CUstream stream;
    int ordinal;
    uint32_t state;       /* enum lane_state; others may set LANE_LOST: the context is gone */
    uint32_t stream_gone; /* the stream was destroyed */
    uint64_t pushed;      /* chunks ever cut */
    uint64_t popped;      /* ... and reaped */
    uint64_t ring_ns;     /* estimated time of those not reaped */
    uint64_t open_wanted_ns;
    uint64_t open_first_ns;
    uint64_t open_most_ns;
    uint64_t open_waited_ns;
    uint32_t open_held;
    bool open_unknown;
    bool open_alone;
    bool behind_other; /* a copy or a wait was enqueued behind what was launched last */
    bool late; /* a wait was enqueued since the last event; others may say so, too */
    bool based; /* base_event ended at base_ns */
    CUevent base_event;
    uint64_t base_ns;
    uint64_t base_late_ns; /* by so much base_ns may be later than that: its thread may have stood still in between */
    uint32_t base_held; /* ... or when that segment was let go (segments.h), if that was later */
    uint64_t end_ns; /* of the last chunk reaped */
    struct waited waited;
    uint64_t blind_ns; /* an event could not be recorded: the work should be over by then */
    bool unconfirmed; /* ... and that is all we know */
    struct chunk ring[LANE_CHUNKS];
    /* the agent's (while it is kept out, of the threads that destroy the stream or begin captures: by lane.c's lock) */
    CUevent foreign_event;
    bool foreign_recorded;
    uint64_t foreign_mark; /* `launched` when it was recorded */
    uint64_t foreign_ns; /* when that was */
    uint64_t clean_mark; /* `launched` when all was seen finished */
    uint64_t clean_ns; /* ... and when what was open then was over */
    uint32_t held; /* number of the last segment that was held here (segments.h); the owner's */
    uint64_t seen_from,
        seen_ns; /* of the chunk that begins there, so much is accounted already: an open one's beginning */
    uint64_t stood; /* 1 + which chunk was the first, when it was seen to stand still (stands.c); 0: none was */
};

#pragma GCC visibility push(hidden)

/* The calling thread's lane for this stream of its current context; NULL where memory or events cannot be had. */
struct lane *lane_of(struct gate_thread *thread, CUcontext context, CUstream stream, int ordinal);
/* Is there one already? */
bool lane_is_known(const struct gate_thread *thread, CUcontext context, CUstream stream);
/* End the open chunk with an event. */
void lane_cut(struct lane *lane, uint64_t now_ns);
/* A copy between host and device, or a wait, is about to be enqueued in the stream: what was launched ends before it. */
void lane_other_comes(struct lane *lane, uint64_t now_ns);
/* ... and what is launched next begins when it is over: an event of its own tells, if anything is in flight. */
void lane_other_ends(struct lane *lane, uint64_t now_ns);
/* A wait is about to be enqueued, and no event is spent on it: the length of what is around it tells nothing. */
void lane_wait_comes(struct lane *lane);
/* A chunk is about to begin, without a base. `late`: behind what other streams have. Where its length is wanted an event stands
 * before it. */
void lane_begins(struct lane *lane, bool late, bool wanted, uint64_t now_ns);
/* With nothing in flight: an event that is over at once, or when segment `held` is let go (0: none), so that the next
 * chunk's beginning is known. */
void lane_base(struct lane *lane, uint32_t held, uint64_t now_ns);
/* Handles that mean a stream of the current context, of the thread even. */
static inline bool lane_is_default(CUstream stream) {
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}
/* Estimated GPU time launched and not known to be over. */
static inline uint64_t lane_inflight(const struct lane *lane) {
    return PEEK(lane->open_ns) + PEEK(lane->ring_ns);
}

/* Is what was launched there last held by the device? */
static inline bool lane_is_held(const struct lane *lane) {
    uint32_t held = PEEK(lane->held);

    return held && !segments_is_released(PEEK(lane->ordinal), held);
}

/* From when on the device may have worked on what was launched at `first_ns` and held in that segment. */
static inline uint64_t lane_began(int ordinal, uint64_t first_ns, uint32_t held) {
    uint64_t released_ns = held ? segments_released_ns(ordinal, held) : 0;
    return first_ns > released_ns ? first_ns : released_ns;
}

static inline uint64_t lane_base_ns(const struct lane *lane) {
    return lane_began(PEEK(lane->ordinal), PEEK(lane->base_ns), PEEK(lane->base_held));
}

/* How long the card worked, of `start` to `end`, for what is believed to take so long, the last of it launched by
 * `mark`. */
static inline uint64_t lane_work(uint64_t believed_ns, uint64_t start_ns, uint64_t mark_ns, uint64_t end_ns) {
    uint64_t least_ns = end_ns > mark_ns ? end_ns - mark_ns : 0;
    uint64_t work_ns = believed_ns > least_ns ? believed_ns : least_ns;
    return work_ns < end_ns - start_ns ? work_ns : end_ns - start_ns;
}

/* What of the chunk that begins there the agent has accounted already. */
static inline uint64_t lane_seen(const struct lane *lane, uint64_t from) {
    return PEEK(lane->seen_from) == from ? PEEK(lane->seen_ns) : 0;
}

/* What is open is in a chunk, or over. */
void lane_clear_open(struct lane *lane);

/* Held around what the agent's side of a lane says, by threads that keep the agent out. */
void lane_lock(void);
void lane_unlock(void);
/* In a forked child. */
void lane_reset_after_fork(void);

#pragma GCC visibility pop

#endif
