/* stands.c - by which of a lane's chunks is the first (stands.h). */
#include "libhook/runtime/stands.h"

#include <stdint.h>

#include "libhook/core/peek.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/lane.h"
#include "libhook/runtime/visit.h"

/* Which the first chunk is, cut or open; UINT64_MAX: there is none. By where it begins and how many were before it: the chunk
 * of a copy has no launch, and begins where the next one does; one that was open to its end is in no ring. */
static uint64_t first_of(const struct lane *lane) {
    uint64_t popped = __atomic_load_n(&lane->popped, __ATOMIC_ACQUIRE), cut = PEEK(lane->cut);

    if (__atomic_load_n(&lane->pushed, __ATOMIC_ACQUIRE) != popped)
        return popped + PEEK(lane->ring[popped % LANE_CHUNKS].from);
    return PEEK(lane->launched) != cut ? popped + cut : UINT64_MAX;
}

bool stands_still(const struct lane *lane) {
    uint64_t stood = PEEK(lane->stood);

    return stood && first_of(lane) + 1 == stood;
}

void stands_give_up(const struct gate *gate) {
    for (struct gate_thread *thread = gate_threads(); thread; thread = thread->next)
        for (struct lane *lane = __atomic_load_n(&thread->lanes, __ATOMIC_ACQUIRE); lane; lane = lane->next)
            if (&gates[PEEK(lane->ordinal)] == gate && __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) == LANE_LIVE)
                POKE(lane->stood, first_of(lane) + 1);
}

/* The event behind the first chunk; NULL: there is none yet. */
static CUevent first_event(const struct lane *lane) {
    uint64_t popped = __atomic_load_n(&lane->popped, __ATOMIC_ACQUIRE);

    if (__atomic_load_n(&lane->pushed, __ATOMIC_ACQUIRE) != popped)
        return PEEK(lane->ring[popped % LANE_CHUNKS].event);
    return lane->foreign_recorded ? lane->foreign_event : NULL;
}

bool stands_on(struct lane *lane) {
    struct visit visit;
    bool over = false;

    if (!stands_still(lane))
        return false;
    if (!visit_agent_enters())
        return true;
    CUevent event = first_event(lane);
    if (event && __atomic_load_n(&lane->state, __ATOMIC_SEQ_CST) == LANE_LIVE) {
        if (visit_begin(&visit, PEEK(lane->context)))
            over = real.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
        visit_end(&visit);
    }
    visit_agent_leaves();
    if (over)
        POKE(lane->stood, 0);
    return !over;
}
