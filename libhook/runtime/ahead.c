/* ahead.c - what may be held, and the waits and stores that hold it (ahead.h). */
#define _GNU_SOURCE
#include "libhook/runtime/ahead.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libhook/core/peek.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/away.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/lane_reap.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/segments.h"
#include "libhook/runtime/visit.h"

#define SEGMENTS_AHEAD 60   /* not known to be over, at most */
#define SEGMENT_NS 250000   /* of believed time */
#define CAP_LEAST_NS                                                                                                   \
    (2 * SEGMENT_NS) /* a lower cap is for who waits for the card: little is to run before it, each time */
#define SEGMENT_LAUNCHES 64
#define SHARED_LAUNCHES 256 /* of a segment beside others */
#define LAUNCHES_AHEAD                                                                                                 \
    512  /* together with waits, stores and events below the 1,024 that a queue of the driver's takes */

_Static_assert(SEGMENTS >= 2 * LANE_CHUNKS && SEGMENTS_AHEAD < LANE_CHUNKS, "a chunk's segment is remembered");

/* One for each gate; atomic. */
static struct holding {
    uint32_t entering; /* a thread is beginning a segment */
    uint32_t barred;   /* threads that want what cannot be held */
} holdings[WIRE_MAX_DEVICES];

static CUcontext known; /* where the device knows our words; atomic */
static CUdeviceptr device_words; /* ... and as what */
static CUcontext tried; /* the last for which that was asked; atomic */
static bool never; /* atomic */

static struct holding *holding_of(const struct gate *gate) {
    return &holdings[gate->ordinal];
}

/* The driver may wait for what is held when it is torn down, and nobody would let it go any more. */
static void at_exit(void) {
    ahead_never();
    for (int i = 0; i < WIRE_MAX_DEVICES; i++)
        segments_release(&gates[i]);
}

/* By the first context the driver's own handlers are there, and ours comes before them. A program may make many contexts; a
 * forked child has the handler. */
static void watch_exit_once(void) {
    static bool watched; /* any thread */

    if (!__atomic_exchange_n(&watched, true, __ATOMIC_RELAXED))
        atexit(at_exit);
}

