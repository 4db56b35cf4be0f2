/*
 * capture.h - stream capture, with the rules that CUDA documents for it (docs/simulator.md says which).
 *
 * A capture belongs to one graph in the making and to the streams that were joined to it. Whatever breaks a rule fails
 * with the documented error and invalidates the captures concerned; cuStreamEndCapture then says so.
 */
#ifndef GEMINI_SIM_CAPTURE_H
#define GEMINI_SIM_CAPTURE_H

#include "libhook/sim/driver/op.h"
#include "libhook/sim/driver/stream.h"

/* The work goes into the graph in the place of the device. */
CUresult capture_op(struct CUstream_st *stream, const struct op *op);
CUresult capture_record(struct CUstream_st *stream, struct CUevent_st *event, bool external);
CUresult capture_wait(struct CUstream_st *stream, struct CUevent_st *event, bool external);
bool capture_event_is_captured(const struct CUevent_st *event);

/* The checks of other calls. Each returns CUDA_SUCCESS, or the error after having invalidated what it must. */
CUresult capture_guard_slow(void);
CUresult capture_check_sync_slow(struct CUstream_st *stream);
CUresult capture_check_event_slow(struct CUevent_st *event);
CUresult capture_check_context_slow(struct CUctx_st *ctx);
CUresult capture_check_legacy_slow(struct CUstream_st *stream);

/* A stream is destroyed in the middle of its capture. */
void capture_abandon(struct CUstream_st *stream);

static inline bool capture_any(void) {
    return __builtin_expect(atomic_load_explicit(&driver.captures, memory_order_relaxed) != 0, 0);
}

/* For calls that CUDA calls potentially unsafe: forbidden by captures of this thread and global ones of others. */
static inline CUresult capture_guard(void) {
    return capture_any() ? capture_guard_slow() : CUDA_SUCCESS;
}

/* For synchronising with, and asking about, one stream; a context; an event. */
static inline CUresult capture_check_sync(struct CUstream_st *stream) {
    return capture_any() ? capture_check_sync_slow(stream) : CUDA_SUCCESS;
}

static inline CUresult capture_check_context(struct CUctx_st *ctx) {
    return capture_any() ? capture_check_context_slow(ctx) : CUDA_SUCCESS;
}

static inline CUresult capture_check_event(struct CUevent_st *event) {
    return event->captured ? capture_check_event_slow(event) : CUDA_SUCCESS;
}

/* For work in a stream that does not capture: the legacy stream must not be used while a blocking one captures. */
static inline CUresult capture_check_legacy(struct CUstream_st *stream) {
    return capture_any() && stream->kind == STREAM_LEGACY ? capture_check_legacy_slow(stream) : CUDA_SUCCESS;
}

#endif
