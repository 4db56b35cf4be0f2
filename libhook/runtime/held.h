/*
 * held.h - a launch at the closed gate: its thread waits, or the device holds it (ahead.h).
 */
#ifndef GEMINI_RUNTIME_HELD_H
#define GEMINI_RUNTIME_HELD_H

#include <stdbool.h>
#include <stdint.h>

struct gate;
struct gate_thread;
struct lane;
struct launch;

#pragma GCC visibility push(hidden)

/* The calling thread itself waits here; nothing it launched is without an event by then. `launch` NULL: for the release of
 * what is held on this lane. */
void held_wait(struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch);
/* Let the device hold the launch. True where the thread is inside. */
bool held_go(
    struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch, uint64_t now_ns);
/* Something is held on this gate. True where the launch went to it; else it was waited for a moment. */
bool held_join(
    struct gate *gate, struct gate_thread *thread, struct lane *lane, const struct launch *launch, uint64_t now_ns);

/* What this thread launched last may be held by the device until the gate opens: wait for that. False: what the gate needs
 * cannot be had (agent.h). Errno is kept. */
bool held_await(void);

#pragma GCC visibility pop

#endif
