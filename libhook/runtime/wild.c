/* wild.c - the worst that is in flight, and whether it may be more (wild.h). */
#include "libhook/runtime/wild.h"

#include "libhook/core/peek.h"
#include "libhook/runtime/belief.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_thread.h"
#include "libhook/runtime/inflight.h"
#include "libhook/runtime/lane.h"

#define WILD_CONTENDED 2 /* wild launches in flight on a lane: the device has one when the other is over */
#define WILD_FREE 8      /* ... where no turn has to end; beside others no more than end within the cap in any case */
#define LOOK_NS 100000   /* how long to look for the end of one without sleeping */
#define WILD_TOGETHER_NS 1000000 /* those seen often go together for so long, were each as long as any of late */

/* How many wild launches are in flight on this lane, and what all that is there may take from now on. */
static unsigned wild_in(const struct lane *lane, uint64_t now_ns, uint64_t *worst_ns) {
    unsigned wild = 0;

    *worst_ns = lane->open_ns;
    for (uint64_t i = lane->popped; i != lane->pushed; i++) {
        const struct chunk *chunk = &lane->ring[i % LANE_CHUNKS];
        uint64_t most_ns = chunk->most_ns ? chunk->most_ns : chunk->estimated_ns;
        if (i == lane->popped) {
            uint64_t gone_ns = inflight_gone_ns(lane, chunk, now_ns);
            most_ns -= gone_ns < most_ns ? gone_ns : most_ns;
        }
        *worst_ns += most_ns;
        wild += chunk->most_ns != 0;
    }
    return wild;
}

bool wild_may_go(const struct gate *gate, const struct lane *lane, const struct belief *belief, uint64_t now_ns) {
    uint64_t worst_ns, close_by_ns = PEEK(gate->close_by_ns);
    unsigned wild = wild_in(lane, now_ns, &worst_ns);

    uint64_t needs_ns = belief->paused_ns > belief->ns ? belief->paused_ns : belief->ns;

    if (!wild || lane_inflight(lane) + needs_ns <= inflight_behind(gate, gate_self, now_ns))
        return true;
    if (!PEEK(gate->contended)) {
        bool soon = !PEEK(gate->shared) || belief->young || worst_ns + belief->most_ns <= PEEK(gate->cap_ns);
        return wild < (soon ? WILD_FREE : WILD_CONTENDED);
    }
    if (belief->unknown || now_ns >= close_by_ns || worst_ns > close_by_ns - now_ns)
        return false;
    return wild < WILD_CONTENDED || (!belief->young && worst_ns + belief->most_ns <= WILD_TOGETHER_NS);
}

uint64_t wild_sleep_ns(const struct lane *lane, bool in_turn, uint64_t flying_ns, uint64_t now_ns) {
    const struct chunk *head = &lane->ring[lane->popped % LANE_CHUNKS];
    uint64_t gone_ns = inflight_gone_ns(lane, head, now_ns);

    if (!in_turn && flying_ns >= 2 * LOOK_NS)
        return flying_ns / 2;
    return gone_ns < LOOK_NS || gone_ns < 2 * head->estimated_ns ? 0 : gone_ns / 4;
}
