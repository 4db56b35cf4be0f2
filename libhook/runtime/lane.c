/* lane.c - cut, reap and probe (lane.h). Every driver call here stands within a visit (visit.h). */
#define _GNU_SOURCE
#include "libhook/runtime/lane.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "libhook/driver/real.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/cancel.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/overlap.h"
#include "libhook/runtime/visit.h"

/* Of foreign_event and what is known of it, among the threads that keep the agent out: several may begin captures, end
 * streams and take lanes at once. */
static pthread_mutex_t foreign_lock = PTHREAD_MUTEX_INITIALIZER;

/* Does this stream capture? Then what we record would become part of somebody's graph. */
static bool captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE))
        return false;
    return real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* cuEventRecord, of an event that is made when it is first needed. */
static CUresult record(const struct visit *visit, CUevent *event, CUstream stream) {
    CUresult result = visit->lost ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS && !*event)
        result = real.cuEventCreate(event, CU_EVENT_DEFAULT);
    return result == CUDA_SUCCESS ? real.cuEventRecord(*event, stream) : result;
}

static void rekey(struct lane *lane, CUcontext context, CUstream stream, int ordinal) {
    bool same_context = lane->state == LANE_LIVE && lane->context == context;

    visit_keep_agent_out(); /* it may have begun to look while this was another stream's */
    pthread_mutex_lock(&foreign_lock);
    __atomic_store_n(&lane->state, LANE_FREE, __ATOMIC_SEQ_CST);
    if (!same_context) { /* the events went with their context */
        for (int i = 0; i < LANE_CHUNKS; i++)
            POKE(lane->ring[i].event, NULL);
        POKE(lane->base_event, NULL);
        lane->foreign_event = NULL;
    }
    POKE(lane->context, context);
    POKE(lane->stream, stream);
    POKE(lane->ordinal, ordinal);
    POKE(lane->stream_gone, 0);
    POKE(lane->based, false);
    POKE(lane->unconfirmed, false);
    lane->foreign_recorded = false;
    POKE(lane->pushed, 0);
    POKE(lane->popped, 0);
    POKE(lane->cut, lane->launched);
    POKE(lane->clean_mark, lane->launched);
    POKE(lane->ring_ns, 0);
    POKE(lane->open_ns, 0);
    lane->open_mixed = 0;
    POKE(lane->blind_ns, 0);
    POKE(lane->end_ns, 0);
    POKE(lane->held, 0);
    POKE(lane->stood, 0);
    lane->behind_other = false;
    POKE(lane->late, false);
    __atomic_store_n(&lane->state, LANE_LIVE, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&foreign_lock);
    visit_let_agent_in();
}

/* The lane's stream or context is gone and nothing of it runs any more: it may serve another. */
static bool reusable(const struct lane *lane, CUcontext context) {
    uint32_t state = __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE);

    if (state == LANE_LOST || state == LANE_FREE)
        return true;
    bool clean =
        (lane->pushed == lane->popped && lane->launched == lane->cut) || PEEK(lane->clean_mark) == lane->launched;
    return PEEK(lane->stream_gone) && clean && lane->context == context;
}

/* By the first launch the driver has loaded and begun all that it ends at exit. */
static void watch_exit_once(void) {
    static bool watched; /* any thread */

    if (!__atomic_exchange_n(&watched, true, __ATOMIC_RELAXED))
        visit_end_at_exit();
}

static bool serves(const struct lane *lane, CUcontext context, CUstream stream) {
    return lane->stream == stream && lane->context == context && !PEEK(lane->stream_gone) &&
           __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE;
}

bool lane_is_known(const struct gate_thread *thread, CUcontext context, CUstream stream) {
    const struct lane *lane = thread->lanes;

    while (lane && !serves(lane, context, stream))
        lane = lane->next;
    return lane;
}

struct lane *lane_of(struct gate_thread *thread, CUcontext context, CUstream stream, int ordinal) {
    struct lane *spare = NULL;

