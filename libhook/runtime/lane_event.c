/* lane_event.c - records events, and asks when they happened (lane_event.h). */
#include "libhook/runtime/lane_event.h"

#include "libhook/driver/real.h"
#include "libhook/runtime/captures.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/visit.h"

bool lane_event_captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!__atomic_load_n(&gate_captures, __ATOMIC_ACQUIRE))
        return false;
    return real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult lane_event_record(const struct visit *visit, CUevent *event, CUstream stream) {
    CUresult result = visit->lost ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS && !*event)
        result = real.cuEventCreate(event, CU_EVENT_DEFAULT);
    return result == CUDA_SUCCESS ? real.cuEventRecord(*event, stream) : result;
}

uint64_t lane_event_time(
    bool based, CUevent base_event, uint64_t base_ns, CUevent event, uint64_t now_ns, uint64_t *span_ns) {
    float milliseconds = 0;
    uint64_t end_ns = UINT64_MAX;

    *span_ns = 0;
    if (based && real.cuEventElapsedTime(&milliseconds, base_event, event) == CUDA_SUCCESS && milliseconds >= 0) {
        *span_ns = (uint64_t)((double)milliseconds * 1e6);
        end_ns = base_ns + *span_ns;
    }
    if (end_ns <= now_ns)
        return end_ns;
    now_ns = gate_now(); /* the thread may have stood still since: who took the old time would call the work short */
    return end_ns < now_ns ? end_ns : now_ns;
}
