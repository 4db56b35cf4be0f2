/*
 * stands.h - lanes that stand still: the first of what is there waits for its host (behind.h), and was given up.
 *
 * A tenant whose drain never ends overruns, and the daemon goes on without it. What stands still takes no time of the card,
 * so the token is given back then all the same, and these lanes count neither for a drain nor as in flight until their first
 * chunk is over. Else the process could never be granted the token again, and what it launches would come in by the valve
 * alone, in others' turns.
 */
#ifndef GEMINI_RUNTIME_STANDS_H
#define GEMINI_RUNTIME_STANDS_H

#include <stdbool.h>

struct gate;
struct lane;

#pragma GCC visibility push(hidden)

/* Is the first of it still what was given up? */
bool stands_still(const struct lane *lane);
/* The agent: give up what each lane of this gate has. */
void stands_give_up(const struct gate *gate);
/* The agent: is that not over yet? Asks the driver. */
bool stands_on(struct lane *lane);

#pragma GCC visibility pop

#endif
