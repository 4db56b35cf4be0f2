/*
 * wild.h - how many launches of which nothing foretells the length are in flight at once (belief.h).
 */
#ifndef GEMINI_RUNTIME_WILD_H
#define GEMINI_RUNTIME_WILD_H

#include <stdbool.h>
#include <stdint.h>

struct belief;
struct gate;
struct lane;

#pragma GCC visibility push(hidden)

/* May one more wild launch follow those in flight? Another behind one only where it begins within the quota even then: so
 * work runs on past it by a single kernel. One of which nothing is known follows none, for it may be as unlike. */
bool wild_may_go(const struct gate *gate, const struct lane *lane, const struct belief *belief, uint64_t now_ns);
/* How long to sleep for the end of a wild launch; 0: look again at once. It may come at any moment, and with few behind it the
 * device would idle for as long as a sleep lasts; what goes on for long may well do so for as long again. Where no turn has to
 * end there are more behind it, and to look all the while would take a processor from the program. */
uint64_t wild_sleep_ns(const struct lane *lane, bool in_turn, uint64_t flying_ns, uint64_t now_ns);

#pragma GCC visibility pop

#endif
