/*
 * behind.h - launches behind work that stands still.
 *
 * A stream may wait for its host (a host function, a value, a kernel that spins), and the host may come to let it go only
 * after some more launches. Whoever kept these waiting until there is room, or until what is in flight is over, would do
 * so for ever. So what may be in flight grows with the time for which nothing of it ended. A kernel that is only long
 * looks the same: a drain that waits for one is longer by a part of that time.
 */
#ifndef GEMINI_RUNTIME_BEHIND_H
#define GEMINI_RUNTIME_BEHIND_H

#include <stdint.h>

struct gate;

#pragma GCC visibility push(hidden)

/* The program puts into a stream of that device what may make it stand still. */
void behind_paused(int ordinal);
/* How much may be in flight, of which nothing ended for `stood_ns`; 0: as much as ever. */
uint64_t behind_after(const struct gate *gate, uint64_t stood_ns, uint64_t now_ns);

#pragma GCC visibility pop

#endif
