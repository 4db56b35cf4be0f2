/*
 * engine_state.h - what the engine (engine.h) and its parts have before them: the state, and how far the rings were read.
 */
#ifndef GEMINI_SIM_ENGINE_STATE_H
#define GEMINI_SIM_ENGINE_STATE_H

#include "libhook/sim/model/state.h"

/* Is the word as the wait wants it, and by when was it? False also if that cannot be known here: then *known is false. */
typedef bool (*sim_look)(
    const void *looker, uint64_t owner, const struct sim_entry *wait, bool *known, uint64_t *by_ns);

struct engine {
    const struct sim_machine *machine;
    struct sim_state *state;
    uint64_t tail[SIM_ALL_QUEUES]; /* as far as each ring was read */
    bool foresee;                  /* leaves no effects: a look ahead on a copy */
    bool stale;                    /* the rings do not fit the state: an old copy, throw it away */
    uint64_t look_ns;              /* when the words that waits ask for are looked at */
    sim_look look;
    const void *looker;
    struct {
        uint64_t owner, index; /* of the wait that it was the answer to; the index plus 1 */
        uint64_t by_ns;
        bool met;
    } seen[SIM_ALL_QUEUES]; /* since engine_begin: one look each */
    uint16_t compute[SIM_ALL_QUEUES]; /* the queues whose heads compute, in this step */
    uint32_t computing;
    uint64_t watched; /* the owner whose next value is looked for, 0: nobody's */
    uint64_t due_ns;  /* when that is; SIM_NEVER until it was found */
};

/* Does this kind of entry take the compute engine? */
static inline bool engine_computes(uint32_t kind) {
    return kind == SIM_KERNEL || kind == SIM_COLLECTIVE;
}

/* What is to be done next in this queue; marks the state as stale where the ring has gone on. */
static inline const struct sim_entry *engine_head(struct engine *engine, const struct sim_queue *queue) {
    const struct sim_entry *entry =
        &engine->machine->process[queue->process].ring[queue->queue].entry[queue->head % SIM_RING];
    if (atomic_load_explicit(&entry->index, memory_order_relaxed) != queue->head)
        engine->stale = true;
    return entry;
}

#endif
