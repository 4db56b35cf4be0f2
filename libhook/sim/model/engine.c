#include "libhook/sim/model/engine.h"

#include "libhook/sim/model/roster.h"
#include "libhook/sim/model/turns.h"

enum {
    LONGEST_STRETCH_NS = 10 * 1000 * 1000, /* of one log record: a reader sees a steady stream */
    FORESEE_STEPS = 20000,
};

/* The queue has a new head, or none. */
static void meet(struct engine *engine, uint32_t index, uint64_t since_ns) {
    struct sim_queue *queue = &engine->state->queue[index];
    queue->started = queue->on_engine = 0;
    if (queue->head >= engine->tail[index]) {
        queue->ready_ns = SIM_NEVER;
        return;
    }
    const struct sim_entry *entry = engine_head(engine, queue);
    queue->ready_ns = entry->submit_ns > since_ns ? entry->submit_ns : since_ns;
    queue->remaining_ns = entry->duration_ns;
}

void engine_begin(struct engine *engine, const struct sim_machine *machine, struct sim_state *state) {
    engine->machine = machine;
    engine->state = state;
    engine->foresee = engine->stale = false;
    engine->look_ns = state->now_ns;
    engine->watched = 0;
    engine->due_ns = SIM_NEVER;
    for (uint32_t i = 0; i < state->queues; i++) {
        const struct sim_queue *queue = &state->queue[i];
        engine->seen[i].owner = 0;
        engine->tail[i] =
            atomic_load_explicit(&machine->process[queue->process].ring[queue->queue].tail, memory_order_acquire);
        if (queue->ready_ns == SIM_NEVER)
            meet(engine, i, state->now_ns);
    }
}

static struct sim_effect *effect(struct engine *engine) {
    return &engine->state->effect[engine->state->effects++];
}

static bool full(const struct engine *engine) {
    return !engine->foresee && engine->state->effects + 2 * SIM_DEVICES > SIM_EFFECTS;
}

bool engine_flush(struct sim_state *state, uint32_t device) {
    struct sim_device *d = &state->device[device];
    if (d->open.end_ns == d->open.start_ns && !d->open.kernels)
        return true;
    if (state->effects >= SIM_EFFECTS)
        return false;
    state->effect[state->effects++] =
        (struct sim_effect){.sequence = d->log_next++, .device = device, .stretch = d->open};
    d->open.start_ns = d->open.end_ns;
    d->open.kernels = 0;
    return true;
}

static void retire(struct engine *engine, uint32_t index) {
    struct sim_state *state = engine->state;
    struct sim_queue *queue = &state->queue[index];
    const struct sim_entry *entry = engine_head(engine, queue);
    if (entry->kind == SIM_EVENT && !engine->foresee)
        *effect(engine) = (struct sim_effect){.sequence = queue->head,
            .device = SIM_DEVICES,
            .process = queue->process,
            .queue = queue->queue,
            .stretch = {.owner = queue->owner, .end_ns = state->now_ns}};
    if (entry->kind == SIM_VALUE_WRITE && queue->owner == engine->watched)
        engine->due_ns = state->now_ns;
    if (engine_computes(entry->kind))
        state->device[queue->device].open.kernels += entry->kernels;
    queue->head++;
    meet(engine, index, state->now_ns);
}

/* May this head, a wait for a value, retire now? One that was not met when it came is released by the look that finds
 * it met. */
static bool met(struct engine *engine, uint32_t index, const struct sim_entry *entry) {
    struct sim_queue *queue = &engine->state->queue[index];
    bool known = true;
    if (queue->started == SIM_RELEASED)
        return true;
    uint64_t met_ns = __atomic_load_n(&entry->duration_ns, __ATOMIC_ACQUIRE);
    if (queue->started == SIM_UNSEEN && entry->unmet && (!met_ns || met_ns > engine->state->now_ns))
        queue->started = SIM_UNMET; /* was not when it was pushed, nor seen to be since: this look is the first */
    if (engine->seen[index].owner != queue->owner || engine->seen[index].index != queue->head + 1) {
        uint64_t by_ns;
        bool is = engine->look(engine->looker, queue->owner, entry, &known, &by_ns);
        if (!known)
            return false;
        engine->seen[index].owner = queue->owner;
        engine->seen[index].index = queue->head + 1;
        engine->seen[index].met = is;
        engine->seen[index].by_ns = by_ns;
    }
    if (engine->seen[index].met && queue->started == SIM_UNSEEN)
        return true;
    if (engine->seen[index].met) {
        queue->started = SIM_RELEASED;
        queue->ready_ns = engine->seen[index].by_ns; /* whoever looks may have stood still since it knew the time */
        if (queue->ready_ns < engine->look_ns || queue->ready_ns < engine->state->now_ns)
            queue->ready_ns = engine->look_ns > engine->state->now_ns ? engine->look_ns : engine->state->now_ns;
        queue->ready_ns += engine->machine->spec.release_ns;
        return queue->ready_ns <= engine->state->now_ns;
    }
    if (queue->started == SIM_UNSEEN && queue->owner == engine->watched)
        engine->due_ns = engine->state->now_ns;
    queue->started = SIM_UNMET;
    return false;
}

