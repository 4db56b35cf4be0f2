/*
 * roster.h - who is on the simulated machine: its clients (a process on a device) and their queues, changed at the state's
 * present time.
 */
#ifndef GEMINI_SIM_ROSTER_H
#define GEMINI_SIM_ROSTER_H

#include "libhook/sim/model/state.h"

int roster_client(struct sim_state *state, uint64_t owner, uint32_t device, bool make); /* index, -1: none, no room */
int roster_queue(const struct sim_state *state, uint64_t owner, uint32_t queue);        /* index or -1 */
void roster_remove_queue(struct sim_state *state, uint32_t index);
/* It died: queues and memory go, what it used stays. */
void roster_remove_owner(struct sim_state *state, uint64_t owner);
uint64_t roster_memory_used(const struct sim_state *state, uint32_t device);

#endif
