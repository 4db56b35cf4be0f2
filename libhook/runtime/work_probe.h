/*
 * work_probe.h - what all threads of this process have in flight on one GPU, and whether a drain of it may be waiting for
 * a launch. The agent's; it looks only.
 */
#ifndef GEMINI_RUNTIME_WORK_PROBE_H
#define GEMINI_RUNTIME_WORK_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/runtime/lane_probe.h"

struct gate;

struct work_probe {
    bool finished;    /* all that was launched is over */
    bool unconfirmed; /* ... by belief: something of it could not be observed */
    uint64_t inflight_ns; /* the card's time for what is not over */
    uint64_t end_ns;      /* when the last of what is over ended; 0: nothing was */
};

#pragma GCC visibility push(hidden)

/* Sums up what is not over, and accounts for what the owners did not see end. */
void work_probe(struct gate *gate, enum lane_look how, uint64_t now_ns, struct work_probe *found);
/* How much was launched, ever. */
uint64_t work_probe_launches(const struct gate *gate);
/* The gate is closed since then, and work is not over: may it wait for a launch that waits at a gate? */
bool work_probe_is_needed(const struct gate *gate, uint64_t closed_ns, uint64_t now_ns);

#pragma GCC visibility pop

#endif
