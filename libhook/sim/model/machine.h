/*
 * machine.h - where the shared machine lives, and who is alive.
 */
#ifndef GEMINI_SIM_MACHINE_H
#define GEMINI_SIM_MACHINE_H

#include "libhook/sim/model/engine.h"

/* Map the machine that `text` (GEMINI_SIM) describes, as sim_sit says (seat.h), and take a seat at it for this process.
 * Returns 0 or -errno and a line in `why`; what was mapped or taken until then is the caller's to give back. */
int machine_join(const char *text, bool make, struct sim_machine **machine, int *number, uint64_t *owner, char *why,
    size_t why_size);

/* Does the process of this seat still exist, and is it no other one with its pid? */
bool machine_same_process(struct sim_process *process);

/* Give the seat of this (ended) owner free, if it still has it. */
void machine_free_seat(struct sim_process *process, uint64_t owner);

/* The deterministic UUID of a card, from the machine's id and the card's number. */
void machine_uuid(const struct sim_machine *machine, uint32_t device, uint8_t uuid[16]);
void machine_uuid_text(const struct sim_machine *machine, uint32_t device, char text[48]); /* as NVML writes it */

#endif
