/*
 * engine.h - the simulated hardware: moves a sim_state forward in time. Pure: no clock, no syscall, no lock; it reads
 * the rings and the tails it is given, words of memory through a function it is given, and writes the state only.
 *
 * The model. The compute engine of a device runs one kernel at a time; with spec.overlap those of one context's queues
 * beside each other, while their parts of the card fit and none waits that came before. A context (one process on one
 * device) keeps it as long as it has something to run. While another context has work too, it loses it at the end of
 * its time slice, in the middle of a kernel if need be (spec.switch_ns of idle time), and the others follow in turn. A
 * switch away from a context with nothing to run costs spec.drained_ns. Within a context the queue with the best
 * priority whose head has been ready longest is next, and a kernel is not preempted by its own process. The two copy
 * engines serve whoever was ready first, to the end. Waits, events and marks take no time. A wait for a value that was
 * met when it was pushed takes none either; else its queue has nothing to run until a look finds it met, and goes on
 * spec.release_ns after that look.
 */
#ifndef GEMINI_SIM_ENGINE_H
#define GEMINI_SIM_ENGINE_H

#include "libhook/sim/model/engine_state.h"

/* Look at the rings. Must come before the other calls. */
void engine_begin(struct engine *engine, const struct sim_machine *machine, struct sim_state *state);

/* Move to `target_ns`. It may stop earlier, when there is no room for more effects: state->now_ns says where. */
void engine_advance(struct engine *engine, uint64_t target_ns);

/* On a copy that may be spoilt: when will queue `queue` (an index into state->queue) have retired entry `index`?
 * SIM_NEVER if that hangs on something the engines do not know (host functions, peers). A lower bound if it is far. */
uint64_t engine_foresee(struct engine *engine, uint32_t queue, uint64_t index);

/* Waits at the heads of queues that hang on a word. */
struct engine_unmet {
    uint32_t count;            /* all of them */
    struct sim_entry first[8]; /* ... as far as there is room */
};

/* On a copy that may be spoilt: when will the engine next come to a value of this owner: a wait at the head that was not
 * there yet and is not met, or a write? SIM_NEVER if that hangs on something the engines do not know. */
uint64_t engine_next_value(struct engine *engine, uint64_t owner, struct engine_unmet *unmet);

bool engine_flush(struct sim_state *state, uint32_t device); /* the open stretch into the log; false: no room */

#endif
