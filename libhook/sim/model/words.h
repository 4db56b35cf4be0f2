/*
 * words.h - the words in memory that waits for values look at and that writes store, of this process and of others.
 */
#ifndef GEMINI_SIM_WORDS_H
#define GEMINI_SIM_WORDS_H

#include "libhook/sim/model/engine.h"

/* As sim_look; `self` is a uint64_t, who we are. Memory of a process that this one may not read is not known. */
bool words_look(const void *self, uint64_t owner, const struct sim_entry *wait, bool *known, uint64_t *by_ns);

/* The same of a wait of our own, and the low half of what the word holds; 0 where there is no memory any more. */
bool words_look_here(uint64_t self, const struct sim_entry *wait, uint32_t *low);

/* What a SIM_VALUE_WRITE of our own stores. */
void words_store(const struct sim_entry *write);

#endif