void ahead_prepare(CUcontext context) {
    if (PEEK(tried) == context || PEEK(never) || __atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE))
        return;
    CUcontext before = PEEK(tried);
    if (__atomic_load_n(&known, __ATOMIC_ACQUIRE) ||
        !__atomic_compare_exchange_n(&tried, &before, context, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return; /* one context of a process is enough */
    if (!segments_words) {
        void *page = mmap(NULL, SEGMENTS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return;
        /* After a fork the next store could go to a copy, while the device looks at the old page. */
        if (madvise(page, SEGMENTS_BYTES, MADV_DONTFORK)) {
            munmap(page, SEGMENTS_BYTES);
            return;
        }
        segments_words = page;
    }
    struct visit visit;
    CUdeviceptr found = 0;
    bool can = visit_begin(&visit, context) && !visit.lost &&
               real.cuMemHostRegister_v2(segments_words, SEGMENTS_BYTES,
                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS &&
               real.cuMemHostGetDevicePointer_v2(&found, segments_words, 0) == CUDA_SUCCESS;
    visit_end(&visit);
    if (!can) {
        ahead_never();
        return;
    }
    device_words = found;
    watch_exit_once();
    __atomic_store_n(&known, context, __ATOMIC_RELEASE);
}

/* ---- may a launch be held? ---- */

/* Has the process worked on another card? Then a drain there must be seen while something is held here. */
static bool on_one_card(const struct gate *gate) {
    for (int i = 0; i < WIRE_MAX_DEVICES; i++)
        if (&gates[i] != gate && PEEK(gates[i].launched_epoch))
            return false;
    return true;
}

/* Would the card idle in a turn, for the host meets the cap and is away for longer than that lasts? */
static bool is_often_away(const struct gate *gate) {
    return PEEK(gate->cap_ns) >= CAP_LEAST_NS && away_is_expected(gate, gate_now());
}

bool ahead_would_hold(const struct gate *gate) {
    return !PEEK(never) && (PEEK(gate->shared) || is_often_away(gate));
}

/* Is all that the process has in flight on this gate in the stream of the lane? Only that can be told by our words. */
static bool only_in(const struct gate *gate, const struct lane *mine, bool drained) {
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (const struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next) {
            if (&gates[PEEK(lane->ordinal)] != gate || __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
                continue;
            bool same = !drained &&
                        (lane == mine || (PEEK(lane->stream) == mine->stream && PEEK(lane->context) == mine->context &&
                                             mine->stream != CU_STREAM_PER_THREAD && !PEEK(lane->stream_gone)));
            bool clean = (PEEK(lane->pushed) == PEEK(lane->popped) && PEEK(lane->launched) == PEEK(lane->cut)) ||
                         __atomic_load_n(&lane->clean_mark, __ATOMIC_ACQUIRE) == PEEK(lane->launched);
            if ((!same && !clean) || PEEK(lane->blind_ns))
                return false;
        }
    return true;
}

static uint64_t segment_most_ns(const struct gate *gate) {
    return PEEK(gate->shared) ? segments_shared_ns(gate)
                              : SEGMENT_NS; /* all of it is let go at once, or piece by piece */
}

static bool has_room(const struct gate *gate) {
    uint64_t most_ns = PEEK(gate->shared) ? segments_shared_ns(gate) : UINT64_MAX;

    return segments_have_room(gate, most_ns, LAUNCHES_AHEAD, SEGMENTS_AHEAD);
}

bool ahead_may_hold(const struct gate *gate, const struct gate_thread *thread, const struct lane *lane) {
    if (PEEK(never) || lane->context != __atomic_load_n(&known, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&holding_of(gate)->barred, __ATOMIC_RELAXED) ||
        lane->pushed - lane->popped >= LANE_CHUNKS - 2 || PEEK(gate->free) || PEEK(gate->behind_ns) ||
        PEEK(gate->drains_long))
        return false;
    uint64_t ticket;
    if (PEEK(gate->shared) ? gate_is_open(gate, &ticket) : !is_often_away(gate))
        return false;
    if (segments_held(gate))
        return segments_in_stream(gate, thread, lane->stream) && has_room(gate);
    return on_one_card(gate) && only_in(gate, lane, PEEK(gate->shared));
}

void ahead_bar(struct gate *gate, bool barred) {
    __atomic_add_fetch(&holding_of(gate)->barred, barred ? 1u : UINT32_MAX, __ATOMIC_SEQ_CST);
}

/* ---- holding ---- */

/* Put a store of the last number, unless that is over, and a wait for this one, into the lane's stream. */
static bool enter_wait(const struct gate *gate, struct lane *lane, uint32_t number, bool drained) {
    CUdeviceptr word = device_words + (size_t)gate->ordinal * SEGMENTS_APART;
    CUresult result = CUDA_SUCCESS;
    struct visit visit;

    bool may = visit_begin(&visit, lane->context) && !visit.lost && !__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE);
    if (may && !drained)
        result = real.cuStreamWriteValue32_v2(
            lane->stream, word + SEGMENTS_DONE_AT, number - 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (may && result == CUDA_SUCCESS)
        result = real.cuStreamWaitValue32_v2(lane->stream, word, number, CU_STREAM_WAIT_VALUE_GEQ);
    visit_end(&visit);
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_FOUND) { /* any other is of this stream alone */
        log_line(LOG_INFO, "streams cannot wait for a value here: launches wait at the closed gate");
        ahead_never();
    }
    return may && result == CUDA_SUCCESS;
}

/* A new segment begins. Only one thread at a time comes here (holding.entering). */
static bool begin_segment(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns) {
    bool first = !segments_held(gate);

    lane_reap(gate, thread, lane, now_ns);
    lane_cut(lane, now_ns);
    if (lane->launched != lane->cut)
        return false;
    if (first && !visit_try_to_keep_agent_out())
        return false;
    uint64_t inflight_ns = 0;
    if (first)
        for (struct gate_thread *other = gate_threads(); other; other = other->next)
            for (struct lane *one = __atomic_load_n(&other->lanes, __ATOMIC_ACQUIRE); one; one = one->next)
                if (&gates[PEEK(one->ordinal)] == gate && PEEK(one->clean_mark) != PEEK(one->launched))
                    inflight_ns += lane_inflight(one);
    uint32_t number = segments_begin(gate, lane->stream, thread, first, inflight_ns, now_ns);
    if (!number)
        return false;
    if (first)
        agent_kick(); /* to ask, and to let segments go when it is time */
    bool drained = first && !inflight_ns;
    if (!enter_wait(gate, lane, number, drained))
        return false; /* an empty segment, without a wait */
    POKE(lane->held, number);
    if (drained)
        lane_base(lane, number, now_ns);
    return true;
}

bool ahead_hold(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t ns, uint64_t now_ns) {
    struct holding *holding = holding_of(gate);
    uint32_t none = 0, most_launches = PEEK(gate->shared) ? SHARED_LAUNCHES : SEGMENT_LAUNCHES;

    if (!lane_is_held(lane) || !segments_take(gate, lane->held, ns, segment_most_ns(gate), most_launches)) {
        if (!__atomic_compare_exchange_n(&holding->entering, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return false;
        bool begun = ahead_may_hold(gate, thread, lane) && begin_segment(gate, thread, lane, now_ns);
        __atomic_store_n(&holding->entering, 0, __ATOMIC_SEQ_CST);
        if (!begun)
            return false;
    }
    segments_add(gate, lane->held, ns);
    return true;
}

void ahead_unhold(struct gate *gate, const struct lane *lane, uint64_t ns) {
    segments_take_back(gate, lane->held, ns);
}

/* ---- ends ---- */

void ahead_never(void) {
    __atomic_store_n(&never, true, __ATOMIC_SEQ_CST);
}

void ahead_lost(CUcontext context) {
    if (__atomic_load_n(&known, __ATOMIC_ACQUIRE) == context) {
        __atomic_store_n(&known, NULL, __ATOMIC_RELEASE);
        for (int i = 0; i < WIRE_MAX_DEVICES; i++)
            segments_release(&gates[i]); /* what went with it */
    }
    if (PEEK(tried) == context)
        POKE(tried, NULL);
}

void ahead_reset_after_fork(void) {
    segments_reset_after_fork();
    known = tried = NULL;
    never = false;
    memset(holdings, 0, sizeof holdings);
    away_reset_after_fork();
}
