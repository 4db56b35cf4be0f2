/*
 * watch.h - what the wrappers of calls that launch nothing tell the gate: synchronisation, captures, ends of handles.
 *
 * The application's own synchronisation calls say when its work is over; we ride on them and add none. Before the call
 * the open work gets its event (so that its true end is known from the device's clock), afterwards it is taken off.
 */
#ifndef GEMINI_RUNTIME_WATCH_H
#define GEMINI_RUNTIME_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/driver/cuda_types.h"

enum watch_scope {
    WATCH_STREAM,  /* this stream's work is over when the call succeeds */
    WATCH_CONTEXT, /* all work of the current context is */
    WATCH_SOME     /* some is (an event, a blocking copy): look */
};

#pragma GCC visibility push(hidden)

void watch_sync_before(enum watch_scope scope, CUstream stream);
void watch_sync_after(enum watch_scope scope, CUstream stream, CUresult result);

/* Each of the next that answers does so: may the call go to the driver? False: the thread's work is held, and what the gate
 * needs to let go of it cannot be had (agent.h); the call is GATE_REFUSAL, and nothing is to be undone. */

/* Before something after which the stream may stand still for as long as it likes: what was launched gets its event. */
bool watch_stream_pausing(CUstream stream);

/* Before something that may make the stream stand still, and that the gate lets through by itself: a graph. */
void watch_stream_may_pause(CUstream stream);

/* What the calling thread launched just now does: unless it is to be measured by itself its chunk tells nothing. */
void watch_launch_pauses(void);

/* Before the stream is made to wait for an event: what is launched next may begin late. */
void watch_stream_waiting(CUstream stream);

/* Around the driver's BeginCapture, and after its EndCapture, whatever that answered. */
bool watch_capture_beginning(void);
void watch_capture_begun(CUstream stream, CUresult result);
void watch_capture_ended(CUstream stream);

void watch_stream_ending(CUstream stream); /* before the driver destroys it */

/* Around every call that may end a context: between the two the agent touches none. `gone` is the context that did end,
 * or NULL. */
bool watch_contexts_hold(void);
void watch_contexts_release(CUcontext gone);

/* A copy between host and device is about to be enqueued: it is nothing that the token is for, nor is it to be taken for
 * work of what was launched around it. */
void watch_copy_coming(CUstream stream);
/* A copy between host and device, for the metrics. */
void watch_copy(bool to_device, uint64_t bytes);

#pragma GCC visibility pop

#endif
