/* stream.h - streams, the default ones among them. */
#ifndef GEMINI_SIM_STREAM_H
#define GEMINI_SIM_STREAM_H

#include "libhook/sim/driver/driver.h"

/* What the handle means to this thread; 0 is the legacy stream, or with per_thread the thread's own. */
CUresult stream_of(CUstream handle, bool per_thread, struct CUstream_st **out);

/* With driver.lock held: a new stream of this context. */
struct CUstream_st *stream_make(struct CUctx_st *ctx, enum stream_kind kind, unsigned int flags, int priority);

/* With driver.lock held: gone, its context's list included. */
void stream_end(struct CUstream_st *stream);

static inline bool stream_capturing(struct CUstream_st *stream) {
    return __builtin_expect(atomic_load_explicit(&stream->capture, memory_order_relaxed) != NULL, 0);
}

#endif
