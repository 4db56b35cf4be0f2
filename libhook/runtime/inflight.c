/* inflight.c - sums over lanes (inflight.h). */
#include "libhook/runtime/inflight.h"

#include "libhook/core/peek.h"
#include "libhook/runtime/behind.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/overlap.h"

uint64_t inflight_gone_ns(const struct lane *lane, const struct chunk *head, uint64_t now_ns) {
    uint64_t began_ns = lane_began(lane->ordinal, head->first_ns, head->held);
    uint64_t start_ns = began_ns > lane->end_ns ? began_ns : lane->end_ns;

    return now_ns > start_ns ? now_ns - start_ns : 0;
}

uint64_t inflight_of(struct gate *gate, struct gate_thread *thread, uint64_t now_ns, uint64_t *until_next_ns) {
    uint64_t sum_ns = 0, most_ns = 0, progress_ns = 0;

    *until_next_ns = 0;
    for (struct lane *lane = thread->lanes; lane; lane = lane->next) {
        if (&gates[lane->ordinal] != gate || __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
            continue;
        lane_reap(gate, thread, lane, now_ns);
        sum_ns += lane_inflight(lane);
        most_ns = lane_inflight(lane) > most_ns ? lane_inflight(lane) : most_ns;
        if (lane->pushed == lane->popped)
            continue;
        const struct chunk *head = &lane->ring[lane->popped % LANE_CHUNKS];
        uint64_t gone_ns = inflight_gone_ns(lane, head, now_ns);
        uint64_t left_ns = head->estimated_ns;
        if (!head->unknown && gone_ns <= head->estimated_ns)
            left_ns -= gone_ns;
        else if (!head->unknown) /* overdue: it may well take as long again as it is late */
            left_ns = gone_ns - head->estimated_ns;
        if (head->estimated_ns > left_ns && head->estimated_ns - left_ns > progress_ns)
            progress_ns = head->estimated_ns - left_ns;
        if (!*until_next_ns || left_ns < *until_next_ns)
            *until_next_ns = left_ns;
    }
    sum_ns = overlap_of(gate, sum_ns, most_ns);
    return sum_ns > progress_ns ? sum_ns - progress_ns : 0;
}

uint64_t inflight_booked(const struct gate *gate, const struct gate_thread *thread, bool *full) {
    uint64_t sum_ns = 0, most_ns = 0;

    *full = false;
    for (const struct lane *lane = thread->lanes; lane; lane = lane->next) {
        if (&gates[lane->ordinal] != gate || __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) != LANE_LIVE)
            continue;
        sum_ns += lane_inflight(lane);
        most_ns = lane_inflight(lane) > most_ns ? lane_inflight(lane) : most_ns;
        *full |= lane->pushed - lane->popped > LANE_CHUNKS / 2;
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

/* What this lane has in flight, less what must be over of it by now. */
static uint64_t left_of(const struct gate *gate, const struct lane *lane, uint64_t now_ns) {
    uint64_t pushed = PEEK(lane->pushed), popped = PEEK(lane->popped), end_ns = PEEK(lane->end_ns);
    uint64_t left_ns = lane_inflight(lane);

    if (!left_ns || PEEK(lane->clean_mark) == PEEK(lane->launched))
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
