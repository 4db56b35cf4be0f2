/* inflight.c - sums over lanes (inflight.h). */
#include "libhook/runtime/inflight.h"

#include "libhook/core/estimate.h"
#include "libhook/core/peek.h"
#include "libhook/runtime/behind.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/lane_reap.h"
#include "libhook/runtime/overlap.h"
#include "libhook/runtime/stands.h"

uint64_t inflight_gone_ns(const struct lane *lane, const struct chunk *head, uint64_t now_ns) {
    uint64_t began_ns = lane_began(lane->ordinal, head->first_ns, head->held);
    uint64_t start_ns = began_ns > lane->end_ns ? began_ns : lane->end_ns;

    return now_ns > start_ns ? now_ns - start_ns : 0;
}

uint64_t inflight_of(struct gate *gate, struct gate_thread *thread, uint64_t now_ns, uint64_t *until_next_ns) {
    uint64_t sum_ns = 0, longest_ns = 0, progress_ns = 0;

    *until_next_ns = 0;
    for (struct lane *lane = thread->lanes; lane; lane = lane->next) {
        if (&gates[lane->ordinal] != gate || __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
            continue;
        lane_reap(gate, thread, lane, now_ns);
        if (stands_still(lane))
            continue;
        uint64_t lane_ns = lane_inflight(lane);
        sum_ns += lane_ns;
        if (lane->pushed != lane->popped) {
            const struct chunk *head = &lane->ring[lane->popped % LANE_CHUNKS];
            uint64_t gone_ns = inflight_gone_ns(lane, head, now_ns);
            uint64_t left_ns = head->estimated_ns;
            if (!head->unknown && gone_ns <= head->estimated_ns)
                left_ns -= gone_ns;
            else if (!head->unknown) /* overdue: it may well take as long again as it is late */
                left_ns = gone_ns - head->estimated_ns;
            uint64_t done_ns = head->estimated_ns > left_ns ? head->estimated_ns - left_ns : 0;
            progress_ns = done_ns > progress_ns ? done_ns : progress_ns;
            lane_ns -= done_ns < lane_ns ? done_ns : lane_ns;
            if (!*until_next_ns || left_ns < *until_next_ns)
                *until_next_ns = left_ns;
        }
        longest_ns = lane_ns > longest_ns ? lane_ns : longest_ns;
    }
    sum_ns = overlap_of(gate, sum_ns, 0);
    sum_ns -= progress_ns < sum_ns ? progress_ns : sum_ns;
    return sum_ns > longest_ns ? sum_ns : longest_ns;
}

uint64_t inflight_booked(const struct gate *gate, const struct gate_thread *thread, bool *full) {
    uint64_t sum_ns = 0, most_ns = 0;

    *full = false;
    for (const struct lane *lane = thread->lanes; lane; lane = lane->next) {
        if (&gates[lane->ordinal] != gate || __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
            continue;
        *full |= lane->pushed - lane->popped > LANE_CHUNKS / 2;
        if (stands_still(lane))
            continue;
        sum_ns += lane_inflight(lane);
        most_ns = lane_inflight(lane) > most_ns ? lane_inflight(lane) : most_ns;
    }
    return overlap_of(gate, sum_ns, most_ns);
}

uint64_t inflight_behind(const struct gate *gate, const struct gate_thread *thread, uint64_t now_ns) {
    uint64_t stood_ns = UINT64_MAX, admitted_ns = PEEK(gate->behind_ns);

    for (const struct lane *lane = thread->lanes; lane; lane = lane->next) {
        if (&gates[lane->ordinal] != gate || lane->pushed == lane->popped ||
            __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
            continue;
        uint64_t gone_ns = inflight_gone_ns(lane, &lane->ring[lane->popped % LANE_CHUNKS], now_ns);
        stood_ns = gone_ns < stood_ns ? gone_ns : stood_ns;
    }
    uint64_t behind_ns = stood_ns == UINT64_MAX ? 0 : behind_after(gate, stood_ns, now_ns);
    return behind_ns > admitted_ns ? behind_ns : admitted_ns;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* What a lane of the calling thread has in flight, were each launch as long as it may be; `paused_ns`: and those that may stand
 * still so long. */
static uint64_t worst_of(const struct lane *lane, uint64_t paused_ns) {
    uint64_t sum_ns = larger(lane->open_most_ns, lane->open_ns);

    if (!lane->open_mixed && estimate_pauses(lane->open_key))
        sum_ns = larger(sum_ns, paused_ns * (lane->launched - lane->cut));
    for (uint64_t i = lane->popped; i != lane->pushed; i++) {
        const struct chunk *chunk = &lane->ring[i % LANE_CHUNKS];
        uint64_t worst_ns = larger(chunk->most_ns, chunk->estimated_ns);
        sum_ns += estimate_pauses(chunk->key) ? larger(worst_ns, paused_ns * chunk->launches) : worst_ns;
    }
    return sum_ns;
}

uint64_t inflight_worst(const struct gate *gate, const struct gate_thread *thread, uint64_t paused_ns) {
    uint64_t sum_ns = 0;

    for (const struct lane *lane = thread->lanes; lane; lane = lane->next)
        if (&gates[lane->ordinal] == gate && __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE)
            sum_ns += worst_of(lane, paused_ns);
    return sum_ns;
}

bool inflight_may_stand(const struct gate *gate, const struct gate_thread *self, const struct lane *mine,
    const struct belief *belief, uint64_t now_ns) {
    if (!stands_still(mine))
        return true;
    uint64_t sum_ns = 0, cap_ns = PEEK(gate->cap_ns);
    uint64_t most_ns = larger(larger(belief->most_ns, belief->ns), belief->paused_ns);
    uint64_t began_ns =
        mine->pushed != mine->popped ? mine->ring[mine->popped % LANE_CHUNKS].first_ns : mine->open_first_ns;
    uint64_t start_ns = began_ns > mine->end_ns ? began_ns : mine->end_ns;
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
            if (&gates[PEEK(lane->ordinal)] == gate && __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE &&
                stands_still(lane))
                sum_ns += thread == self ? worst_of(lane, belief->paused_ns) : lane_inflight(lane);
    uint64_t room_ns = behind_after(gate, now_ns > start_ns ? now_ns - start_ns : 0, now_ns);
    room_ns = room_ns > cap_ns ? room_ns : cap_ns;
    return sum_ns + (most_ns < room_ns / 2 ? most_ns : room_ns / 2) <= room_ns; /* a longer one goes at its half */
}

/* What this lane has in flight, less what must be over of it by now. */
static uint64_t left_of(const struct gate *gate, const struct lane *lane, uint64_t now_ns) {
    uint64_t pushed = PEEK(lane->pushed), popped = PEEK(lane->popped), end_ns = PEEK(lane->end_ns);
    uint64_t left_ns = lane_inflight(lane);

    if (!left_ns || PEEK(lane->clean_mark) == PEEK(lane->launched) || stands_still(lane))
        return 0;
    const struct chunk *head = &lane->ring[popped % LANE_CHUNKS];
    uint64_t start_ns = pushed != popped ? lane_began(gate->ordinal, PEEK(head->first_ns), PEEK(head->held))
                                         : lane_began(gate->ordinal, PEEK(lane->open_first_ns), PEEK(lane->open_held));
    start_ns = start_ns > end_ns ? start_ns : end_ns;
    uint64_t gone_ns = now_ns > start_ns ? now_ns - start_ns : 0;
    return left_ns > gone_ns ? left_ns - gone_ns : 0;
}

uint64_t inflight_of_others(const struct gate *gate, const struct gate_thread *self, uint64_t now_ns) {
    uint64_t sum_ns = 0, most_ns = 0;

    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next) {
        if (thread == self)
            continue;
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next) {
            if (&gates[PEEK(lane->ordinal)] != gate || __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
                continue;
            uint64_t ns = left_of(gate, lane, now_ns);
            sum_ns += ns;
            most_ns = ns > most_ns ? ns : most_ns;
        }
    }
    return overlap_of(gate, sum_ns, most_ns);
}
