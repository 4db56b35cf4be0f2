/*
 * pause.c - what makes a stream stand still without the GPU working: host functions, waits for a value, external
 * semaphores. None of them is held up at the gate, for others may wait for what they do.
 *
 * Work that was launched before must be seen to end before the pause begins. Else the pause would count as work of this
 * process, and the token could not be given back while it lasts. So it gets its event first.
 */
#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/watch.h"

#define BOTH(name, suffix, parameters, arguments)                                                                      \
    CUresult name##suffix parameters {                                                                                 \
        if (!watch_stream_pausing(stream_legacy(stream)))                                                              \
            return GATE_REFUSAL;                                                                                       \
        return real.name##suffix arguments;                                                                            \
    }                                                                                                                  \
    CUresult name##suffix##_ptsz parameters {                                                                          \
        if (!watch_stream_pausing(stream_per_thread(stream)))                                                          \
            return GATE_REFUSAL;                                                                                       \
        return real.name##suffix##_ptsz arguments;                                                                     \
    }

BOTH(cuLaunchHostFunc, , (CUstream stream, CUhostFn fn, void *user_data), (stream, fn, user_data))
BOTH(cuLaunchHostFunc, _v2, (CUstream stream, CUhostFn fn, void *user_data, unsigned int sync_mode),
    (stream, fn, user_data, sync_mode))
BOTH(cuStreamAddCallback, , (CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags),
    (stream, callback, user_data, flags))

/* A wait for an event holds nothing up by itself: but what comes behind it may begin late, as its length is not to tell. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    watch_stream_waiting(stream_legacy(stream));
    return real.cuStreamWaitEvent(stream, event, flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
    watch_stream_waiting(stream_per_thread(stream));
    return real.cuStreamWaitEvent_ptsz(stream, event, flags);
}

#define VALUE(name, type)                                                                                              \
    BOTH(name, , (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), (stream, addr, value, flags))    \
    BOTH(name, _v2, (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), (stream, addr, value, flags))

VALUE(cuStreamWaitValue32, cuuint32_t)
VALUE(cuStreamWaitValue64, cuuint64_t)

#define BATCH(suffix)                                                                                                  \
    BOTH(cuStreamBatchMemOp, suffix,                                                                                   \
        (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *param_array, unsigned int flags),              \
        (stream, count, param_array, flags))
BATCH()
BATCH(_v2)

BOTH(cuWaitExternalSemaphoresAsync, ,
    (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count,
        CUstream stream),
    (semaphores, params, count, stream))
