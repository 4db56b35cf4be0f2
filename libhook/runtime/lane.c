/* lane.c - which lane is whose, and where its chunks end (lane.h). Driver calls stand within a visit (visit.h). */
#define _GNU_SOURCE
#include "libhook/runtime/lane.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane_event.h"
#include "libhook/runtime/visit.h"

/* Of foreign_event and what is known of it, among the threads that keep the agent out: several may begin captures, end
 * streams and take lanes at once. */
static pthread_mutex_t foreign_lock = PTHREAD_MUTEX_INITIALIZER;

void lane_lock(void) {
    pthread_mutex_lock(&foreign_lock);
}

void lane_unlock(void) {
    pthread_mutex_unlock(&foreign_lock);
}

void lane_reset_after_fork(void) {
    foreign_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void rekey(struct lane *lane, CUcontext context, CUstream stream, int ordinal) {
    bool same_context = lane->state == LANE_LIVE && lane->context == context;

    visit_keep_agent_out(); /* it may have begun to look while this was another stream's */
    lane_lock();
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
    lane->waited = (struct waited){0};
    POKE(lane->held, 0);
    POKE(lane->stood, 0);
    lane->behind_other = false;
    POKE(lane->late, false);
    __atomic_store_n(&lane->state, LANE_LIVE, __ATOMIC_RELEASE);
    lane_unlock();
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

void lane_clear_open(struct lane *lane) {
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
    if (!visit_begin(&visit, lane->context) || lane_event_captures(lane->stream)) {
        visit_end(&visit);
        return;
    }
    CUevent event = chunk->event;
    CUresult result = lane_event_record(&visit, &event, lane->stream);
    POKE(chunk->event, event);
    visit_end(&visit);
    if (result != CUDA_SUCCESS) { /* nothing can be seen of it: believe the estimate */
        POKE(lane->blind_ns, now_ns + lane_inflight(lane));
        POKE(lane->unconfirmed, true);
        lane_clear_open(lane);
        return;
    }
    chunk->key = lane->open_mixed || lane->launched == lane->cut ? 0 : lane->open_key;
    chunk->kinds[0] = lane->open_key;
    chunk->kinds[1] = lane->open_key ^ lane->open_mixed; /* of more than two kinds it is nobody's key */
    chunk->close_by_ns = PEEK(gates[lane->ordinal].close_by_ns);
    POKE(chunk->estimated_ns, lane->open_ns);
    POKE(chunk->wanted_ns, lane->open_wanted_ns);
    POKE(chunk->first_ns, lane->open_first_ns);
    POKE(chunk->cut_ns, now_ns);
    chunk->waited_ns = lane->open_waited_ns;
    POKE(chunk->from, lane->cut);
    POKE(chunk->launches, (uint32_t)(lane->launched - lane->cut));
    POKE(chunk->held, lane->open_held);
    chunk->unknown = lane->open_unknown;
    chunk->most_ns = lane->open_most_ns;
    chunk->late = PEEK(lane->late);
    POKE(lane->late, false);
    chunk->alone = lane->open_alone && chunk->launches == 1 && !chunk->late;
    POKE(lane->ring_ns, lane->ring_ns + lane->open_ns);
    __atomic_store_n(&lane->pushed, lane->pushed + 1, __ATOMIC_RELEASE);
    lane_clear_open(lane);
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

    bool based = visit_begin(&visit, lane->context) && !lane_event_captures(lane->stream) &&
                 lane_event_record(&visit, &event, lane->stream) == CUDA_SUCCESS;
    visit_end(&visit);
    POKE(lane->base_event, event);
    POKE(lane->based, based);
    POKE(lane->base_ns, now_ns);
    lane->base_late_ns = 0;
    POKE(lane->base_held, held);
}