/* May this head, which takes no engine, retire now? */
static bool passes(struct engine *engine, uint32_t index, const struct sim_entry *entry) {
    const struct sim_queue *queue = &engine->state->queue[index];
    switch (entry->kind) {
    case SIM_KERNEL:
    case SIM_COLLECTIVE:
    case SIM_TO_DEVICE:
    case SIM_TO_HOST: return false;
    case SIM_WAIT: {
        int on = roster_queue(engine->state, queue->owner, (uint32_t)entry->arg);
        return on < 0 || engine->state->queue[on].head > entry->until;
    }
    case SIM_HOST: return !(atomic_load_explicit(&entry->done, memory_order_acquire) & SIM_PENDING);
    case SIM_VALUE_WAIT: return met(engine, index, entry);
    default: return true;
    }
}

/* Retire all that takes no time. Returns false when there is no room for more effects. */
static bool settle(struct engine *engine) {
    struct sim_state *state = engine->state;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < state->queues; i++)
            while (state->queue[i].ready_ns <= state->now_ns && !engine->stale) {
                if (!passes(engine, i, engine_head(engine, &state->queue[i])))
                    break;
                if (full(engine))
                    return false;
                retire(engine, i);
                again = true;
            }
    }
    return true;
}

/* A collective makes progress only while it has been started on all of its devices. */
static bool together(struct engine *engine, const struct sim_entry *entry) {
    const struct sim_state *state = engine->state;
    uint32_t started = 0;
    for (uint32_t i = 0; i < state->queues; i++)
        if (state->queue[i].started) {
            const struct sim_entry *other = engine_head(engine, &state->queue[i]);
            started += other->kind == SIM_COLLECTIVE && other->arg == entry->arg;
        }
    return started >= entry->peers;
}

static bool progresses(struct engine *engine, struct sim_queue *queue) {
    const struct sim_entry *entry = engine_head(engine, queue);
    if (entry->kind != SIM_COLLECTIVE || queue->started == 2)
        return true;
    if (!together(engine, entry))
        return false;
    for (uint32_t i = 0; i < engine->state->queues; i++) /* for good: the first to finish must not stop the others */
        if (engine->state->queue[i].started) {
            const struct sim_entry *other = engine_head(engine, &engine->state->queue[i]);
            if (other->kind == SIM_COLLECTIVE && other->arg == entry->arg)
                engine->state->queue[i].started = 2;
        }
    return true;
}

/* Whose work the compute engine of the device is said to do: of what runs beside each other that which was so before, else
 * the first. NULL: it idles. */
static const struct sim_queue *leading(const struct engine *engine, uint32_t number) {
    const struct sim_stretch *open = &engine->state->device[number].open;
    const struct sim_queue *first = NULL;
    for (uint32_t i = 0; i < engine->computing; i++) {
        const struct sim_queue *queue = &engine->state->queue[engine->compute[i]];
        if (queue->device != number)
            continue;
        if (queue->owner == open->owner && queue->queue == open->queue)
            return queue;
        first = first ? first : queue;
    }
    return first;
}

/* The compute engine of a device worked from now on until `end_ns`, if it did. */
static void account(struct engine *engine, uint32_t number, uint64_t end_ns) {
    struct sim_state *state = engine->state;
    struct sim_stretch *open = &state->device[number].open;
    const struct sim_queue *queue = leading(engine, number);
    if (!queue)
        return;
    state->client[queue->client].busy_ns += end_ns - state->now_ns;
    if (engine->foresee)
        return;
    if (open->owner != queue->owner || open->queue != queue->queue || open->end_ns != state->now_ns ||
        end_ns - open->start_ns > LONGEST_STRETCH_NS) {
        engine_flush(state, number);
        *open = (struct sim_stretch){queue->owner, state->now_ns, end_ns, 0, queue->queue};
    } else {
        open->end_ns = end_ns;
    }
}

