#include "libhook/sim/driver/stream.h"

#include <stdlib.h>

#include "libhook/sim/driver/queue.h"

struct CUstream_st *stream_make(struct CUctx_st *ctx, enum stream_kind kind, unsigned int flags, int priority) {
    struct CUstream_st *stream = slab_take(SLAB_STREAM, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->ctx = ctx;
    stream->kind = kind;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = atomic_fetch_add(&driver.next_id, 1) + 1;
    stream->next = ctx->streams;
    ctx->streams = stream;
    return stream;
}

void stream_end(struct CUstream_st *stream) {
    for (struct CUstream_st **at = &stream->ctx->streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    queue_leave(stream);
    slab_give(SLAB_STREAM, stream);
}

/* The per-thread streams end with their thread. */
static void end_of_thread(void *unused) {
    (void)unused;
    if (!driver.initialised)
        return;
    pthread_mutex_lock(&driver.lock);
    for (uint32_t i = 0; i < slab_used(SLAB_STREAM); i++) {
        struct CUstream_st *stream = slab_at(SLAB_STREAM, i);
        if (stream && stream->kind == STREAM_THREAD && stream->thread == &thread)
            stream_end(stream);
    }
    pthread_mutex_unlock(&driver.lock);
}

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

static void make_thread_key(void) {
    pthread_key_create(&thread_key, end_of_thread);
}

/* This thread's own stream in the context. */
static CUresult thread_stream(struct CUctx_st *ctx, struct CUstream_st **out) {
    struct CUstream_st *last = thread.streams;
    if (last && slab_live(&last->head) && last->ctx == ctx && last->kind == STREAM_THREAD) {
        *out = last;
        return CUDA_SUCCESS;
    }
    pthread_once(&thread_key_once, make_thread_key);
    pthread_setspecific(thread_key, &thread);
    pthread_mutex_lock(&driver.lock);
    struct CUstream_st *stream = ctx->streams;
    while (stream && !(stream->kind == STREAM_THREAD && stream->thread == &thread))
        stream = stream->next;
    if (!stream && (stream = stream_make(ctx, STREAM_THREAD, 0, 0)))
        stream->thread = &thread;
    pthread_mutex_unlock(&driver.lock);
    thread.streams = *out = stream;
    return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stream_of(CUstream handle, bool per_thread, struct CUstream_st **out) {
    struct CUctx_st *ctx;
    if ((uintptr_t)handle > 2) {
        INIT();
        NEED(slab_has(SLAB_STREAM, handle), CUDA_ERROR_INVALID_HANDLE);
        *out = handle;
        return CUDA_SUCCESS;
    }
    TRY(context_current(&ctx));
    if (handle == CU_STREAM_PER_THREAD || (!handle && per_thread))
        return thread_stream(ctx, out);
    *out = ctx->legacy;
    return CUDA_SUCCESS;
}
