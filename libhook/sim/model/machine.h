/*
 * machine.h - where the shared machine lives, and who is alive. Used by seat.c only.
 */
#ifndef GEMINI_SIM_MACHINE_H
#define GEMINI_SIM_MACHINE_H

#include "libhook/sim/model/seat.h"

/* Does the process of this seat still exist, and is it no other one with its pid? */
bool machine_same_process(struct sim_process *process);

/* Give the seat of this (ended) owner free, if it still has it. */
void machine_free_seat(struct sim_process *process, uint64_t owner);

/* The deterministic UUID of a card, from the machine's id and the card's number. */
void machine_uuid(const struct sim_machine *machine, uint32_t device, uint8_t uuid[16]);
void machine_uuid_text(const struct sim_machine *machine, uint32_t device, char text[48]); /* as NVML writes it */

#endif
