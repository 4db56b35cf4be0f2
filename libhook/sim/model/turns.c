/* turns.c - who has the engines of each device next (turns.h). */
#include "libhook/sim/model/turns.h"

/* What of the compute engine this head takes. */
static uint32_t parts(const struct engine *engine, const struct sim_entry *entry) {
    uint64_t wide = engine->machine->spec.overlap ? entry->until : 0;
    return wide && wide < SIM_WHOLE ? (uint32_t)wide : SIM_WHOLE;
}

static bool before(const struct sim_state *state, int a, int b) {
    if (b < 0)
        return true;
    const struct sim_queue *p = &state->queue[a], *q = &state->queue[b];
    return p->priority != q->priority ? p->priority < q->priority : p->ready_ns < q->ready_ns;
}

uint64_t turns_look(struct engine *engine, struct choice *choice) {
    struct sim_state *state = engine->state;
    uint64_t arrival = SIM_NEVER;
    for (uint32_t d = 0; d < engine->machine->spec.gpus; d++)
        choice[d] = (struct choice){-1, -1, {-1, -1}, UINT32_MAX, 0};
    engine->computing = 0;
    for (uint32_t i = 0; i < state->queues; i++) {
        struct sim_queue *queue = &state->queue[i];
        if (queue->ready_ns > state->now_ns) {
            if (queue->ready_ns < arrival)
                arrival = queue->ready_ns;
            continue;
        }
        struct choice *c = &choice[queue->device];
        const struct sim_device *device = &state->device[queue->device];
        uint32_t kind = engine_head(engine, queue)->kind;
        if (kind == SIM_TO_DEVICE || kind == SIM_TO_HOST) {
            int *best = &c->copy[kind - SIM_TO_DEVICE];
            if (*best < 0 || queue->ready_ns < state->queue[*best].ready_ns)
                *best = (int)i;
        } else if (queue->on_engine) {
            engine->compute[engine->computing++] = (uint16_t)i;
            c->taken += parts(engine, engine_head(engine, queue));
        } else if (engine_computes(kind)) {
            if (queue->client == device->current) {
                if (before(state, (int)i, c->own))
                    c->own = (int)i;
            } else {
                uint32_t distance = (queue->client + state->clients - (uint32_t)(device->current + 1)) % state->clients;
                if (distance < c->distance || (distance == c->distance && before(state, (int)i, c->next))) {
                    c->distance = distance;
                    c->next = (int)i;
                }
            }
        }
    }
    return arrival;
}

static void switch_to(struct engine *engine, struct sim_device *device, int client, uint64_t cost_ns) {
    if (device->current < 0)
        cost_ns = 0;
    device->current = client;
    device->switches++;
    device->switch_end_ns = engine->state->now_ns + cost_ns;
    device->slice_end_ns = device->switch_end_ns + engine->machine->spec.slice_ns;
}

/* Of the current context on this device: the next that waits for the compute engine, -1: none. */
static int waiting(struct engine *engine, uint32_t number) {
    const struct sim_state *state = engine->state;
    int best = -1;
    for (uint32_t i = 0; i < state->queues; i++) {
        const struct sim_queue *queue = &state->queue[i];
        if (queue->device == number && queue->client == state->device[number].current && !queue->on_engine &&
            queue->ready_ns <= state->now_ns && engine_computes(engine_head(engine, queue)->kind) &&
            before(state, (int)i, best))
            best = (int)i;
    }
    return best;
}

/* This queue's head computes from now on, and those behind it in turn as far as there is room beside it. */
static void start(struct engine *engine, uint32_t number, int first, uint32_t taken) {
    for (int at = first; at >= 0; at = taken < SIM_WHOLE ? waiting(engine, number) : -1) {
        struct sim_queue *queue = &engine->state->queue[at];
        uint32_t wide = parts(engine, engine_head(engine, queue));
        if (wide > SIM_WHOLE - taken)
            return; /* nor do narrower ones go before it */
        taken += wide;
        queue->on_engine = 1;
        if (!queue->started)
            queue->started = 1;
        engine->compute[engine->computing++] = (uint16_t)at;
    }
}

/* All that computes on this device leaves its engine. */
static void leave(struct engine *engine, uint32_t number) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < engine->computing; i++) {
        struct sim_queue *queue = &engine->state->queue[engine->compute[i]];
        if (queue->device == number)
            queue->on_engine = 0;
        else
            engine->compute[kept++] = engine->compute[i];
    }
    engine->computing = kept;
}

uint64_t turns_assign(struct engine *engine, uint32_t number, const struct choice *c) {
    struct sim_state *state = engine->state;
    struct sim_device *device = &state->device[number];
    const struct sim_spec *spec = &engine->machine->spec;
    uint64_t now = state->now_ns, next = SIM_NEVER;
    bool busy = c->taken > 0;
    if (now >= device->switch_end_ns) {
        bool own = busy || c->own >= 0;
        if (own && now >= device->slice_end_ns) {
            if (c->next >= 0) {
                leave(engine, number);
                busy = false;
                switch_to(engine, device, state->queue[c->next].client, spec->switch_ns);
                own = false;
            } else {
                device->slice_end_ns += ((now - device->slice_end_ns) / spec->slice_ns + 1) * spec->slice_ns;
            }
        } else if (!own && c->next >= 0) {
            switch_to(engine, device, state->queue[c->next].client, spec->drained_ns);
        }
        int first = own ? c->own : -1;
        if (!own && now >= device->switch_end_ns && c->next >= 0 && state->queue[c->next].client == device->current)
            first = c->next;
        if (first >= 0) {
            start(engine, number, first, busy ? c->taken : 0);
            busy = true;
        }
    }
    if (now < device->switch_end_ns)
        next = device->switch_end_ns;
    else if (busy && c->next >= 0)
        next = device->slice_end_ns;
    for (int k = 0; k < SIM_COPIES; k++)
        if (device->copying[k] < 0)
            device->copying[k] = c->copy[k];
    return next;
}
