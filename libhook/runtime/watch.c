/* watch.c - synchronisation, captures and ends of handles, as the gate sees them (watch.h). */
#include "libhook/runtime/watch.h"

#include <errno.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/ahead.h"
#include "libhook/runtime/behind.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_slow.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/held.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/lane_probe.h"
#include "libhook/runtime/lane_reap.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/stands.h"
#include "libhook/runtime/visit.h"

#define KICK_BELOW_NS 50000 /* an idle token is to be kept for longer: the agent's own polls are early enough */

static bool live(const struct lane *lane) {
    return __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE;
}

/* A stream of the program's own tells its context, whichever is current. */
static bool concerned(const struct lane *lane, enum watch_scope scope, CUstream stream, CUcontext context) {
    if (!live(lane))
        return false;
    if (scope == WATCH_STREAM && !lane_is_default(stream))
        return PEEK(lane->stream) == stream && !PEEK(lane->stream_gone);
    return PEEK(lane->context) == context && (scope != WATCH_STREAM || PEEK(lane->stream) == stream);
}

void watch_sync_before(enum watch_scope scope, CUstream stream) {
    struct lane *lane = gate_self->lanes;

    if (!lane)
        return;
    int saved = errno;
    CUcontext context = context_current()->context;
    uint64_t now_ns = 0;
    gate_host_is_back();
    for (; lane; lane = lane->next)
        if (lane->launched != lane->cut && concerned(lane, scope, stream, context) &&
            (PEEK(gates[lane->ordinal].contended) || PEEK(gates[lane->ordinal].shared) || log_wants(LOG_DEBUG))) {
            now_ns = now_ns ? now_ns : gate_now();
            lane_cut(lane, now_ns);
        }
    for (lane = gate_self->lanes; lane && scope != WATCH_SOME && !gate_self->syncing; lane = lane->next)
        if (lane->pushed != lane->popped && concerned(lane, scope, stream, context)) {
            gate_self->syncing = &gates[lane->ordinal];
            __atomic_add_fetch(&gate_self->syncing->syncing, 1, __ATOMIC_SEQ_CST);
        }
    errno = saved;
}

static void stop_syncing(struct gate_thread *thread) {
    if (!thread->syncing)
        return;
    __atomic_sub_fetch(&thread->syncing->syncing, 1, __ATOMIC_SEQ_CST);
    thread->syncing = NULL;
}

/* Nothing of the process is in flight on this gate: tell the agent, if it would give the token back at once. */
static void tell_idle(struct gate *gate) {
    struct burst burst;

    if (!PEEK(gate->contended) || !__atomic_load_n(&gate->ticket, __ATOMIC_RELAXED))
        return;
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
            if (&gates[PEEK(lane->ordinal)] == gate && live(lane) && lane_inflight(lane) && !stands_still(lane) &&
                __atomic_load_n(&lane->clean_mark, __ATOMIC_ACQUIRE) != PEEK(lane->launched))
                return;
    __atomic_store_n(&gate->told_idle, 1, __ATOMIC_RELEASE);
    gate_burst_snapshot(gate, false, &burst);
    if (burst_patience(&burst) < KICK_BELOW_NS)
        agent_kick();
}

void watch_sync_after(enum watch_scope scope, CUstream stream, CUresult result) {
    struct gate_thread *thread = gate_self;

    stop_syncing(thread);
    if (thread->left_ns)
        thread->left_ns = gate_now();
    if (!thread->lanes || result != CUDA_SUCCESS)
        return;
    int saved = errno;
    CUcontext context = context_current()->context;
    struct gate *done = NULL;
    uint64_t now_ns = 0;
    bool all = true;
    for (struct lane *lane = thread->lanes; lane; lane = lane->next) {
        if ((lane->launched == lane->cut && lane->pushed == lane->popped) || !live(lane))
            continue;
        struct gate *gate = &gates[lane->ordinal];
        now_ns = now_ns ? now_ns : gate_now();
        if (scope != WATCH_SOME && concerned(lane, scope, stream, context))
            lane_finish(gate, thread, lane, now_ns);
        else
            lane_reap(gate, thread, lane, now_ns);
        if (lane->launched == lane->cut && lane->pushed == lane->popped) {
            done = gate;
            if (thread->lane == lane)
                thread->room_ns = -1; /* the next launch begins a chunk */
        } else {
            all = false;
        }
    }
    if (all)
        thread->left_ns = 0; /* nothing waits for a host that is away now: a server between two requests */
    if (done)
        tell_idle(done);
    errno = saved;
}

