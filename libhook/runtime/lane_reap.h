/*
 * lane_reap.h - takes off what is over of a lane; its own thread alone does (lane.h).
 */
#ifndef GEMINI_RUNTIME_LANE_REAP_H
#define GEMINI_RUNTIME_LANE_REAP_H

#include <stdint.h>

struct gate;
struct gate_thread;
struct lane;

#pragma GCC visibility push(hidden)

/* Take off the chunks that have finished; account and learn from them. */
void lane_reap(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns);
/* The host knows that all is over (a synchronisation call returned). */
void lane_finish(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns);

#pragma GCC visibility pop

#endif