    for (struct lane *lane = thread->lanes; lane; lane = lane->next) {
        if (serves(lane, context, stream) && lane->ordinal == ordinal)
            return lane;
        if (!spare && reusable(lane, context))
            spare = lane;
    }
    if (!spare) {
        watch_exit_once();
        spare = mmap(NULL, sizeof *spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (spare == MAP_FAILED)
            return NULL;
        spare->next = thread->lanes;
        rekey(spare, context, stream, ordinal);
        __atomic_store_n(&thread->lanes, spare, __ATOMIC_RELEASE);
        return spare;
    }
    rekey(spare, context, stream, ordinal);
    return spare;
}

static void clear_open(struct lane *lane) {
    __atomic_store_n(&lane->cut, lane->launched, __ATOMIC_RELEASE);
    POKE(lane->open_ns, 0);
    lane->open_mixed = 0;
    lane->open_alone = false;
    lane->open_most_ns = 0;
}

/* What is open ends with an event; that may be nothing. */
static void end_chunk(struct lane *lane, uint64_t now_ns) {
    if (PEEK(lane->stream_gone) || lane->pushed - lane->popped == LANE_CHUNKS ||
        __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
        return;
    struct chunk *chunk = &lane->ring[lane->pushed % LANE_CHUNKS];
    struct visit visit;
    if (!visit_begin(&visit, lane->context) || captures(lane->stream)) {
        visit_end(&visit);
        return;
    }
    CUevent event = chunk->event;
    CUresult result = record(&visit, &event, lane->stream);
    POKE(chunk->event, event);
    visit_end(&visit);
    if (result != CUDA_SUCCESS) { /* nothing can be seen of it: believe the estimate */
        POKE(lane->blind_ns, now_ns + lane_inflight(lane));
        POKE(lane->unconfirmed, true);
        clear_open(lane);
        return;
    }
    chunk->key = lane->open_mixed || lane->launched == lane->cut ? 0 : lane->open_key;
    chunk->kinds[0] = lane->open_key;
    chunk->kinds[1] = lane->open_key ^ lane->open_mixed; /* of more than two kinds it is nobody's key */
    chunk->close_by_ns = PEEK(gates[lane->ordinal].close_by_ns);
    chunk->estimated_ns = lane->open_ns;
    POKE(chunk->wanted_ns, lane->open_wanted_ns);
    POKE(chunk->first_ns, lane->open_first_ns);
    POKE(chunk->cut_ns, now_ns);
    POKE(chunk->from, lane->cut);
    chunk->launches = (uint32_t)(lane->launched - lane->cut);
    POKE(chunk->held, lane->open_held);
    chunk->unknown = lane->open_unknown;
    chunk->most_ns = lane->open_most_ns;
    chunk->late = PEEK(lane->late);
    POKE(lane->late, false);
    chunk->alone = lane->open_alone && chunk->launches == 1 && !chunk->late;
    POKE(lane->ring_ns, lane->ring_ns + lane->open_ns);
    __atomic_store_n(&lane->pushed, lane->pushed + 1, __ATOMIC_RELEASE);
    clear_open(lane);
}

void lane_cut(struct lane *lane, uint64_t now_ns) {
    if (lane->launched != lane->cut)
        end_chunk(lane, now_ns);
}

void lane_other_comes(struct lane *lane, uint64_t now_ns) {
    lane_cut(lane, now_ns);
    lane->behind_other = true;
}

void lane_wait_comes(struct lane *lane) {
    if (PEEK(lane->launched) != PEEK(lane->cut) || PEEK(lane->pushed) != PEEK(lane->popped))
        POKE(lane->late, true);
}

void lane_begins(struct lane *lane, bool late, bool wanted, uint64_t now_ns) {
    if (late)
        POKE(lane->late, true);
    if (wanted && PEEK(lane->late))
        end_chunk(lane, now_ns);
}

void lane_other_ends(struct lane *lane, uint64_t now_ns) {
    if (!lane->behind_other || lane->launched != lane->cut)
        return;
    lane->behind_other = false;
    if (lane->pushed != lane->popped)
        end_chunk(lane, now_ns);
}

void lane_base(struct lane *lane, uint32_t held, uint64_t now_ns) {
    struct visit visit;
    CUevent event = lane->base_event;

    bool based = visit_begin(&visit, lane->context) && !captures(lane->stream) &&
                 record(&visit, &event, lane->stream) == CUDA_SUCCESS;
    visit_end(&visit);
    POKE(lane->base_event, event);
    POKE(lane->based, based);
    POKE(lane->base_ns, now_ns);
    lane->base_late_ns = 0;
    POKE(lane->base_held, held);
}

/* When did the event happen, by our clock? It is over; `now_ns` may be from before that: the thread may have stood still
 * in between, and who took the time then for the end would believe that the work was short. `span_ns`: from the base to
 * it, by the device's clock alone; 0: unknown. */
static uint64_t event_time(
    bool based, CUevent base_event, uint64_t base_ns, CUevent event, uint64_t now_ns, uint64_t *span_ns) {
    float milliseconds = 0;
    uint64_t end_ns = UINT64_MAX;

    *span_ns = 0;
    if (based && real.cuEventElapsedTime(&milliseconds, base_event, event) == CUDA_SUCCESS && milliseconds >= 0) {
        *span_ns = (uint64_t)((double)milliseconds * 1e6);
        end_ns = base_ns + *span_ns;
    }
    if (end_ns <= now_ns)
        return end_ns;
    now_ns = gate_now();
    return end_ns < now_ns ? end_ns : now_ns;
}

static uint64_t open_began(const struct lane *lane) {
    uint64_t began_ns = lane_began(lane->ordinal, lane->open_first_ns, lane->open_held);

    return began_ns > lane->end_ns ? began_ns : lane->end_ns;
}

/* Learn from the open chunk, which was seen to be over at that time. */
static void learn_open(const struct gate *gate, struct gate_thread *thread, const struct lane *lane, uint64_t end_ns) {
    struct chunk chunk = {.key = lane->open_mixed ? 0 : lane->open_key,
        .estimated_ns = lane->open_ns,
        .most_ns = lane->open_most_ns,
        .launches = (uint32_t)(lane->launched - lane->cut)};
    uint64_t start_ns = open_began(lane);

    if (PEEK(gate->shared))
        return; /* the base may have been later than it seems (pop) */
    belief_learn(gate, thread, &chunk, start_ns, end_ns, false, 0);
}

/* The same for how much runs at once. There may be pauses in it, and what is believed may be far too long. */
static void learn_overlap_of_open(struct gate *gate, const struct lane *lane, uint64_t end_ns) {
    uint64_t start_ns = open_began(lane), most_ns = end_ns > start_ns ? end_ns - start_ns : 0;

    overlap_learn(gate, lane->open_ns, end_ns - (lane->open_ns < most_ns ? lane->open_ns : most_ns), end_ns);
}

/* A chunk of ours took from start to end beside other tenants' work: its length tells nothing, the belief counts. What
 * is longer was spent waiting for the card, or for the next launch; that after the last launch is the former. */
static void account_shared(
    struct gate *gate, const struct chunk *chunk, uint64_t start_ns, uint64_t end_ns, uint64_t span_ns) {
    uint64_t each_ns = chunk->estimated_ns / chunk->launches, length_ns = end_ns - start_ns;
    length_ns = length_ns < span_ns ? span_ns : length_ns;
    uint64_t busy_ns = length_ns < chunk->estimated_ns ? length_ns : chunk->estimated_ns;
    uint64_t out_ns = lane_began(gate->ordinal, chunk->cut_ns, chunk->held);
    uint64_t waited_ns = end_ns > out_ns + each_ns ? end_ns - out_ns - each_ns : 0;

    if (waited_ns > length_ns - busy_ns)
        waited_ns = length_ns - busy_ns;
    __atomic_add_fetch(&gate->card_wait_ns, waited_ns, __ATOMIC_RELAXED);
    gate_account(gate, chunk->wanted_ns, end_ns - busy_ns, end_ns);
}

/* The same where nobody else works. Launches with pauses between them may share a chunk, and its length is no work then:
 * that is at least what is believed, and what the card still had to do after the last of them. (With several threads it
 * is likelier that they took turns.) Returns for how long the lane had it under way. */
static uint64_t account_alone(struct gate *gate, const struct lane *lane, const struct chunk *chunk, uint64_t start_ns,
    uint64_t end_ns, bool queued) {
    uint64_t work_ns = end_ns - start_ns, seen_ns = lane_seen(lane, chunk->from);

    if (queued || chunk->alone || PEEK(gate->active) > 1) {
        seen_ns = 0;
    } else {
        uint64_t out_ns = lane_began(gate->ordinal, chunk->cut_ns, chunk->held);
        work_ns = lane_work(chunk->estimated_ns, start_ns, out_ns, end_ns);
        seen_ns = seen_ns < work_ns ? seen_ns : work_ns;
    }
    gate_account(gate, chunk->wanted_ns, end_ns - (work_ns - seen_ns), end_ns);
    return work_ns;
}

/* What of its length the device surely worked: all of it, where it never had to wait for its host; else what it took from when
 * the last launch was out. Of what was held the device may have begun late. */
static uint64_t sure_of(const struct lane *lane, const struct chunk *chunk, uint64_t start_ns, uint64_t end_ns,
    uint64_t span_ns, bool queued) {
    if (chunk->held || chunk->late)
        return 0;
    if (queued)
        return end_ns - start_ns;
    uint64_t least_ns = chunk->cut_ns + lane->base_late_ns;
    return span_ns && end_ns > least_ns ? end_ns - least_ns : 0;
}

/* What the launches of a chunk that is over say. */
static void take_in(struct gate *gate, struct gate_thread *thread, const struct lane *lane, const struct chunk *chunk,
    uint64_t start_ns, uint64_t end_ns, uint64_t span_ns, bool queued, bool known) {
    /* Beside others the base is done when our turn on the card comes, later than the host believes, and all that is
     * measured from it seems to end as much earlier. So there the device's clock alone counts: no less than the work. */
    bool shared = PEEK(gate->shared);
    uint64_t under_way_ns = 0;

    if (known && !shared)
        belief_learn(
            gate, thread, chunk, start_ns, end_ns, queued, sure_of(lane, chunk, start_ns, end_ns, span_ns, queued));
    else if (known && span_ns)
        belief_learn(gate, thread, chunk, end_ns > span_ns ? end_ns - span_ns : 0, end_ns, queued, 0);
    if (shared)
        account_shared(gate, chunk, start_ns, end_ns, span_ns);
    else
        under_way_ns = account_alone(gate, lane, chunk, start_ns, end_ns, queued);
    overlap_learn(gate, chunk->estimated_ns, end_ns - under_way_ns, end_ns);
}

static void pop(
    struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t end_ns, uint64_t span_ns, bool known) {
    struct chunk *chunk = &lane->ring[lane->popped % LANE_CHUNKS];
    uint64_t start_ns = lane_began(lane->ordinal, chunk->first_ns, chunk->held);
    /* All of it was launched, and free to go, before the one before it was over. */
    bool queued = lane->end_ns >= chunk->cut_ns && lane->end_ns >= start_ns && !chunk->late;

    start_ns = start_ns > lane->end_ns ? start_ns : lane->end_ns;
    if (end_ns < start_ns)
        end_ns = start_ns;
    if (chunk->launches) /* else it was a copy */
        take_in(gate, thread, lane, chunk, start_ns, end_ns, span_ns, queued, known);
    POKE(lane->end_ns, end_ns);
    /* This event's time is known now: the next chunk is measured from it. The old base serves as a fresh event. */
    CUevent old = lane->base_event;
    POKE(lane->base_event, chunk->event);
    POKE(lane->base_ns, end_ns);
    POKE(lane->base_held, 0);
    POKE(lane->based, known);
    POKE(chunk->event, old);
    POKE(lane->ring_ns, lane->ring_ns - chunk->estimated_ns);
    __atomic_store_n(&lane->popped, lane->popped + 1, __ATOMIC_RELEASE);
}

void lane_reap(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns) {
    struct visit visit;

    if (lane->blind_ns && now_ns >= lane->blind_ns)
        POKE(lane->blind_ns, 0);
    if (lane->launched != lane->cut && __atomic_load_n(&lane->clean_mark, __ATOMIC_ACQUIRE) == lane->launched) {
        learn_open(gate, thread, lane, PEEK(lane->clean_ns));
        learn_overlap_of_open(gate, lane, PEEK(lane->clean_ns));
        clear_open(lane); /* the agent saw the end of it, and accounted */
    }
    if (lane->pushed == lane->popped)
        return;
    bool may = visit_begin(&visit, lane->context);
    while (may && lane->popped != lane->pushed && __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE) {
        CUevent event = lane->ring[lane->popped % LANE_CHUNKS].event;
        CUresult result = real.cuEventQuery(event);
        if (result == CUDA_ERROR_NOT_READY)
            break;
        if (result != CUDA_SUCCESS) { /* a sticky error: nothing of this context runs any more */
            POKE(lane->unconfirmed, true);
            pop(gate, thread, lane, now_ns, 0, false);
            continue;
        }
        uint64_t span_ns,
            end_ns = event_time(lane->based, lane->base_event, lane_base_ns(lane), event, now_ns, &span_ns);
        pop(gate, thread, lane, end_ns, span_ns, true);
    }
    visit_end(&visit);
}

void lane_finish(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns) {
    lane_reap(gate, thread, lane, now_ns);
    if (lane->pushed != lane->popped || lane->launched == lane->cut)
        return;
    uint64_t start_ns = open_began(lane) < now_ns ? open_began(lane) : now_ns;
    uint64_t work_ns = now_ns - start_ns, seen_ns = lane_seen(lane, lane->cut);
    if (PEEK(gate->shared) && work_ns > lane->open_ns)
        work_ns = lane->open_ns;
    work_ns -= seen_ns < work_ns ? seen_ns : work_ns;
    gate_account(gate, lane->open_wanted_ns, now_ns - work_ns, now_ns);
    learn_open(gate, thread, lane, now_ns);
    learn_overlap_of_open(gate, lane, now_ns);
    POKE(lane->end_ns, now_ns);
    POKE(lane->based, false);
    clear_open(lane);
}

/* ---- the agent ---- */

static void foreign_record(const struct visit *visit, struct lane *lane) {
    uint64_t launched = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE);
    CUstream stream = PEEK(lane->stream);

    /* The legacy stream waits for every blocking stream of its context, also for the other threads' own default
     * streams, which nobody but they can name. Not while one of them captures, which this would end: the driver says
     * so when it is asked about the legacy stream. */
    if (lane_is_default(stream))
        stream = CU_STREAM_LEGACY;
    if (captures(stream))
        return;
    if (record(visit, &lane->foreign_event, stream) == CUDA_SUCCESS) {
        lane->foreign_mark = launched;
        lane->foreign_ns = gate_now();
        lane->foreign_recorded = true;
    }
}

void lane_foreign_record(struct lane *lane) {
    struct visit visit;

    int cancel = cancel_hold();
    pthread_mutex_lock(&foreign_lock);
    if (visit_begin(&visit, PEEK(lane->context)))
        foreign_record(&visit, lane);
    visit_end(&visit);
    pthread_mutex_unlock(&foreign_lock);
    cancel_release(cancel);
}

void lane_reset_after_fork(void) {
    foreign_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* The newest chunk's event, and when the work before it was over; false where the owner changed it meanwhile. */
static bool query_newest(
    struct lane *lane, uint64_t pushed, uint64_t popped, uint64_t now_ns, struct lane_probe *probe) {
    CUevent base_event = PEEK(lane->base_event), event = PEEK(lane->ring[(pushed - 1) % LANE_CHUNKS].event);
    uint64_t base_ns = lane_base_ns(lane);
    uint64_t span_ns;
    bool based = PEEK(lane->based);

    CUresult result = real.cuEventQuery(event);
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    probe->unconfirmed |= result != CUDA_SUCCESS;
    probe->end_ns = event_time(based, base_event, base_ns, event, now_ns, &span_ns);
    if (__atomic_load_n(&lane->pushed, __ATOMIC_ACQUIRE) != pushed)
        return false;
    if (__atomic_load_n(&lane->popped, __ATOMIC_ACQUIRE) != popped) /* reaped: over, and the owner has accounted it */
        probe->end_ns = 0;
    return true;
}

static uint64_t mark_of(const struct lane *lane, const struct chunk *chunk) {
    return lane_began(PEEK(lane->ordinal), PEEK(chunk->cut_ns), PEEK(chunk->held));
}

static void look(const struct visit *visit, struct lane *lane, uint64_t now_ns, struct lane_probe *probe) {
    uint64_t launched = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE);
    uint64_t cut = __atomic_load_n(&lane->cut, __ATOMIC_ACQUIRE);
    uint64_t pushed = __atomic_load_n(&lane->pushed, __ATOMIC_ACQUIRE);
    uint64_t popped = __atomic_load_n(&lane->popped, __ATOMIC_ACQUIRE);

    if (launched == cut) {
        if (pushed != popped && !query_newest(lane, pushed, popped, now_ns, probe))
            return;
        if (pushed != popped)
            probe->mark_ns = mark_of(lane, &lane->ring[(pushed - 1) % LANE_CHUNKS]);
    } else {
        if (!PEEK(lane->stream_gone) && !(lane->foreign_recorded && lane->foreign_mark == launched))
            foreign_record(visit, lane);
        if (!lane->foreign_recorded || lane->foreign_mark != launched)
            return;
        uint64_t span_ns;
        CUresult result = real.cuEventQuery(lane->foreign_event);
        if (result == CUDA_ERROR_NOT_READY)
            return;
        probe->unconfirmed |= result != CUDA_SUCCESS;
        probe->mark_ns = lane->foreign_ns;
        probe->end_ns = event_time(PEEK(lane->based) && pushed == popped, PEEK(lane->base_event), lane_base_ns(lane),
            lane->foreign_event, now_ns, &span_ns);
    }
    probe->finished = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE) == launched;
    if (!probe->finished)
        return;
    POKE(lane->clean_ns, launched == cut ? 0 : probe->end_ns);
    __atomic_store_n(&lane->clean_mark, launched, __ATOMIC_RELEASE);
}

