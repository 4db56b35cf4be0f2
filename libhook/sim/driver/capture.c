#include "libhook/sim/driver/capture.h"

#include <stdlib.h>

#include "libhook/sim/driver/event.h"
#include "libhook/sim/driver/graph.h"
#include "libhook/sim/driver/tips.h"

struct capture {
    struct capture *next;
    uint64_t id;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus status;
    struct CUstream_st *origin;
    const struct thread *thread;
    struct CUgraph_st *graph;
    bool into_existing; /* the graph is the program's own */
};

static struct capture *all;

static void lock(void) {
    pthread_mutex_lock(&driver.lock);
}

static void unlock(void) {
    pthread_mutex_unlock(&driver.lock);
}

static struct capture *find(uint64_t id) {
    struct capture *capture = all;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

static void invalidate(struct capture *capture) {
    if (capture)
        capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

static bool blocks_legacy(const struct CUstream_st *stream) {
    return stream->kind != STREAM_LEGACY && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static void join(struct CUstream_st *stream, struct capture *capture) {
    atomic_store(&stream->capture, capture);
    if (blocks_legacy(stream))
        atomic_fetch_add(&stream->ctx->capturing_blocking, 1);
}

static void part(struct CUstream_st *stream) {
    atomic_store(&stream->capture, NULL);
    tips_free(&stream->tips);
    if (blocks_legacy(stream))
        atomic_fetch_sub(&stream->ctx->capturing_blocking, 1);
}

/* Take every stream out, forget the capture. The graph is the caller's. */
static void finish(struct capture *capture) {
    for (uint32_t i = 0; i < slab_used(SLAB_STREAM); i++) {
        struct CUstream_st *stream = slab_at(SLAB_STREAM, i);
        if (stream && atomic_load(&stream->capture) == capture)
            part(stream);
    }
    for (struct capture **at = &all; *at; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    atomic_fetch_sub(&driver.captures, 1);
    free(capture);
}

/* ---- what captures forbid ---- */

CUresult capture_guard_slow(void) {
    CUresult result = CUDA_SUCCESS;
    if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    lock();
    for (struct capture *c = all; c; c = c->next) {
        bool own = c->thread == &thread && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool anyones = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (c->status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !(own || anyones))
            continue;
        invalidate(c);
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    unlock();
    return result;
}

static CUresult invalidate_streams(struct CUctx_st *ctx, bool blocking_only, CUresult error) {
    CUresult result = CUDA_SUCCESS;
    lock();
    for (struct CUstream_st *stream = ctx->streams; stream; stream = stream->next) {
        struct capture *capture = atomic_load(&stream->capture);
        if (!capture || (blocking_only && !blocks_legacy(stream)))
            continue;
        invalidate(capture);
        result = error;
    }
    unlock();
    return result;
}

CUresult capture_check_legacy_slow(struct CUstream_st *stream) {
    if (!atomic_load(&stream->ctx->capturing_blocking))
        return CUDA_SUCCESS;
    return invalidate_streams(stream->ctx, true, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult capture_check_sync_slow(struct CUstream_st *stream) {
    if (stream->kind == STREAM_LEGACY)
        TRY(capture_check_legacy_slow(stream));
    lock();
    struct capture *capture = atomic_load(&stream->capture);
    invalidate(capture);
    unlock();
    return capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : capture_guard_slow();
}

CUresult capture_check_context_slow(struct CUctx_st *ctx) {
    TRY(invalidate_streams(ctx, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    return capture_guard_slow();
}

CUresult capture_check_event_slow(struct CUevent_st *event) {
    lock();
    invalidate(find(event->captured_id));
    unlock();
    return CUDA_ERROR_CAPTURED_EVENT;
}

void capture_abandon(struct CUstream_st *stream) {
    lock();
    struct capture *capture = atomic_load(&stream->capture);
    if (capture) {
        invalidate(capture);
        part(stream);
        if (capture->origin == stream) {
            if (!capture->into_existing)
                graph_end(capture->graph);
            finish(capture);
        }
    }
    unlock();
}

/* ---- what goes into captures ---- */

/* With the lock held: the stream's capture, if it is still good for something. */
static CUresult active(struct CUstream_st *stream, struct capture **out) {
    *out = atomic_load(&stream->capture);
    NEED(*out, CUDA_ERROR_ILLEGAL_STATE);
    return (*out)->status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult capture_op(struct CUstream_st *stream, const struct op *op) {
    struct capture *capture;
    struct CUgraphNode_st *node;
    lock();
    CUresult result = active(stream, &capture);
    if (!result) {
        const struct node_set *tips = stream->tips;
        result = graph_add(capture->graph, op, tips ? tips->node : NULL, tips ? tips->count : 0, &node);
        if (!result && !tips_set(&stream->tips, &node, 1))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    unlock();
    return result;
}

CUresult capture_record(struct CUstream_st *stream, struct CUevent_st *event, bool external) {
    struct capture *capture;
    if (external)
        return capture_op(stream, &(struct op){.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event});
    lock();
    CUresult result = active(stream, &capture);
    if (!result) {
        event->captured = capture;
        event->captured_id = capture->id;
        const struct node_set *tips = stream->tips;
        if (!tips_set(&event->tips, tips ? tips->node : NULL, tips ? tips->count : 0))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    unlock();
    return result;
}

bool capture_event_is_captured(const struct CUevent_st *event) {
    return event->captured != NULL;
}

CUresult capture_wait(struct CUstream_st *stream, struct CUevent_st *event, bool external) {
    CUresult result = CUDA_SUCCESS;
    if (external)
        return capture_op(stream, &(struct op){.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event});
    lock();
    struct capture *mine = atomic_load(&stream->capture);
    struct capture *other = event->captured ? find(event->captured_id) : NULL;
    if (mine && mine->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (event->captured && !other) {
        invalidate(mine); /* its capture is over: there is nothing to wait for any more */
        result = CUDA_ERROR_CAPTURED_EVENT;
    } else if (!other) {
        if (event->recorded) {
            invalidate(mine);
            result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
    } else if (other->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (stream->kind == STREAM_LEGACY) {
        invalidate(other);
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (mine && mine != other) {
        invalidate(mine);
        invalidate(other);
        result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    } else {
        if (!mine)
            join(stream, other);
        if (!tips_add(&stream->tips, event->tips->node, event->tips->count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    unlock();
    return result;
}

/* ---- begin, end, ask ---- */

static CUresult begin(
    CUstream handle, CUgraph into, const CUgraphNode *needs, size_t count, CUstreamCaptureMode mode, bool per_thread) {
    struct CUstream_st *stream;
    struct CUgraph_st *graph = NULL;
    CUresult result = CUDA_SUCCESS;
    NEED((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED && (needs || !count), CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    if (into)
        TRY(graph_of(into, &graph));
    NEED(stream->kind != STREAM_LEGACY, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    lock();
    struct capture *capture = NULL;
    if (atomic_load(&stream->capture)) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (!(capture = calloc(1, sizeof(*capture))) || !(graph = into ? graph : graph_make())) {
        free(capture);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        capture->id = atomic_fetch_add(&driver.next_id, 1) + 1;
        capture->mode = mode;
        capture->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        capture->origin = stream;
        capture->thread = &thread;
        capture->graph = graph;
        capture->into_existing = into != NULL;
        capture->next = all;
        all = capture;
        atomic_fetch_add(&driver.captures, 1);
        join(stream, capture);
        tips_set(&stream->tips, needs, count);
    }
    unlock();
    return result;
}

/* Do all other streams of the capture end in something that the origin waits for? */
static bool joined(const struct capture *capture) {
    const struct CUstream_st *origin = capture->origin;
    for (uint32_t i = 0; i < slab_used(SLAB_STREAM); i++) {
        struct CUstream_st *stream = slab_at(SLAB_STREAM, i);
        if (!stream || stream == origin || atomic_load(&stream->capture) != capture || !stream->tips)
            continue;
        for (size_t k = 0; k < stream->tips->count; k++)
            if (!graph_reaches(capture->graph, origin->tips, stream->tips->node[k]))
                return false;
    }
    return true;
}

static CUresult end(CUstream handle, CUgraph *out, bool per_thread) {
    struct CUstream_st *stream;
    CUresult result = CUDA_SUCCESS;
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    *out = NULL;
    TRY(stream_of(handle, per_thread, &stream));
    lock();
    struct capture *capture = atomic_load(&stream->capture);
    if (!capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture->origin != stream)
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread)
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (result) {
        invalidate(capture);
        unlock();
        return result;
    }
    if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (!result)
        *out = capture->graph;
    else if (!capture->into_existing)
        graph_end(capture->graph);
    finish(capture);
    unlock();
    return result;
}

static CUresult ask(CUstream handle, bool per_thread, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
    const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count) {
    struct CUstream_st *stream;
    NEED(status, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    NEED(stream->kind != STREAM_LEGACY || !atomic_load(&stream->ctx->capturing_blocking),
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    lock();
    const struct capture *capture = atomic_load(&stream->capture);
    *status = capture ? capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
    bool good = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id)
        *id = good ? capture->id : 0;
    if (graph)
        *graph = good ? capture->graph : NULL;
    if (edges)
        *edges = NULL;
    if (needs)
        *needs = good && stream->tips ? stream->tips->node : NULL;
    if (count)
        *count = good && stream->tips ? stream->tips->count : 0;
    unlock();
    return CUDA_SUCCESS;
}

static CUresult update(CUstream handle, bool per_thread, CUgraphNode *needs, size_t count, unsigned int flags) {
    struct CUstream_st *stream;
    struct capture *capture;
    NEED((needs || !count) && flags <= 1, CUDA_ERROR_INVALID_VALUE);
    TRY(stream_of(handle, per_thread, &stream));
    lock();
    CUresult result = active(stream, &capture);
    if (!result && !(flags ? tips_set(&stream->tips, needs, count) : tips_add(&stream->tips, needs, count)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    unlock();
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    driver_alive();
    NEED(mode && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode before = thread.capture_mode;
    thread.capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

#define FLAVOUR(suffix, own)                                                                                           \
    CUresult cuStreamBeginCapture_v2##suffix(CUstream stream, CUstreamCaptureMode mode) {                              \
        return begin(stream, NULL, NULL, 0, mode, own);                                                                \
    }                                                                                                                  \
    CUresult cuStreamBeginCapture##suffix(CUstream stream) {                                                           \
        return begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL, own);                                       \
    }                                                                                                                  \
    CUresult cuStreamBeginCaptureToGraph##suffix(CUstream stream, CUgraph graph, const CUgraphNode *needs,             \
        const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {                                        \
        (void)edges;                                                                                                   \
        NEED(graph, CUDA_ERROR_INVALID_VALUE);                                                                         \
        return begin(stream, graph, needs, count, mode, own);                                                          \
    }                                                                                                                  \
    CUresult cuStreamEndCapture##suffix(CUstream stream, CUgraph *graph) {                                             \
        return end(stream, graph, own);                                                                                \
    }                                                                                                                  \
    CUresult cuStreamIsCapturing##suffix(CUstream stream, CUstreamCaptureStatus *status) {                             \
        return ask(stream, own, status, NULL, NULL, NULL, NULL, NULL);                                                 \
    }                                                                                                                  \
    CUresult cuStreamGetCaptureInfo##suffix(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) {          \
        return ask(stream, own, status, id, NULL, NULL, NULL, NULL);                                                   \
    }                                                                                                                  \
    CUresult cuStreamGetCaptureInfo_v2##suffix(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,         \
        CUgraph *graph, const CUgraphNode **needs, size_t *count) {                                                    \
        return ask(stream, own, status, id, graph, needs, NULL, count);                                                \
    }                                                                                                                  \
    CUresult cuStreamGetCaptureInfo_v3##suffix(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,         \
        CUgraph *graph, const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count) {                     \
        return ask(stream, own, status, id, graph, needs, edges, count);                                               \
    }                                                                                                                  \
    CUresult cuStreamUpdateCaptureDependencies##suffix(                                                                \
        CUstream stream, CUgraphNode *needs, size_t count, unsigned int flags) {                                       \
        return update(stream, own, needs, count, flags);                                                               \
    }                                                                                                                  \
    CUresult cuStreamUpdateCaptureDependencies_v2##suffix(                                                             \
        CUstream stream, CUgraphNode *needs, const CUgraphEdgeData *edges, size_t count, unsigned int flags) {         \
        (void)edges;                                                                                                   \
        return update(stream, own, needs, count, flags);                                                               \
    }

FLAVOUR(, false)
FLAVOUR(_ptsz, true)
