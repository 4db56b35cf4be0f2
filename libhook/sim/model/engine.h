/*
 * engine.h - the simulated hardware: moves a sim_state forward in time. Pure: no clock, no syscall, no lock; it reads
 * the rings and the tails it is given and writes the state only.
 *
 * The model. The compute engine of a device runs one kernel at a time. A context (one process on one device) keeps it
 * as long as it has something to run; while another context has work too, it loses it at the end of its time slice, in
 * the middle of a kernel if need be (spec.switch_ns of idle time), and the others follow in turn. A switch away from a
 * context with nothing to run costs spec.drained_ns. Within a context the queue with the best priority whose head has
 * been ready longest is next, and a kernel is not preempted by its own process. The two copy engines serve whoever was
 * ready first, to the end. Waits, events and marks take no time.
 */
#ifndef GEMINI_SIM_ENGINE_H
#define GEMINI_SIM_ENGINE_H

#include "libhook/sim/model/state.h"

struct engine {
    const struct sim_machine *machine;
    struct sim_state *state;
    uint64_t tail[SIM_ALL_QUEUES]; /* as far as each ring was read */
    bool foresee;                  /* leaves no effects: a look ahead on a copy */
    bool stale;                    /* the rings do not fit the state: an old copy, throw it away */
};

/* Look at the rings. Must come before the other calls. */
void engine_begin(struct engine *engine, const struct sim_machine *machine, struct sim_state *state);

/* Move to `target_ns`. It may stop earlier, when there is no room for more effects: state->now_ns says where. */
void engine_advance(struct engine *engine, uint64_t target_ns);

/* On a copy that may be spoilt: when will queue `queue` (an index into state->queue) have retired entry `index`?
 * SIM_NEVER if that hangs on something the engines do not know (host functions, peers). A lower bound if it is far. */
uint64_t engine_foresee(struct engine *engine, uint32_t queue, uint64_t index);

/* Changes of the state at its present time. */
int engine_client(struct sim_state *state, uint64_t owner, uint32_t device, bool make); /* index, -1: none, no room */
int engine_queue(const struct sim_state *state, uint64_t owner, uint32_t queue);        /* index or -1 */
void engine_remove_queue(struct sim_state *state, uint32_t index);
void engine_remove_owner(
    struct sim_state *state, uint64_t owner); /* it died: queues and memory go, what it used stays */
bool engine_flush(struct sim_state *state, uint32_t device);       /* the open stretch into the log; false: no room */
uint64_t engine_memory_used(const struct sim_state *state, uint32_t device);
bool engine_busy(const struct sim_state *state, uint32_t queue, uint64_t tail); /* has it anything left? */

#endif
