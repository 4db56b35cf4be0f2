/* streams.h - what stream 0 means: the context's legacy stream to one flavour of a call, the thread's own to the other. */
#ifndef GEMINI_HOOKS_STREAMS_H
#define GEMINI_HOOKS_STREAMS_H

#include "libhook/driver/cuda_types.h"

static inline CUstream stream_legacy(CUstream stream) {
    return stream ? stream : CU_STREAM_LEGACY;
}

static inline CUstream stream_per_thread(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

#endif
