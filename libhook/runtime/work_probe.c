/* work_probe.c - walks the lanes of all threads (work_probe.h). */
#include "libhook/runtime/work_probe.h"

#include "libhook/runtime/behind.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/overlap.h"
#include "libhook/runtime/stands.h"

uint64_t work_probe_launches(const struct gate *gate) {
    uint64_t sum = 0;

    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
            if (&gates[PEEK(lane->ordinal)] == gate)
                sum += __atomic_load_n(&lane->launched, __ATOMIC_RELAXED);
    return sum;
}

/* What of this lane's work in flight no look has accounted yet, but for the beginning of what is open (lane_seen). Its owner
 * may take long to come for what is over. */
static uint64_t not_accounted(const struct lane *lane) {
    uint64_t clean = PEEK(lane->clean_mark), ns = PEEK(lane->open_ns);
    uint64_t pushed = __atomic_load_n(&lane->pushed, __ATOMIC_ACQUIRE);

    for (uint64_t number = PEEK(lane->popped); number != pushed; number++) {
        const struct chunk *chunk = &lane->ring[number % LANE_CHUNKS];
        uint64_t from = PEEK(chunk->from), chunk_ns = PEEK(chunk->estimated_ns), seen_ns = lane_seen(lane, from);
        if (from + PEEK(chunk->launches) > clean)
            ns += chunk_ns - (seen_ns < chunk_ns ? seen_ns : chunk_ns);
    }
    return ns;
}

/* All that this lane launched is over, and its owner has not accounted for it. What is open may go on, and be looked at
 * again. */
static void account(struct gate *gate, struct lane *lane, uint64_t estimated_ns, uint64_t open_ns, uint64_t from,
    const struct lane_probe *one) {
    bool shared = gate_was_shared(gate, one->start_ns);
    uint64_t work_ns = one->end_ns - one->start_ns;

    if (shared || PEEK(gate->active) <= 1) {
        uint64_t seen_ns = lane_seen(lane, from);
        work_ns = lane_work(estimated_ns, one->start_ns, shared ? one->end_ns : one->mark_ns, one->end_ns);
        work_ns -= seen_ns < work_ns ? seen_ns : work_ns;
    }
    POKE(lane->seen_from, from);
    POKE(lane->seen_ns, open_ns);
    overlap_account(gate, one->wanted_ns, one->start_ns, one->end_ns, work_ns, shared);
}

void work_probe(struct gate *gate, enum lane_look how, uint64_t now_ns, struct work_probe *found) {
    uint64_t sum_ns = 0, most_ns = 0;

    *found = (struct work_probe){.finished = true};
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next) {
            struct lane_probe one;
            if (&gates[PEEK(lane->ordinal)] != gate || lane_is_held(lane) || /* what is held has not begun */
                stands_on(lane))
                continue;
            uint64_t estimated_ns = not_accounted(lane), open_ns = PEEK(lane->open_ns);
            uint64_t from = __atomic_load_n(&lane->cut, __ATOMIC_ACQUIRE);
            lane_probe(lane, how, now_ns, &one);
            found->unconfirmed |= one.unconfirmed;
            found->finished &= one.finished;
            if (!one.finished) {
                sum_ns += one.inflight_ns;
                most_ns = one.inflight_ns > most_ns ? one.inflight_ns : most_ns;
                continue;
            }
            if (one.end_ns > found->end_ns)
                found->end_ns = one.end_ns;
            if (one.start_ns && one.end_ns > one.start_ns)
                account(gate, lane, estimated_ns, open_ns, from, &one);
        }
    found->inflight_ns = overlap_of(gate, sum_ns, most_ns);
}

/* Does a thread wait whose launch the device could begin with at once? Then undone work may be waiting for it. */
static bool needed(void) {
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next) {
        const struct lane *lane = __atomic_load_n(&thread->wait_lane, __ATOMIC_ACQUIRE);
        if (!lane)
            continue;
        uint64_t launched = PEEK(lane->launched);
        if (PEEK(lane->clean_mark) == launched ||
            (PEEK(lane->pushed) == PEEK(lane->popped) && launched == PEEK(lane->cut)))
            return true;
    }
    return false;
}

/* ... or one whose launch is to go behind that work? It cannot be what the work waits for, but what its thread does next
 * may be. */
static bool awaited(const struct gate *gate, uint64_t closed_ns, uint64_t now_ns) {
    if (!behind_after(gate, now_ns - closed_ns, now_ns))
        return false;
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        if (__atomic_load_n(&thread->wait_lane, __ATOMIC_ACQUIRE))
            return true;
    return false;
}

bool work_probe_is_needed(const struct gate *gate, uint64_t closed_ns, uint64_t now_ns) {
    return needed() || awaited(gate, closed_ns, now_ns);
}
