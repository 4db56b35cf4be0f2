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

#pragma GCC visibility pop

#endif
