/*
 * gate_slow.c - a launch waits, is measured, marked and counted (gate_slow.h).
 *
 * One try (try) compares what the thread has in flight with its part of the cap, and with what is left of the quota; by
 * our own books first, and by asking the driver where these say no. The launch goes, waits at the gate, or sleeps until
 * room is foreseen, and is tried again.
 */
#define _GNU_SOURCE
#include "libhook/runtime/gate_slow.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/ahead.h"
#include "libhook/runtime/away.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/cancel.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/context.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_enrol.h"
#include "libhook/runtime/gate_pass.h"
#include "libhook/runtime/held.h"
#include "libhook/runtime/inflight.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/lane_reap.h"
#include "libhook/runtime/launch.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/overlap.h"
#include "libhook/runtime/segments.h"
#include "libhook/runtime/stands.h"
#include "libhook/runtime/wild.h"

#define CHUNKS_PER_CAP 4
#define SHORTEST_CHUNK_NS 25000
#define SHORTEST_SLEEP_NS 20000
#define LONGEST_SLEEP_NS 2000000
#define LONGEST_REST_NS 10000000
#define MEASURE_EVERY 32        /* of the launches that start on an idle lane */
#define ENROL_AGAIN_NS 10000000ull

static void sleep_ns(uint64_t ns) {
    struct timespec duration = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    syscall(SYS_nanosleep, &duration, NULL);
}

static uint64_t within(uint64_t ns, uint64_t longest_ns) {
    return ns < SHORTEST_SLEEP_NS ? SHORTEST_SLEEP_NS : ns > longest_ns ? longest_ns : ns;
}

/* Prepare the lane for one more launch of this kind; false where its ring is full. `stands`: it will not become emptier. */
static bool make_room_in(struct gate *gate, struct lane *lane, struct launch *launch, uint64_t chunk_ns, bool idle,
    bool stands, uint64_t now_ns) {
    static uint32_t idle_starts; /* any thread; exactness does not matter */

    if (lane->launched != lane->cut && (launch->belief.measure || lane->open_alone || lane->open_ns >= chunk_ns))
        lane_cut(lane, now_ns);
    if (lane->launched != lane->cut)
        return lane->pushed - lane->popped < LANE_CHUNKS || lane->open_ns < chunk_ns || stands;
    lane_other_ends(lane, now_ns);
    if (lane->pushed - lane->popped == LANE_CHUNKS && !stands)
        return false;
    if (idle) {
        POKE(idle_starts, PEEK(idle_starts) + 1);
        launch->belief.measure |= PEEK(idle_starts) % MEASURE_EVERY == 0;
    }
    /* An event on a stream that has nothing to do is over at once; the legacy stream also waits for others. */
    bool empty = lane->pushed == lane->popped;
    bool based_now = (idle && !stands_still(lane)) || (empty && !lane_is_default(lane->stream));
    if (!based_now) {
        lane_begins(lane, empty, launch->belief.measure, now_ns);
    } else if (launch->belief.measure || PEEK(gate->contended) || log_wants(LOG_DEBUG)) {
        if (empty)
            POKE(lane->late, false);
        lane_base(lane, 0, now_ns);
        uint64_t based_ns = gate_now(); /* recording takes as long as some kernels, and is no part of what follows */
        lane->base_late_ns = based_ns - now_ns;
        now_ns = based_ns;
        POKE(lane->base_ns, now_ns);
    }
    launch_begin_chunk(lane, launch, now_ns);
    return true;
}

/* REST: wait for room where enough is in flight to do so in one sleep, of which each leaves the program's caches cold.
 * WAIT_BEHIND: for what was given up, without wanting the token, of which it would make no use. */
enum verdict { GO, WAIT_AT_GATE, WAIT_FOR_ROOM, REST, LOOK_AGAIN, WAIT_BEHIND };

/* Is the quota used up by what is in flight, but for less than half of this launch? */
static bool ends(uint64_t close_by_ns, uint64_t now_ns, uint64_t flying_ns, uint64_t estimated_ns) {
    return close_by_ns != UINT64_MAX && now_ns + flying_ns + estimated_ns / 2 > close_by_ns;
}

/* What would be in flight with this launch, where nothing of it ends. */
static uint64_t with(
    const struct gate *gate, const struct gate_thread *thread, const struct launch *launch, uint64_t flying_ns) {
    uint64_t paused_ns = launch->belief.paused_ns;

    return paused_ns ? inflight_worst(gate, thread, paused_ns) + paused_ns : flying_ns + launch->belief.ns;
}

