/*
 * ahead.h - launches that go out although the gate is closed, behind a wait on the device that the next grant releases.
 *
 * A host that stands still at a closed gate prepares nothing, and that time is lost to a program whose host takes time.
 * So the first launch at a closed gate puts a wait for a word of ours into its stream (cuStreamWaitValue32), and it and
 * the next ones go to the driver: the device holds them. Whoever opens the gate raises the word by a store. What is held
 * is bounded as work in flight is, and in number, far below what a queue takes.
 *
 * Why it cannot deadlock. A launch may be held only where the launch would have waited at the gate, after all that was
 * launched before is over and the token was given back. The thread waits for the release at its next synchronisation, and
 * before what must find its work marked (captures, host functions, ends of streams); elsewhere it may wait in the driver, as
 * in a blocking copy or a free. Until the release the agent makes no driver call, which could need a lock that such a
 * thread keeps; so nothing but the daemon's word is needed for it. Not held: what is
 * not a kernel known well, what is captured or launched while something captures, in a context other than the one where
 * the word is known, in a process that works on several cards or shares events with others.
 *
 * Generations. Each release raises the gate's generation, and a launch is held for one. A thread that is inside (gate.h)
 * and sees its generation held launches behind a wait that nobody has released yet, or has while the gate is open.
 */
#ifndef GEMINI_RUNTIME_AHEAD_H
#define GEMINI_RUNTIME_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/peek.h"
#include "libhook/driver/cuda_types.h"

#define AHEAD_LAUNCHES 256 /* held at most, on a gate; a queue of the driver's takes 1,024 */

struct gate;
struct gate_thread;
struct lane;

/* The low bits of gate.ahead; above them stands the generation. */
enum ahead_state { AHEAD_NO, AHEAD_MAY, AHEAD_HELD, AHEAD_STATES };

#pragma GCC visibility push(hidden)

/* A launching thread, its gate being open: make the word known to this context. Once for each. */
void ahead_prepare(CUcontext context);
/* The agent: all is over and the token given back. True where launches may be held from now on. */
bool ahead_allow(struct gate *gate);
/* The gate is open: what is held goes. Called by the agent, or by a thread that is inside. */
void ahead_release(struct gate *gate);
/* Does the device hold something until this gate opens? */
bool ahead_holds(const struct gate *gate);
/* By so much what is in flight may be above the cap, for it was held: else the host would wait for what it gained. */
uint64_t ahead_over_cap_ns(const struct gate *gate, uint64_t now_ns);
/* Could a launch of so long be held there, as it looks now? */
bool ahead_has_room(const struct gate *gate, const struct lane *lane, uint64_t ns);
/* Let the stream of this lane wait, if it does not yet; false: it cannot be. */
bool ahead_hold(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t now_ns);
/* Is the lane held by what stands in gate.ahead? */
bool ahead_is_held(const struct lane *lane);
/* Never again in this process: others wait for its events. */
void ahead_never(void);
/* The context is gone. */
void ahead_lost(CUcontext context);
/* In a forked child. */
void ahead_reset_after_fork(void);

#pragma GCC visibility pop

#endif
