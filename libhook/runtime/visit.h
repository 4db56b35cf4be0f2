/*
 * visit.h - what stands around each driver call that the library makes by itself, for the lanes and the books.
 *
 * A visit makes the calls harmless to the program. The lane's context is current meanwhile, for a driver may refuse a
 * call without one, and handles 1 and 2 mean streams of the current one. And the thread's capture mode is relaxed, for
 * a capture in global mode, in whatever thread, ends when another thread asks about events. Both are as before when the
 * visit ends, and nothing is assumed of what a thread did when it began: the driver may not have been there then.
 *
 * The agent is kept out while streams and contexts are destroyed, for it may be about to touch them, and while the
 * device holds launches until a grant (ahead.h). It is kept out for good once exit() was called: the driver is torn
 * down then, while the agent runs on until the process is gone.
 */
#ifndef GEMINI_RUNTIME_VISIT_H
#define GEMINI_RUNTIME_VISIT_H

#include <stdbool.h>

#include "libhook/driver/cuda_types.h"

struct visit {
    CUstreamCaptureMode before;
    bool pushed, relaxed;
    bool lost; /* the context cannot be had any more: default streams are another's */
};

#pragma GCC visibility push(hidden)

/* `context` NULL: whichever is current. Returns false where a call might end somebody's capture: then none is to be
 * made. visit_end() follows in either case. */
bool visit_begin(struct visit *visit, CUcontext context);
void visit_end(struct visit *visit);

/* The agent, before it touches a context, a stream or an event; false: not now. */
bool visit_agent_enters(void);
void visit_agent_leaves(void);

/* Whoever destroys one: returns when the agent touches none. `try`: returns false where it does now. */
void visit_keep_agent_out(void);
bool visit_try_to_keep_agent_out(void);
void visit_let_agent_in(void);

/* Keep the agent out from exit() on. To be called when the driver is there, and again when more of it may be: handlers run
 * in the opposite order, and ours is to come before the driver's own. */
void visit_end_at_exit(void);

/* In a forked child. */
void visit_reset_after_fork(void);

#pragma GCC visibility pop

#endif
