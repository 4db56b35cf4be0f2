/*
 * ahead.h - launches that go out although they may not run yet, behind waits on the device that the library releases.
 *
 * A host that stands still in a launch prepares nothing, and that time is lost to a program whose host takes time. So
 * launches are cut into segments of some hundred microseconds of believed time. Before each stands a wait for a word of
 * ours (cuStreamWaitValue32), and behind it a store of the segment's number into another word (cuStreamWriteValue32);
 * segments.h has the books of that.
 *
 * When it is used. At a closed gate: where tenants have grants beside each other. At a closed gate and at the cap: where
 * the card would run dry in turns, for the program's host is often away for longer than the cap lasts (away.h).
 *
 * Why it cannot deadlock. While a segment is held the agent makes no driver call, which could need a lock that a thread
 * keeps while it waits inside the driver (a blocking copy, a free). Both words are memory of ours, so a drain is seen
 * and segments are let go without the driver. The threads wait for the release before calls that wait for the device,
 * and before what must find its work marked (captures, host functions, ends of streams). All held work of a gate is in
 * one stream, in the order of its numbers: a segment waits for nothing that is held behind it. Not held is what is not
 * a kernel known well, what is captured or launched while something captures, and what is launched in a context other
 * than the one where the words are known. Nor is work of a process that works on several cards or shares events with
 * others. Where a drain lasts too long all the same, everything is let go (segments_release).
 */
#ifndef GEMINI_RUNTIME_AHEAD_H
#define GEMINI_RUNTIME_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

struct gate;
struct gate_thread;
struct lane;

#pragma GCC visibility push(hidden)

/* A launching thread, its gate being open: make the words known to this context. Once for each. */
void ahead_prepare(CUcontext context);
/* Is it of use to hold launches at the closed gate, whatever they are? */
bool ahead_would_hold(const struct gate *gate);
/* Could a launch be held there, as it looks now? */
bool ahead_may_hold(const struct gate *gate, const struct gate_thread *thread, const struct lane *lane);
/* Let the launch be counted in a segment that is held, beginning one where needed; false: it cannot be. */
bool ahead_hold(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t ns, uint64_t now_ns);
/* ... and take it back: it does not go. */
void ahead_unhold(struct gate *gate, const struct lane *lane, uint64_t ns);
/* While a thread wants what cannot be held: no segment begins. */
void ahead_bar(struct gate *gate, bool barred);
/* Never again in this process: others wait for its events. */
void ahead_never(void);
/* The context is gone. */
void ahead_lost(CUcontext context);
/* In a forked child. */
void ahead_reset_after_fork(void);

#pragma GCC visibility pop

#endif
