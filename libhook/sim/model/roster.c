/* roster.c - who is on the simulated machine (roster.h). */
#include "libhook/sim/model/roster.h"

int roster_queue(const struct sim_state *state, uint64_t owner, uint32_t queue) {
    for (uint32_t i = 0; i < state->queues; i++)
        if (state->queue[i].owner == owner && state->queue[i].queue == queue)
            return (int)i;
    return -1;
}

void roster_remove_queue(struct sim_state *state, uint32_t index) {
    uint32_t last = --state->queues;
    for (int d = 0; d < SIM_DEVICES; d++)
        for (int k = 0; k < SIM_COPIES; k++) {
            int *copying = &state->device[d].copying[k];
            if (*copying == (int)index)
                *copying = -1;
            else if (*copying == (int)last)
                *copying = (int)index;
        }
    state->queue[index] = state->queue[last];
}

static void remove_client(struct sim_state *state, uint32_t index) {
    uint32_t last = --state->clients;
    state->client[index] = state->client[last];
    for (int d = 0; d < SIM_DEVICES; d++) {
        int *current = &state->device[d].current;
        *current = *current == (int)index ? -1 : *current == (int)last ? (int)index : *current;
    }
    for (uint32_t i = 0; i < state->queues; i++)
        if (state->queue[i].client == last)
            state->queue[i].client = (uint16_t)index;
}

int roster_client(struct sim_state *state, uint64_t owner, uint32_t device, bool make) {
    for (uint32_t i = 0; i < state->clients; i++)
        if (state->client[i].owner == owner && state->client[i].device == device)
            return (int)i;
    if (!make)
        return -1;
    for (uint32_t i = 0; state->clients >= SIM_CLIENTS / 2 && i < state->clients; i++)
        if (state->client[i].dead) {
            remove_client(state, i);
            break;
        }
    if (state->clients >= SIM_CLIENTS)
        return -1;
    state->client[state->clients] = (struct sim_client){.owner = owner, .device = device};
    return (int)state->clients++;
}

void roster_remove_owner(struct sim_state *state, uint64_t owner) {
    for (uint32_t i = 0; i < state->queues;)
        if (state->queue[i].owner == owner)
            roster_remove_queue(state, i);
        else
            i++;
    for (uint32_t i = 0; i < state->clients; i++)
        if (state->client[i].owner == owner) {
            state->client[i].dead = 1;
            state->client[i].memory_bytes = 0;
            state->client[i].contexts = 0;
        }
}

uint64_t roster_memory_used(const struct sim_state *state, uint32_t device) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < state->clients; i++)
        used += state->client[i].device == device ? state->client[i].memory_bytes : 0;
    return used;
}