/* What is launched next begins behind what is no launch. */
static void comes_between(struct lane *lane, uint64_t now_ns) {
    lane_other_comes(lane, now_ns);
    if (gate_self->lane == lane)
        gate_self->room_ns = -1; /* the next launch begins a chunk */
}

/* A wait in a stream, and in which lanes what is launched next may begin late for it. */
struct wait {
    CUstream stream;
    CUcontext context;    /* the current one, of a default stream; else its own, once that is looked at */
    bool looked, orders;  /* ... does the legacy stream wait for it? */
};

/* Those of the stream; and by the rules of default streams all of the context for one of these, those of the legacy one for a
 * stream that blocks it. */
static bool keeps_up(struct wait *wait, const struct lane *lane) {
    unsigned int flags = 0;
    bool of_default = lane_is_default(wait->stream);

    if (of_default || PEEK(lane->stream) == wait->stream)
        return concerned(lane, of_default ? WATCH_CONTEXT : WATCH_STREAM, wait->stream, wait->context);
    if (!lane_is_default(PEEK(lane->stream)) || !live(lane))
        return false;
    if (!wait->looked) {
        wait->looked = true;
        wait->context = context_of_stream(wait->stream).context;
        wait->orders = real.cuStreamGetFlags(wait->stream, &flags) == CUDA_SUCCESS && !(flags & CU_STREAM_NON_BLOCKING);
    }
    return wait->orders && PEEK(lane->context) == wait->context;
}

/* ... whichever thread has them; but not the calling one's in that stream, where it says so itself. */
static void wait_comes(CUstream stream, CUcontext context, bool itself) {
    struct wait wait = {.stream = stream, .context = context};

    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
            if (!(itself && thread == gate_self && PEEK(lane->stream) == stream) && keeps_up(&wait, lane))
                lane_wait_comes(lane);
}

void watch_stream_may_pause(CUstream stream) {
    int saved = errno;

    behind_paused(context_of_stream(stream).ordinal);
    wait_comes(stream, context_current()->context, true);
    errno = saved;
}

void watch_launch_pauses(void) {
    if (!gate_self->after)
        lane_wait_comes(gate_self->lane);
}

bool watch_stream_pausing(CUstream stream) {
    struct lane *lane = gate_self->lanes;

    behind_paused(context_of_stream(stream).ordinal);
    if (lane && !held_await())
        return false;
    int saved = errno;
    CUcontext context = context_current()->context;
    bool all = lane_is_default(stream); /* others may come to stand behind it */
    uint64_t now_ns = 0;
    for (; lane; lane = lane->next)
        if (concerned(lane, all ? WATCH_CONTEXT : WATCH_STREAM, stream, context)) {
            now_ns = now_ns ? now_ns : gate_now();
            comes_between(lane, now_ns);
        }
    wait_comes(stream, context, false); /* what was launched before that has its event by now */
    errno = saved;
    return true;
}

void watch_stream_waiting(CUstream stream) {
    if (!gate_threads())
        return;
    int saved = errno;
    CUcontext context = context_current()->context;
    for (struct lane *lane = gate_self->lanes; lane; lane = lane->next) {
        const struct gate *gate = &gates[lane->ordinal];
        if (concerned(lane, WATCH_STREAM, stream, context) && (PEEK(gate->contended) || PEEK(gate->shared)))
            comes_between(lane, gate_now()); /* alone no program is to pay for it */
    }
    wait_comes(stream, context, false);
    errno = saved;
}

/* ---- captures ---- */

