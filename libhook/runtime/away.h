/*
 * away.h - would the card run dry in a turn, because the program's host meets the cap and then works for longer?
 *
 * Two things must have been so lately. The host was away: it met the in-flight cap, and then stayed away from the driver
 * for longer than the cap lasts, its work not over. And it waited for another tenant that has the card, or is to: a turn
 * ended while there was work, or the grant did not come at once. Where nobody else wants the card, a host that meets the
 * cap is as far ahead as it needs to be, and what ahead.h does for it would only cost it time.
 */
#ifndef GEMINI_RUNTIME_AWAY_H
#define GEMINI_RUNTIME_AWAY_H

#include <stdbool.h>
#include <stdint.h>

struct gate;

#pragma GCC visibility push(hidden)

/* The host met the cap, and was away since for longer than that lasts. Any thread. */
void away_seen(const struct gate *gate, uint64_t now_ns);
/* Another tenant has the card, or will have it, while this one wants it. The agent. */
void away_waits(const struct gate *gate, uint64_t now_ns);
/* Will both be so again? */
bool away_is_expected(const struct gate *gate, uint64_t now_ns);
/* In a forked child. */
void away_reset_after_fork(void);

#pragma GCC visibility pop

#endif