/* One try to let the launch go. With GO the thread is inside and the launch accounted. */
static enum verdict try(struct gate *gate, struct gate_thread *thread, struct lane *lane, struct launch *launch,
    uint64_t now_ns, uint64_t *sleep) {
    uint64_t ticket, next_ns;

    if (!gate_is_open(gate, &ticket))
        return WAIT_AT_GATE;
    if (thread->ticket != ticket || thread->gate != gate) {
        __atomic_store_n(&thread->gate, gate, __ATOMIC_RELEASE);
        thread->page_word = PEEK(gate->page_word);
        thread->epoch = PEEK(gate->epoch);
        thread->ticket = ticket;
    }
    if (thread->seen[gate->ordinal] != ticket) {
        thread->seen[gate->ordinal] = ticket;
        __atomic_add_fetch(&gate->active, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(&gate->armed_word, __ATOMIC_SEQ_CST)) { /* opened by the page: the agent does not know */
            uint64_t never = 0;
            __atomic_compare_exchange_n(&gate->opened_ns, &never, now_ns, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
            thread->tell_agent = true; /* it hears of it when the launch is out */
        }
    }
    uint64_t active = __atomic_load_n(&gate->active, __ATOMIC_RELAXED);
    uint64_t before = PEEK(gate->active_before);
    active = active > before ? active : before;
    uint64_t cap_ns = overlap_cap_ns(gate) + segments_over_cap_ns(gate, now_ns),
             share_ns = cap_ns / (active ? active : 1);
    if (active > 1) { /* threads that take turns have all of it in turn */
        uint64_t others_ns = inflight_of_others(gate, thread, now_ns);
        share_ns = cap_ns > others_ns && cap_ns - others_ns > share_ns ? cap_ns - others_ns : share_ns;
    }
    uint64_t estimated_ns = launch->belief.ns;
    bool full;

    /* A launch as long as the cap goes when little else is left, or the device would idle between two of them. */
    uint64_t allowed_ns = estimated_ns > share_ns / 2 ? share_ns / 2 : share_ns - estimated_ns;
    /* Where no turn has to end, who met the cap comes back when half of it is done: room for one launch would be used up by
     * that, and each would cost an event, a look at it and a sleep. */
    bool in_turn = PEEK(gate->contended) || PEEK(gate->shared);
    if (launch->met_cap && !in_turn && allowed_ns > share_ns / 2)
        allowed_ns = share_ns / 2;
    uint64_t close_by_ns = PEEK(gate->close_by_ns), flying_ns = inflight_booked(gate, thread, &full);
    /* Of those that stood still, or worked, for long a valve lets no second one in: as each ends the next would come, and no
     * drain end. */
    uint64_t paused_ns = launch->belief.paused_ns;
    if (paused_ns && PEEK(gate->contended) && close_by_ns == UINT64_MAX)
        allowed_ns = 0;
    /* A query costs as much as many launches. Where several streams are busy it is one for each: only where our books say that
     * there is no room, or that the quota is used up. */
    bool by_books =
        flying_ns <= allowed_ns && !launch->belief.measure && !full &&
        (!PEEK(gate->contended) || (overlap_is_seen(gate) && !ends(close_by_ns, now_ns, flying_ns, estimated_ns)));
    next_ns = 0;
    if (!by_books)
        flying_ns = inflight_of(gate, thread, now_ns, &next_ns);
    if (belief_is_old(gate, thread)) /* what is over has just told something else of it */
        return LOOK_AGAIN;
    bool stands = (flying_ns > allowed_ns || full) &&
                  with(gate, thread, launch, flying_ns) <= inflight_behind(gate, thread, now_ns);
    if (flying_ns > allowed_ns && !stands) {
        launch_cut_all(thread, now_ns);
        launch->met_cap = thread->met_cap = true;
        if (!in_turn) {
            *sleep = flying_ns - (allowed_ns < share_ns / 2 ? allowed_ns : share_ns / 2);
            return REST;
        }
        uint64_t need_ns = flying_ns - allowed_ns;
        *sleep = next_ns && next_ns < need_ns ? next_ns : need_ns;
        return WAIT_FOR_ROOM;
    }
    if (ends(close_by_ns, now_ns, flying_ns, estimated_ns) && PEEK(gate->launched_epoch) == PEEK(gate->epoch)) {
        gate_shut(gate, ticket);
        return WAIT_AT_GATE;
    }
    if (launch->belief.wild && !wild_may_go(gate, lane, &launch->belief, now_ns)) {
        launch_cut_all(thread, now_ns);
        *sleep = wild_sleep_ns(lane, in_turn, flying_ns, now_ns);
        return *sleep ? WAIT_FOR_ROOM : LOOK_AGAIN;
    }
    uint64_t chunk_ns = share_ns / CHUNKS_PER_CAP > SHORTEST_CHUNK_NS ? share_ns / CHUNKS_PER_CAP : SHORTEST_CHUNK_NS;
    if (!make_room_in(gate, lane, launch, chunk_ns, !flying_ns, stands, now_ns)) {
        *sleep = next_ns;
        return WAIT_FOR_ROOM;
    }
    int64_t room_ns = (int64_t)chunk_ns - (int64_t)lane->open_ns;
    if (room_ns > (int64_t)(share_ns - flying_ns))
        room_ns = (int64_t)(share_ns - flying_ns);
    if (close_by_ns != UINT64_MAX && room_ns > (int64_t)(close_by_ns - now_ns - flying_ns))
        room_ns = (int64_t)(close_by_ns - now_ns - flying_ns);
    room_ns -= (int64_t)estimated_ns;
    thread->lane = lane;
    POKE(thread->context, lane->context);
    POKE(thread->stream, launch->stream);
    /* While something captures, nobody but this thread may be able to put an event behind it (lane.h). */
    bool own_event = lane_is_default(launch->stream) && __atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE);
    thread->room_ns = launch->belief.measure || own_event || room_ns < 0 || gate_mode == GATE_FENCED ? -1 : room_ns;
    thread->after = launch->belief.measure || own_event || room_ns <= 0;

    launch_enter(thread);
    if (__atomic_load_n(&gate->ticket, __ATOMIC_RELAXED) != ticket ||
        __atomic_load_n(thread->page_word, __ATOMIC_RELAXED) != thread->epoch) {
        POKE(thread->inside, 0);
        thread->after = false;
        return WAIT_AT_GATE;
    }
    if (PEEK(gate->launched_epoch) != thread->epoch)
        POKE(gate->launched_epoch, thread->epoch);
    launch_count(gate, lane, launch);
    return GO;
}

