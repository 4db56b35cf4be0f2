/*
 * turns.h - who has the engines of each device next: contexts in turn, time slices, queues by priority, what fits beside
 * what computes already (the model stands in engine.h). A part of each of the engine's steps.
 */
#ifndef GEMINI_SIM_TURNS_H
#define GEMINI_SIM_TURNS_H

#include "libhook/sim/model/engine_state.h"

struct choice {
    int own, next, copy[2]; /* queues: of the current context, of the next context in turn, for the copy engines */
    uint32_t distance;
    uint32_t taken; /* parts of the compute engine, by what runs there */
};

/* Who could run on each device? Finds what computes already; returns when the next entry arrives. */
uint64_t turns_look(struct engine *engine, struct choice *choice);
/* Give the engines of one device their work; returns when something on it will happen next. */
uint64_t turns_assign(struct engine *engine, uint32_t number, const struct choice *c);

#endif
