/*
 * sync.c - the application's own synchronisation calls, and the end of streams. They pass through as they are, but that one
 * that waits for the device waits here first while that holds the thread's work (runtime/ahead.h); what they tell about the
 * work is taken along (runtime/watch.h). A query counts too: its success says that work is over.
 */
#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/memory.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/ahead.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/held.h"
#include "libhook/runtime/watch.h"

#define WATCHED(scope, stream, call)                                                                                   \
    do {                                                                                                               \
        watch_sync_before(scope, stream);                                                                              \
        CUresult result = call;                                                                                        \
        watch_sync_after(scope, stream, result);                                                                       \
        memory_synchronized();                                                                                         \
        return result;                                                                                                 \
    } while (0)

/* The same of one that waits for the device. */
#define WAITED(scope, stream, call)                                                                                    \
    do {                                                                                                               \
        if (!held_await())                                                                                             \
            return GATE_REFUSAL;                                                                                       \
        WATCHED(scope, stream, call);                                                                                  \
    } while (0)

CUresult cuStreamSynchronize(CUstream stream) {
    WAITED(WATCH_STREAM, stream_legacy(stream), real.cuStreamSynchronize(stream));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    WAITED(WATCH_STREAM, stream_per_thread(stream), real.cuStreamSynchronize_ptsz(stream));
}

CUresult cuStreamQuery(CUstream stream) {
    WATCHED(WATCH_STREAM, stream_legacy(stream), real.cuStreamQuery(stream));
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
    WATCHED(WATCH_STREAM, stream_per_thread(stream), real.cuStreamQuery_ptsz(stream));
}

CUresult cuCtxSynchronize(void) {
    WAITED(WATCH_CONTEXT, NULL, real.cuCtxSynchronize());
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    /* The context may be another than the current one: look at what is over, assume nothing. */
    WAITED(WATCH_SOME, NULL, real.cuCtxSynchronize_v2(ctx));
}

CUresult cuEventSynchronize(CUevent event) {
    WAITED(WATCH_SOME, NULL, real.cuEventSynchronize(event));
}

CUresult cuEventQuery(CUevent event) {
    WATCHED(WATCH_SOME, NULL, real.cuEventQuery(event));
}

CUresult cuStreamDestroy(CUstream stream) {
    watch_stream_ending(stream);
    return real.cuStreamDestroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    watch_stream_ending(stream);
    return real.cuStreamDestroy_v2(stream);
}

/* Others wait for what is recorded here, and may be what our grant waits for: nothing is held behind our gate then, nor any
 * more of what this thread launched. */
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
    ahead_never();
    if (!held_await())
        return GATE_REFUSAL;
    return real.cuIpcGetEventHandle(handle, event);
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
    ahead_never();
    if (!held_await())
        return GATE_REFUSAL;
    return real.cuIpcOpenEventHandle(event, handle);
}
