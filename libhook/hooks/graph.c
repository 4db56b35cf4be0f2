/*
 * graph.c - executable graphs, and captures.
 *
 * A graph launch is one unit of work, whatever is in it: its length is learned per executable graph. A destroyed one has
 * another generation, so that what was learned of it dies with it (addresses come back). An updated one has the same
 * nodes with other arguments, often before each launch: it is as long as before, until its launches teach otherwise.
 */
#include "libhook/driver/cuda_abi.h"
#include "libhook/driver/real.h"
#include "libhook/hooks/graph_pause.h"
#include "libhook/hooks/streams.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_begin.h"
#include "libhook/runtime/watch.h"

#define UPLOAD_GUESS_NS 20000
#define GENERATIONS 256
static uint32_t generation[GENERATIONS]; /* by a hash of the handle; any thread */

static inline uint32_t *generation_of(CUgraphExec exec) {
    uint64_t mixed = (uint64_t)(uintptr_t)exec * 0x9E3779B97F4A7C15ull;
    return &generation[mixed >> 56];
}

static inline uint64_t graph_key(CUgraphExec exec) {
    return estimate_mix(
        (uint64_t)(uintptr_t)exec, 0x6772617068, __atomic_load_n(generation_of(exec), __ATOMIC_RELAXED), 1);
}

static uint64_t launch_key(CUgraphExec exec, CUstream stream) {
    return graph_pause_launching(exec, stream) ? estimate_pausing(graph_key(exec)) : graph_key(exec);
}

static void forget(CUgraphExec exec) {
    graph_pause_ended(exec);
    __atomic_add_fetch(generation_of(exec), 1, __ATOMIC_RELAXED);
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    enum gate_answer answer = gate_begin(stream_legacy(stream), launch_key(graph, stream_legacy(stream)), 0, 0);
    if (answer == GATE_REFUSED)
        return GATE_REFUSAL;
    CUresult result = real.cuGraphLaunch(graph, stream);
    if (answer == GATE_PASSED) {
        graph_pause_launched(graph);
        gate_end();
    }
    return result;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    enum gate_answer answer = gate_begin(stream_per_thread(stream), launch_key(exec, stream_per_thread(stream)), 0, 0);
    if (answer == GATE_REFUSED)
        return GATE_REFUSAL;
    CUresult result = real.cuGraphLaunch_ptsz(exec, stream);
    if (answer == GATE_PASSED) {
        graph_pause_launched(exec);
        gate_end();
    }
    return result;
}

/* Uploading brings the graph's nodes to the device: little work, but work. Its memory may come with it. */
#define UPLOAD(stream, call)                                                                                           \
    do {                                                                                                               \
        enum gate_answer answer =                                                                                      \
            gate_begin(stream, estimate_mix(graph_key(graph), 0x75706c6f6164, 0, 1), 0, UPLOAD_GUESS_NS);              \
        if (answer == GATE_REFUSED)                                                                                    \
            return GATE_REFUSAL;                                                                                       \
        CUresult result = call;                                                                                        \
        if (answer == GATE_PASSED)                                                                                     \
            gate_end();                                                                                                \
        return result;                                                                                                 \
    } while (0)

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    UPLOAD(stream_legacy(stream), real.cuGraphUpload(graph, stream));
}

CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream) {
    UPLOAD(stream_per_thread(stream), real.cuGraphUpload_ptsz(graph, stream));
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CUresult result = real.cuGraphExecDestroy(exec);
    forget(exec);
    return result;
}

/* ---- captures: what is launched into one is no work, and nothing of ours may get into one ---- */

#define BEGIN(stream, call)                                                                                            \
    do {                                                                                                               \
        if (!watch_capture_beginning())                                                                                \
            return GATE_REFUSAL;                                                                                       \
        CUresult result = call;                                                                                        \
        watch_capture_begun(stream, result);                                                                           \
        return result;                                                                                                 \
    } while (0)

CUresult cuStreamBeginCapture(CUstream stream) {
    BEGIN(stream_legacy(stream), real.cuStreamBeginCapture(stream));
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
    BEGIN(stream_per_thread(stream), real.cuStreamBeginCapture_ptsz(stream));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    BEGIN(stream_legacy(stream), real.cuStreamBeginCapture_v2(stream, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    BEGIN(stream_per_thread(stream), real.cuStreamBeginCapture_v2_ptsz(stream, mode));
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUstreamCaptureMode mode) {
    BEGIN(stream_legacy(stream),
        real.cuStreamBeginCaptureToGraph(stream, graph, dependencies, dependency_data, num_dependencies, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
    const CUgraphEdgeData *dependency_data, size_t num_dependencies, CUstreamCaptureMode mode) {
    BEGIN(stream_per_thread(stream),
        real.cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, dependency_data, num_dependencies, mode));
}

CUresult cuStreamBeginRecaptureToGraph(
    CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *user_data) {
    BEGIN(stream_legacy(stream), real.cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, user_data));
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(
    CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *user_data) {
    BEGIN(stream_per_thread(stream), real.cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, user_data));
}

/* "CUDA in graphics": the work goes into a command list of a graphics API, which launches it. */
CUresult cuStreamBeginCaptureToCig(CUstream stream, CUstreamCigCaptureParams *params) {
    BEGIN(stream_legacy(stream), real.cuStreamBeginCaptureToCig(stream, params));
}

CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, CUstreamCigCaptureParams *params) {
    BEGIN(stream_per_thread(stream), real.cuStreamBeginCaptureToCig_ptsz(stream, params));
}

#define END(stream, call)                                                                                              \
    do {                                                                                                               \
        CUresult result = call;                                                                                        \
        watch_capture_ended(stream);                                                                                   \
        return result;                                                                                                 \
    } while (0)

CUresult cuStreamEndCaptureToCig(CUstream stream) {
    END(stream_legacy(stream), real.cuStreamEndCaptureToCig(stream));
}

CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream) {
    END(stream_per_thread(stream), real.cuStreamEndCaptureToCig_ptsz(stream));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    END(stream_legacy(stream), real.cuStreamEndCapture(stream, graph));
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    END(stream_per_thread(stream), real.cuStreamEndCapture_ptsz(stream, graph));
}
