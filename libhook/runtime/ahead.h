/*
 * ahead.h - launches that go out although they may not run yet, behind waits on the device that the library releases.
 *
 * A host that stands still in a launch prepares nothing, and that time is lost to a program whose host takes time. So
 * launches are cut into segments of some hundred microseconds of believed time. Before each stands a wait for a word of
 * ours (cuStreamWaitValue32), and behind it a store of the segment's number into another word (cuStreamWriteValue32).
 * Raising the first word by a store lets segments go; the second tells how far the device is. Segments are let go only
 * while the gate is open, and only so many that what runs stays below the cap, as launches themselves would.
 *
 * When it is used. At a closed gate: where tenants have grants beside each other. At a closed gate and at the cap: where
 * the program's host was seen to be away for longer than the cap, for the card would idle then.
 *
 * Why it cannot deadlock. While a segment is held the agent makes no driver call, which could need a lock that a thread
 * keeps while it waits inside the driver (a blocking copy, a free). Both words are memory of ours, so a drain is seen and
 * segments are let go without the driver. The threads wait for the release before calls that wait for the device, and
 * before what must find its work marked (captures, host functions, ends of streams). All held work of a gate is in one
 * stream, in the order of its numbers: a segment waits for nothing that is held behind it. Not held: what is not a
 * kernel known well, what is captured or launched while something captures, in a context other than the one where the
 * words are known, in a process that works on several cards or shares events with others. Where a drain lasts too long
 * all the same, everything is let go (ahead_release).
 */
#ifndef GEMINI_RUNTIME_AHEAD_H
#define GEMINI_RUNTIME_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/peek.h"
#include "libhook/driver/cuda_types.h"

struct gate;
struct gate_thread;
struct lane;

#pragma GCC visibility push(hidden)

/* A launching thread, its gate being open: make the words known to this context. Once for each. */
void ahead_prepare(CUcontext context);
/* The host met the cap, and then was away for longer than that lasts: the card may have run dry. */
void ahead_host_was_away(struct gate *gate, uint64_t now_ns);
/* Is it of use to hold launches at the closed gate, whatever they are? */
bool ahead_would_hold(const struct gate *gate);
/* Are there segments that the device may not begin yet? */
bool ahead_holds(const struct gate *gate);
/* ... and is the last of this lane's one of them? */
bool ahead_is_held(const struct lane *lane);
/* Is what is held in the stream of this lane? */
bool ahead_in_stream(const struct gate *gate, const struct gate_thread *thread, const struct lane *lane);
/* Could a launch be held there, as it looks now? */
bool ahead_may_hold(const struct gate *gate, const struct gate_thread *thread, const struct lane *lane);
/* Let the launch be counted in a segment that is held, beginning one where needed; false: it cannot be. */
bool ahead_hold(struct gate *gate, struct gate_thread *thread, struct lane *lane, uint64_t ns, uint64_t now_ns);
/* ... and take it back: it does not go. */
void ahead_unhold(struct gate *gate, const struct lane *lane, uint64_t ns);
/* Let go what may run by now. Returns in how many ns more may (UINT64_MAX: nothing is held, or the gate is closed). */
uint64_t ahead_pump(struct gate *gate, uint64_t now_ns);
/* The gate opens: what is held now was held while it was closed. */
void ahead_opened(struct gate *gate, uint64_t now_ns);
/* Let all of it go, whatever the gate says. */
void ahead_release(struct gate *gate);
/* After gate_close: whoever lets segments go has seen that. */
void ahead_close(struct gate *gate);
/* While a thread wants what cannot be held: no segment begins. */
void ahead_bar(struct gate *gate, bool barred);
/* Wake the threads that wait (gate.awaiting) when the newest segment, or the next one, is let go. */
void ahead_call_for(struct gate *gate, bool newest);

struct ahead_look {
    bool drained; /* what was let go is over */
    uint64_t end_ns; /* ... by then */
    uint64_t inflight_ns;
};
/* While segments are held: what the device is doing with those let go. */
void ahead_look(struct gate *gate, uint64_t now_ns, struct ahead_look *look);
/* When the segment of that number was let go; 0: it is none. UINT64_MAX: not yet. */
uint64_t ahead_released_ns(int ordinal, uint32_t number);
/* By so much what is in flight may be above the cap, for it was held: else the host would wait for what it gained. */
uint64_t ahead_over_cap_ns(const struct gate *gate, uint64_t now_ns);
/* Never again in this process: others wait for its events. */
void ahead_never(void);
/* The context is gone. */
void ahead_lost(CUcontext context);
/* In a forked child. */
void ahead_reset_after_fork(void);

#pragma GCC visibility pop

#endif
