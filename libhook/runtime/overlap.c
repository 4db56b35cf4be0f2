/* overlap.c - learning how much runs at once, and counting by it (overlap.h). */
#include "libhook/runtime/overlap.h"

#include <sched.h>

#include "libhook/core/peek.h"
#include "libhook/runtime/gate.h"

#define SPAN_NS 2000000ull /* of the card's work for each look: half a dozen chunks on a busy card */
#define COMPANY_LEAST (OVERLAP_ONE / 16) /* fewer had company: that says nothing of what is to be had in it */
#define STEP 2             /* so many times as much at once as was seen may be */
#define FADES 8            /* by such a part a look, where none is seen */
#define MOST (63 * OVERLAP_ONE)
#define CAP_TIMES 2        /* the cap is so much more where streams run beside each other */
#define CAP_LEAST_NS 500000 /* a lower one is for who waits for the card: little is to run before it, each time */

static uint64_t beyond_one(uint64_t parts_ns, uint64_t worked_ns) {
    uint64_t parts = parts_ns * OVERLAP_ONE / worked_ns;

    return parts > OVERLAP_ONE ? parts - OVERLAP_ONE : 0;
}

/* How many launches may run at once, beyond the first: `ran` did of `had` that had work under way. */
static uint64_t learned(uint64_t ran, uint64_t had, uint64_t more) {
    bool full = 4 * ran < 3 * had;

    if (had >= COMPANY_LEAST && full) /* Less at once, and what is in flight takes longer than it should: at once. */
        return ran < more ? ran : (ran + more) / 2;
    uint64_t step = had >= COMPANY_LEAST ? STEP * had : 0, faded = more - more / FADES;
    step = step < MOST ? step : MOST;
    return step > faded ? step : faded;
}

static void lock(struct gate *gate) {
    while (__atomic_exchange_n(&gate->overlap.lock, 1, __ATOMIC_ACQUIRE))
        while (__atomic_load_n(&gate->overlap.lock, __ATOMIC_RELAXED))
            sched_yield();
}

void overlap_learn(struct gate *gate, uint64_t believed_ns, uint64_t start_ns, uint64_t end_ns) {
    __typeof__(gate->overlap) *overlap = &gate->overlap;
    bool shared = gate_was_shared(gate, start_ns); /* what runs beside ours is others' */

    lock(gate);
    overlap->believed_ns += believed_ns;
    overlap->under_way_ns += end_ns - start_ns;
    if (end_ns > overlap->end_ns) {
        overlap->worked_ns += end_ns - (start_ns > overlap->end_ns ? start_ns : overlap->end_ns);
        overlap->end_ns = end_ns;
    }
    uint64_t worked_ns = overlap->worked_ns;
    if (shared || worked_ns >= SPAN_NS) {
        if (!shared) {
            uint64_t ran = beyond_one(overlap->believed_ns, worked_ns),
                     had = beyond_one(overlap->under_way_ns, worked_ns);
            POKE(overlap->more, (uint32_t)learned(ran < MOST ? ran : MOST, had, PEEK(overlap->more)));
        }
        overlap->believed_ns = overlap->under_way_ns = overlap->worked_ns = 0;
    }
    __atomic_store_n(&overlap->lock, 0, __ATOMIC_RELEASE);
}

uint64_t overlap_of(const struct gate *gate, uint64_t sum_ns, uint64_t most_ns) {
    uint64_t beside_ns = sum_ns * OVERLAP_ONE / (OVERLAP_ONE + (uint64_t)PEEK(gate->overlap.more));

    return beside_ns > most_ns ? beside_ns : most_ns;
}

bool overlap_is_seen(const struct gate *gate) {
    return PEEK(gate->overlap.more) >= OVERLAP_ONE;
}

void overlap_account(
    struct gate *gate, uint64_t wanted_ns, uint64_t start_ns, uint64_t end_ns, uint64_t work_ns, bool anywhere) {
    if (anywhere)
        gate_account_within(gate, wanted_ns, start_ns, end_ns, work_ns, !overlap_is_seen(gate));
    else
        gate_account(gate, wanted_ns, end_ns - work_ns, end_ns);
}

uint64_t overlap_cap_ns(const struct gate *gate) {
    uint64_t cap_ns = PEEK(gate->cap_ns);

    return cap_ns >= CAP_LEAST_NS && overlap_is_seen(gate) ? CAP_TIMES * cap_ns : cap_ns;
}