void lane_probe(struct lane *lane, enum lane_look how, uint64_t now_ns, struct lane_probe *probe) {
    uint32_t state = __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE);
    uint64_t launched = __atomic_load_n(&lane->launched, __ATOMIC_ACQUIRE);

    memset(probe, 0, sizeof *probe);
    uint64_t cut = PEEK(lane->cut), pushed = PEEK(lane->pushed), popped = PEEK(lane->popped);
    uint64_t clean_mark = PEEK(lane->clean_mark), blind_ns = PEEK(lane->blind_ns), end_ns = PEEK(lane->end_ns);

    if (state != LANE_LIVE || clean_mark == launched || (launched == cut && pushed == popped && !blind_ns)) {
        probe->finished = true;
        probe->end_ns = end_ns;
        bool lost = state == LANE_LOST && clean_mark != launched;
        probe->unconfirmed = lost && (launched != cut || pushed != popped);
        if (lost)
            POKE(lane->clean_mark, launched);
        return;
    }
    const struct chunk *head = &lane->ring[popped % LANE_CHUNKS];
    bool queued = pushed != popped;
    probe->wanted_ns = queued ? PEEK(head->wanted_ns) : PEEK(lane->open_wanted_ns);
    probe->start_ns = lane_began(PEEK(lane->ordinal), queued ? PEEK(head->first_ns) : PEEK(lane->open_first_ns),
        queued ? PEEK(head->held) : PEEK(lane->open_held));
    if (probe->start_ns < end_ns)
        probe->start_ns = end_ns;
    uint64_t gone_ns = now_ns > probe->start_ns ? now_ns - probe->start_ns : 0;
    probe->inflight_ns = lane_inflight(lane);
    probe->inflight_ns = probe->inflight_ns > gone_ns ? probe->inflight_ns - gone_ns : 0;
    probe->unconfirmed = __atomic_exchange_n(&lane->unconfirmed, false, __ATOMIC_RELAXED);
    if (blind_ns > now_ns) {
        probe->inflight_ns = blind_ns - now_ns;
        return;
    }
    if (how == LANE_WHEN_DUE && probe->inflight_ns)
        return;
    if (!visit_agent_enters())
        return;
    struct visit visit;
    if (__atomic_load_n(&lane->state, __ATOMIC_SEQ_CST) == LANE_LIVE) {
        if (visit_begin(&visit, PEEK(lane->context)))
            look(&visit, lane, now_ns, probe);
        visit_end(&visit);
    }
    visit_agent_leaves();
}
