/*
 * gate_open.h - opening and closing the gate: the agent's side (gate.h).
 */
#ifndef GEMINI_RUNTIME_GATE_OPEN_H
#define GEMINI_RUNTIME_GATE_OPEN_H

#include <stdbool.h>
#include <stdint.h>

struct gate;

#pragma GCC visibility push(hidden)

int gate_start(void); /* registers membarrier; once per process image */
void gate_reset_after_fork(void); /* in the child: no thread but this one, every gate closed */
void gate_open(struct gate *gate, uint64_t epoch, const uint64_t *page_word, uint64_t cap_ns, uint64_t close_by_ns,
    bool contended);
/* The gate is open as soon as the daemon stores `epoch` into its page; waiting threads sleep there until it does. */
void gate_arm(struct gate *gate, uint64_t epoch, const uint64_t *page_word, uint64_t cap_ns);
void gate_disarm(struct gate *gate); /* nobody will open it there: who sleeps on the page sleeps on the gate again */
void gate_open_free(struct gate *gate); /* for good, until gate_close */
void gate_allow_ahead(struct gate *gate); /* all is over and given back: those who wait may launch ahead (ahead.h) */
void gate_close(struct gate *gate); /* returns at once; see gate_inside */
bool gate_inside(const struct gate *gate); /* is a thread between check and launch, after gate_close? */

#pragma GCC visibility pop

#endif
