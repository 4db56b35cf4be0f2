/*
 * gate.h - the gate in front of the GPU, one per CUDA ordinal: what a launch passes on its way to the driver.
 *
 * How it works. A launching thread stores a plain flag of its own (inside), looks whether the gate is open, launches, and
 * clears the flag. The gate is open while its ticket is the one the thread knows and the epoch that the process was
 * granted stands in the daemon's page. Nothing else is on that path: no lock, no clock, no atomic read-modify-write.
 * Whoever closes the gate stores ticket 0, runs membarrier(PRIVATE_EXPEDITED), which puts a full fence into every thread
 * of the process, and then looks at the flags: a thread that it does not see inside will see the gate closed. Where
 * membarrier is refused the launching threads fence themselves (gate_mode).
 *
 * Each thread counts the estimated GPU time that it launched against some `room`. When that is used up, or when the
 * launch goes to another stream, or was never seen before, the way leads through gate_begin_slow(). The in-flight cap,
 * the end of the quota, the events that mark what was launched (lane.h), and waiting all live there.
 *
 * Here is what all of that look at; who launches comes by gate_begin.h, who opens and closes by gate_open.h. Nothing here
 * holds a lock across a driver call, and errno is kept.
 */
#ifndef GEMINI_RUNTIME_GATE_H
#define GEMINI_RUNTIME_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/burst.h"
#include "libhook/core/estimate.h"
#include "libhook/core/peek.h"
#include "libhook/core/wire.h"
#include "libhook/driver/cuda_types.h"

#define GATE_SHARED_ESTIMATES 8192 /* the process's; gate_thread.h has a thread's own */

/* Where membarrier is refused no thread is given room, so each launch goes by gate_begin_slow, which fences. */
enum gate_mode { GATE_INERT, GATE_MEMBARRIER, GATE_FENCED };

/* Written by the agent (gate_open, gate_close), read by launching threads, unless said otherwise. */
struct gate {
    _Alignas(64) uint64_t ticket; /* 0: closed. A launching thread may store 0 too (gate_shut). */
    const uint64_t *page_word;
    uint64_t epoch;
    uint64_t cap_ns;
    uint64_t close_by_ns; /* when the work in flight is to be over; UINT64_MAX: no end */
    bool contended;
    bool shared; /* other tenants' work runs beside ours: no span tells how long a kernel takes, unless it is shorter */
    uint64_t shared_until_ns; /* when that was over last; 0: never was it so */
    uint64_t behind_ns; /* not 0: the valve is open, for so much in flight that stands still (behind.h) */
    bool drains_long; /* what is held would be let go at once (seat.c): nothing is to be held until the gate opens */
    uint64_t paused_ns; /* when the program last made a stream stand still; any thread */
    bool free; /* nobody to ask: the device is not shared, or the mode is `run` */
    int ordinal;
    uint64_t opened_ns; /* when a thread found an armed gate open; 0: not yet */
    const uint64_t *armed_word; /* not NULL: the gate opens when this word of the page shows `epoch` */
    _Alignas(64) uint32_t wake; /* futex of those who wait; grows with each opening */
    uint32_t waiting; /* threads that wait for that; atomic */
    uint32_t awaiting; /* threads that wait until the device may begin what it holds (segments.h); atomic */
    uint32_t shut; /* a launching thread closed the gate: the quota is used up */
    uint32_t syncing; /* threads that wait in a synchronisation call which covers what they launched; atomic */
    uint32_t told_idle; /* a synchronisation call returned and nothing was launched since */
    uint32_t pending; /* threads that wait for room under the cap: not idle; atomic */
    uint32_t active; /* threads that launched under this ticket; atomic */
    uint32_t active_before; /* ... under the one before */
    uint64_t launched_epoch; /* the epoch under which something was launched last; any thread */
    uint64_t card_wait_ns; /* for which work was ready under shared grants and the card did others'; atomic */
    uint64_t waits, wait_ns, valves, h2d_bytes, d2h_bytes; /* counters; atomic */
    uint32_t burst_lock; /* for `burst`; held for nanoseconds, never over a call */
    struct burst burst;
    uint64_t owed_ns; /* of work beside others, not in `burst` yet; under its lock */
    struct {
        uint32_t lock; /* for all but `more`; held for nanoseconds, never over a call */
        uint64_t believed_ns; /* of what is over since the last look */
        uint64_t under_way_ns; /* ... for how long each lane had it, all together */
        uint64_t worked_ns; /* ... and for how long any had */
        uint64_t end_ns; /* how far that is known */
        uint32_t more; /* how many launches may run at once, beyond the first, in parts of OVERLAP_ONE */
    } overlap; /* zero: nothing is known, and nothing overlaps (overlap.h) */
};

#pragma GCC visibility push(hidden)

extern struct gate gates[WIRE_MAX_DEVICES];
extern int gate_mode; /* enum gate_mode; GATE_MEMBARRIER until the process is known to be no tenant */
extern struct estimate gate_shared_estimates[GATE_SHARED_ESTIMATES];

/* What the driver says where it lacks memory or descriptors of the host. */
#define GATE_REFUSAL CUDA_ERROR_OUT_OF_MEMORY

static inline bool gate_is_open(const struct gate *gate, uint64_t *ticket) {
    *ticket = __atomic_load_n(&gate->ticket, __ATOMIC_ACQUIRE);
    return *ticket && __atomic_load_n(PEEK(gate->page_word), __ATOMIC_ACQUIRE) == PEEK(gate->epoch);
}

/* Did, or may, other tenants' work have run beside what began then? What is over is often looked at later. */
static inline bool gate_was_shared(const struct gate *gate, uint64_t start_ns) {
    return PEEK(gate->shared) || start_ns < PEEK(gate->shared_until_ns);
}

/* The quota is used up by what is in flight: close without waiting for the agent's timer. False: it was closed. */
static inline bool gate_shut(struct gate *gate, uint64_t ticket) {
    if (!__atomic_compare_exchange_n(&gate->ticket, &ticket, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return false;
    __atomic_store_n(&gate->shut, 1, __ATOMIC_SEQ_CST);
    return true;
}

void gate_call(struct gate *gate); /* wake all who sleep on gate.wake */
void gate_account(struct gate *gate, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns);
/* Beside others: of that time the device worked `busy_ns` for this. What several threads launched into one stream lies
 * across each other, and where all of the time is counted already this work was at another. `one_by_one`: none of it ran
 * beside another, so what finds no room is counted as soon as there is some. */
void gate_account_within(
    struct gate *gate, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns, uint64_t busy_ns, bool one_by_one);
/* What is known of bursts now; with `take`, the run that is over is logged and a new one begins. */
void gate_burst_snapshot(struct gate *gate, bool take, struct burst *burst);
void gate_share(struct gate *gate, bool shared); /* from now on */
uint64_t gate_now(void); /* CLOCK_MONOTONIC */

#pragma GCC visibility pop

#endif