/* One step: to the next thing that happens, at most to the target. Returns false when nothing more can be done now. */
static bool step(struct engine *engine, uint64_t target_ns) {
    struct sim_state *state = engine->state;
    struct choice choice[SIM_DEVICES];
    if (full(engine) || !settle(engine))
        return false;
    uint64_t next = turns_look(engine, choice);
    for (uint32_t d = 0; d < engine->machine->spec.gpus; d++) {
        uint64_t happens = turns_assign(engine, d, &choice[d]);
        next = happens < next ? happens : next;
        for (int k = 0; k < SIM_COPIES; k++) {
            int index = state->device[d].copying[k];
            if (index >= 0 && state->queue[index].remaining_ns < next - state->now_ns)
                next = state->now_ns + state->queue[index].remaining_ns;
        }
    }
    for (uint32_t i = 0; i < engine->computing; i++) {
        struct sim_queue *queue = &state->queue[engine->compute[i]];
        if (progresses(engine, queue) && queue->remaining_ns < next - state->now_ns)
            next = state->now_ns + queue->remaining_ns;
    }
    if (engine->stale)
        return false;
    bool more = next <= target_ns;
    if (!more)
        next = target_ns;
    if (next == SIM_NEVER)
        return false;
    uint64_t passed = next - state->now_ns;
    for (uint32_t i = 0; i < engine->computing; i++) {
        struct sim_queue *queue = &state->queue[engine->compute[i]];
        if (progresses(engine, queue))
            queue->remaining_ns -= passed;
    }
    for (uint32_t d = 0; d < engine->machine->spec.gpus; d++) {
        account(engine, d, next);
        for (int k = 0; k < SIM_COPIES; k++) {
            if (state->device[d].copying[k] < 0)
                continue;
            struct sim_queue *queue = &state->queue[state->device[d].copying[k]];
            queue->remaining_ns -= passed;
            if (k == SIM_COPY_IN)
                state->client[queue->client].h2d_ns += passed;
            else
                state->client[queue->client].d2h_ns += passed;
        }
    }
    state->now_ns = next;
    for (uint32_t i = 0; i < engine->computing; i++) {
        uint32_t index = engine->compute[i];
        if (state->queue[index].remaining_ns == 0 && progresses(engine, &state->queue[index]))
            retire(engine, index);
    }
    for (uint32_t d = 0; d < engine->machine->spec.gpus; d++)
        for (int k = 0; k < SIM_COPIES; k++) {
            int index = state->device[d].copying[k];
            if (index >= 0 && state->queue[index].remaining_ns == 0) {
                state->device[d].copying[k] = -1;
                retire(engine, (uint32_t)index);
            }
        }
    return more;
}

void engine_advance(struct engine *engine, uint64_t target_ns) {
    engine->look_ns = target_ns;
    while (!engine->stale && engine->state->now_ns <= target_ns && step(engine, target_ns))
        ;
}

uint64_t engine_foresee(struct engine *engine, uint32_t queue, uint64_t index) {
    engine->foresee = true;
    for (int i = 0; i < FORESEE_STEPS; i++) {
        if (engine->state->queue[queue].head > index)
            break;
        if (!step(engine, SIM_NEVER))
            return engine->state->queue[queue].head > index ? engine->state->now_ns : SIM_NEVER;
    }
    return engine->state->now_ns;
}

uint64_t engine_next_value(struct engine *engine, uint64_t owner, struct engine_unmet *unmet) {
    struct sim_state *state = engine->state;
    engine->foresee = true;
    engine->watched = owner;
    unmet->count = 0;
    for (uint32_t i = 0; i < state->queues; i++) {
        if (state->queue[i].owner != owner || state->queue[i].started != SIM_UNMET)
            continue;
        const struct sim_entry *head = engine_head(engine, &state->queue[i]);
        if (head->kind == SIM_VALUE_WAIT && unmet->count++ < sizeof(unmet->first) / sizeof(unmet->first[0]))
            unmet->first[unmet->count - 1] =
                (struct sim_entry){.kind = head->kind, .arg = head->arg, .until = head->until, .peers = head->peers};
    }
    for (int i = 0; i < FORESEE_STEPS && engine->due_ns == SIM_NEVER; i++)
        if (!step(engine, SIM_NEVER))
            return engine->due_ns;
    return engine->due_ns == SIM_NEVER ? state->now_ns : engine->due_ns;
}