static bool may_stand(
    struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch, uint64_t now_ns) {
    if (!stands_still(lane))
        return true;
    lane_reap(gate, thread, lane, now_ns);
    if (inflight_may_stand(gate, thread, lane, &launch->belief, now_ns))
        return true;
    launch_cut_all(thread, now_ns);
    return false;
}

void gate_host_is_back(void) {
    struct gate_thread *thread = gate_self;
    struct gate *gate = thread->gate;

    if (!thread->left_ns)
        thread->met_cap = false;
    if (!thread->left_ns || !gate || !(PEEK(gate->contended) || PEEK(gate->shared)))
        return;
    uint64_t now_ns = gate_now(), away_ns = now_ns - thread->left_ns;
    if (away_ns <= PEEK(gate->cap_ns))
        return;
    if (thread->met_cap)
        away_seen(gate, now_ns);
    thread->met_cap = false;
}

static bool stream_captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The lane of this launch. Where there is no memory for one, it is waited for, once in a process's life. */
static struct lane *enrolled(struct gate_thread **thread, CUcontext context, CUstream stream, int ordinal) {
    static bool complained, given_up; /* any thread */
    uint64_t until_ns = gate_now() + AGENT_LACKING_NS;

    for (;;) {
        *thread = gate_enrol();
        struct lane *lane = *thread ? lane_of(*thread, context, stream, ordinal) : NULL;
        if (lane || PEEK(given_up))
            return lane;
        if (!__atomic_exchange_n(&complained, true, __ATOMIC_RELAXED))
            log_line(LOG_ERROR,
                "no memory for the books of a launch: it waits for %d s, then launches fail with "
                "CUDA_ERROR_OUT_OF_MEMORY; raise RLIMIT_AS (ulimit -v)",
                (int)(AGENT_LACKING_NS / 1000000000));
        if (gate_now() >= until_ns)
            POKE(given_up, true);
        else
            sleep_ns(ENROL_AGAIN_NS);
    }
}

