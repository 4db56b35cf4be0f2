/* overlap.c - learning how much runs at once, and counting by it (overlap.h). */
#include "libhook/runtime/overlap.h"

#include "libhook/core/peek.h"
#include "libhook/runtime/gate.h"

#define SPAN_NS 2000000ull /* of the card's work for each look: half a dozen chunks on a busy card */

void overlap_learn(struct gate *gate, uint64_t believed_ns) {
    __typeof__(gate->overlap) *overlap = &gate->overlap;
    struct burst burst;

    believed_ns += __atomic_fetch_add(&overlap->believed_ns, believed_ns, __ATOMIC_RELAXED);
    if (believed_ns < SPAN_NS)
        return;
    gate_burst_snapshot(gate, false, &burst);
    uint64_t worked_ns = burst.total_busy_ns, before_ns = PEEK(overlap->worked_ns);
    if (PEEK(gate->shared)) { /* what runs beside ours is others' */
        POKE(overlap->worked_ns, worked_ns);
        __atomic_store_n(&overlap->believed_ns, 0, __ATOMIC_RELAXED);
        return;
    }
    if (worked_ns - before_ns < SPAN_NS || !__atomic_compare_exchange_n(&overlap->worked_ns, &before_ns, worked_ns,
                                               false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    __atomic_fetch_sub(&overlap->believed_ns, believed_ns, __ATOMIC_RELAXED);
    uint64_t parts = believed_ns * OVERLAP_ONE / (worked_ns - before_ns), more = PEEK(overlap->more);
    uint64_t seen = parts > OVERLAP_ONE ? parts - OVERLAP_ONE : 0;
    seen = seen < UINT32_MAX ? seen : UINT32_MAX;
    /* Less at once, and what is in flight takes longer than it should: at once. More: half the way. */
    POKE(overlap->more, (uint32_t)(seen < more ? seen : (seen + more) / 2));
}

uint64_t overlap_of(const struct gate *gate, uint64_t sum_ns, uint64_t most_ns) {
    uint64_t beside_ns = sum_ns * OVERLAP_ONE / (OVERLAP_ONE + (uint64_t)PEEK(gate->overlap.more));

    return beside_ns > most_ns ? beside_ns : most_ns;
}