static bool stream_captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Once a stream captures nobody can put an event behind what is in it, nor, but its thread, behind what is in a default stream
 * where a blocking one does. Which streams join comes out later: it is done now for all that is open, and what threads launch
 * into default streams meanwhile comes by gate_begin_slow. Whoever is launching now may not be out yet. The agent is out. */
static void cover_what_is_open(void) {
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next) {
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
            if (live(lane) && !PEEK(lane->stream_gone) &&
                (lane_is_default(PEEK(lane->stream)) || !PEEK(thread->inside)) &&
                PEEK(lane->launched) != __atomic_load_n(&lane->cut, __ATOMIC_ACQUIRE))
                lane_foreign_record(lane);
        if (lane_is_default(PEEK(thread->stream)))
            POKE(thread->stream, NULL);
    }
}

bool watch_capture_beginning(void) {
    if (!held_await())
        return false;
    int saved = errno; /* other streams may join by waiting for the capture's events: all lanes get theirs now */
    for (struct lane *lane = gate_self->lanes; lane; lane = lane->next)
        lane_cut(lane, gate_now());
    if (gate_self->lanes) /* the next launch asks whether it is captured, on whichever stream: else it counts as work */
        gate_self->room_ns = -1;
    visit_keep_agent_out();
    cover_what_is_open();
    captures_beginning();
    errno = saved;
    return true;
}

void watch_capture_begun(CUstream stream, CUresult result) {
    captures_begun(context_current()->context, stream, result == CUDA_SUCCESS);
    visit_let_agent_in();
}

void watch_capture_ended(CUstream stream) {
    if (__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE) && !stream_captures(stream))
        captures_ended(context_current()->context, stream);
}

/* ---- ends ---- */

void watch_stream_ending(CUstream stream) {
    int saved = errno;

    if (lane_is_default(stream))
        return; /* the default streams are not destroyed */
    held_await();
    for (struct lane *lane = gate_self->lanes; lane; lane = lane->next)
        if (lane->stream == stream && live(lane))
            lane_cut(lane, gate_now());
    visit_keep_agent_out();
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next) {
            if (PEEK(lane->stream) != stream || !live(lane) || PEEK(lane->stream_gone))
                continue;
            if (PEEK(lane->launched) != __atomic_load_n(&lane->cut, __ATOMIC_ACQUIRE))
                lane_foreign_record(lane);
            __atomic_store_n(&lane->stream_gone, 1, __ATOMIC_SEQ_CST);
            if (PEEK(thread->stream) == stream)
                POKE(thread->stream, NULL); /* no lane has it: a new stream with this handle starts afresh */
        }
    visit_let_agent_in();
    if (__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE))
        captures_ended(NULL, stream);
    errno = saved;
}

bool watch_contexts_hold(void) {
    if (!held_await())
        return false;
    visit_keep_agent_out();
    return true;
}

void watch_contexts_release(CUcontext gone) {
    if (gone) {
        captures_lost(gone);
        ahead_lost(gone);
        for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next) {
            for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
                if (PEEK(lane->context) == gone && live(lane))
                    __atomic_store_n(&lane->state, LANE_LOST, __ATOMIC_SEQ_CST);
            if (PEEK(thread->context) == gone)
                POKE(thread->stream, NULL);
        }
    }
    visit_let_agent_in();
    agent_kick();
}

void watch_copy_coming(CUstream stream) {
    struct gate_thread *thread = gate_self;

    if (!thread->lanes)
        return;
    int saved = errno;
    CUcontext context = context_current()->context;
    for (struct lane *lane = thread->lanes; lane; lane = lane->next) {
        const struct gate *gate = &gates[lane->ordinal];
        if (!concerned(lane, WATCH_STREAM, stream, context) || !(PEEK(gate->contended) || PEEK(gate->shared)))
            continue;
        comes_between(lane, gate_now());
    }
    errno = saved;
}

void watch_copy(bool to_device, uint64_t bytes) {
    int ordinal = context_current()->ordinal;

    if (ordinal >= 0 && ordinal < WIRE_MAX_DEVICES)
        __atomic_add_fetch(to_device ? &gates[ordinal].h2d_bytes : &gates[ordinal].d2h_bytes, bytes, __ATOMIC_RELAXED);
}