static enum gate_answer begin(CUstream stream, uint64_t key, uint64_t family, uint64_t guess_ns) {
    if (__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE) && stream_captures(stream))
        return GATE_NOT_OURS; /* no work for the device; or an error that the driver will name itself */
    int error = agent_attach();
    if (error || gate_mode == GATE_INERT)
        return error == -ENOMEM ? GATE_REFUSED : GATE_NOT_OURS;
    struct context_now where = *context_current();
    if (!lane_is_known(gate_self, where.context, stream)) /* the work is its stream's, whichever context is current */
        where = context_of_stream(stream);
    if (!where.context || where.ordinal < 0 || where.ordinal >= WIRE_MAX_DEVICES)
        return GATE_NOT_OURS;
    struct gate *gate = &gates[where.ordinal];
    struct gate_thread *thread;
    struct lane *lane = enrolled(&thread, where.context, stream, where.ordinal);
    if (!lane)
        return GATE_REFUSED;
    POKE(thread->inside, 0);
    if (PEEK(gate->shared) || PEEK(gate->contended))
        ahead_prepare(where.context);
    struct launch launch = {.stream = stream, .key = key, .wanted_ns = gate_now(), .is_kernel = family != 0};
    launch.belief = belief_of(gate, thread, key, family, guess_ns, launch.wanted_ns);
    uint64_t now_ns = launch.wanted_ns, sleep = 0;
    gate_host_is_back();
    bool pends = false;
    enum gate_answer answer = GATE_NOT_OURS;
    while (!__atomic_load_n(&gate->free, __ATOMIC_ACQUIRE)) {
        bool held = segments_held(gate);
        if (belief_is_old(gate, thread))
            launch.belief = belief_of(gate, thread, key, family, guess_ns, now_ns);
        enum verdict verdict = !may_stand(gate, thread, lane, &launch, now_ns) ? WAIT_BEHIND
                               : held ? WAIT_AT_GATE
                                      : try(gate, thread, lane, &launch, now_ns, &sleep);
        if (verdict == WAIT_BEHIND && pends)
            __atomic_sub_fetch(&gate->pending, 1, __ATOMIC_SEQ_CST);
        pends &= verdict != WAIT_BEHIND;
        if (verdict == GO) {
            thread->after |= thread->tell_agent;
            answer = GATE_PASSED;
            break;
        }
        if (verdict == WAIT_BEHIND) {
            sleep_ns(LONGEST_SLEEP_NS);
        } else if (held ? held_join(gate, thread, lane, &launch, now_ns)
                        : verdict != LOOK_AGAIN && held_go(gate, thread, lane, &launch, now_ns)) {
            answer = GATE_PASSED;
            break;
        } else if (!held && verdict == WAIT_AT_GATE) {
            held_wait(gate, thread, lane, &launch);
        } else if (!held) {
            if (!pends) /* from here to its launch it counts as one that wants to go on */
                __atomic_add_fetch(&gate->pending, 1, __ATOMIC_SEQ_CST);
            pends = true;
            if (verdict == LOOK_AGAIN)
                sched_yield();
            else
                sleep_ns(within(sleep, verdict == REST ? LONGEST_REST_NS : LONGEST_SLEEP_NS));
        }
        now_ns = gate_now();
        if (agent_lost()) /* a fork in another thread cannot reach us; a failed start of the agent can */
            break;
        if (agent_closed() && !__atomic_load_n(&gate->free, __ATOMIC_ACQUIRE)) {
            answer = GATE_REFUSED;
            break;
        }
    }
    if (pends)
        __atomic_sub_fetch(&gate->pending, 1, __ATOMIC_SEQ_CST);
    thread->left_ns = gate_now();
    return answer;
}

/* Did the program only push a context, or set one, and come back? While something captures each launch is looked at. */
static bool is_where_it_was(const struct gate_thread *thread, CUstream stream) {
    const struct lane *lane = thread->lane;

    return !PEEK(thread->stream) && lane && lane->stream == stream && !PEEK(lane->stream_gone) &&
           __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE &&
           !__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE) && context_current()->context == lane->context;
}

enum gate_answer gate_begin_slow(CUstream stream, uint64_t key, uint64_t family, uint64_t guess_ns) {
    if (gate_mode == GATE_INERT)
        return GATE_NOT_OURS;
    int saved = errno;
    if (is_where_it_was(gate_self, stream)) {
        POKE(gate_self->stream, stream);
        if (gate_pass(stream, key)) {
            errno = saved;
            return GATE_PASSED;
        }
    }
    int cancel = cancel_hold();
    enum gate_answer answer = begin(stream, key, family, guess_ns);
    cancel_release(cancel);
    if (answer == GATE_PASSED && family && !estimate_find(gate_shared_estimates, GATE_SHARED_ESTIMATES, family)) {
        const struct estimate *known = estimate_find(gate_shared_estimates, GATE_SHARED_ESTIMATES, key);
        if (known && PEEK(known->samples))
            estimate_put(gate_shared_estimates, GATE_SHARED_ESTIMATES, family, PEEK(known->ns), 1);
    }
    errno = saved;
    return answer;
}

void gate_end_slow(struct gate_thread *thread) {
    int saved = errno, cancel = cancel_hold();
    thread->after = false;
    lane_cut(thread->lane, gate_now());
    if (thread->tell_agent) {
        thread->tell_agent = false;
        agent_kick();
    }
    cancel_release(cancel);
    errno = saved;
}
