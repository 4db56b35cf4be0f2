/*
 * captures.h - how many stream captures are under way in this process, so that nothing of ours gets into one.
 *
 * A capture begins in one stream and ends there; other streams join it by waiting for its events, and leave it with it.
 * Only where it began ends it: a joined stream that is destroyed, or at which the program asks in vain for the end, ends
 * nothing. So the streams where captures began are remembered. The count may be too high for a moment (more than
 * CAPTURES_KNOWN at once are never taken off): then the driver is asked for each launch; it is never too low.
 */
#ifndef GEMINI_RUNTIME_CAPTURES_H
#define GEMINI_RUNTIME_CAPTURES_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

#define CAPTURES_KNOWN 256

#pragma GCC visibility push(hidden)

extern uint32_t gate_captures; /* atomic */

/* Before the driver begins a capture, and after. `stream` is as the driver understands it, of `context`. */
void captures_beginning(void);
void captures_begun(CUcontext context, CUstream stream, bool begun);
/* This stream no longer captures; none may have begun there. */
void captures_ended(CUcontext context, CUstream stream);
/* All that began in a context that is gone. */
void captures_lost(CUcontext context);
/* In a forked child. */
void captures_reset_after_fork(void);

#pragma GCC visibility pop

#endif
