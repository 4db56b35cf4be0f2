/*
 * context.h - which context, and so which device, the calling thread launches on; cheap enough for the launch path.
 *
 * Asking the driver costs two calls. So each thread keeps the last answer, and every call that can change it (made,
 * set, pushed, popped, destroyed, reset: all of them are hooked) makes it stale. A change of the current context does
 * so in the own thread, a context's end in all threads. A stale or empty answer is asked anew at the next use. The
 * launch path does not look here: what makes an answer stale takes the lane away that it would find (gate_thread.h).
 */
#ifndef GEMINI_RUNTIME_CONTEXT_H
#define GEMINI_RUNTIME_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/peek.h"
#include "libhook/driver/cuda_types.h"
#include "libhook/runtime/gate_thread.h"

struct context_now {
    CUcontext context; /* NULL: this thread has none; the driver will say so itself */
    int ordinal;       /* CUDA ordinal, which is `device` in agent.h; -1 without a context */
    uint32_t round;    /* valid while equal to context_round; 0: stale */
    CUdevice device;   /* as the driver numbers it */
};

#pragma GCC visibility push(hidden)

/* The calling thread's answer; written by that thread only. */
extern __thread struct context_now context_cached __attribute__((tls_model(TLS_MODEL)));

/* Grows whenever a context of the process ends; never 0. */
extern uint32_t context_round;

const struct context_now *context_look_up(void);

/* Is the answer at hand? */
static inline bool context_is_known(void) {
    return context_cached.round == __atomic_load_n(&context_round, __ATOMIC_RELAXED);
}

/* Never NULL. May call the driver, and may be called during a stream capture. */
static inline const struct context_now *context_current(void) {
    if (__builtin_expect(context_is_known(), 1))
        return &context_cached;
    return context_look_up();
}

/* Where work in this stream runs: in the stream's own context, whichever is current. */
struct context_now context_of_stream(CUstream stream);

/* The calling thread's current context may have changed. Its next launch looks whether it has (gate_slow.c). */
static inline void context_changed(void) {
    context_cached.round = 0;
    POKE(gate_self->stream, NULL);
}

/* A context ended: no thread's answer holds any more. */
void context_ended(void);

#pragma GCC visibility pop

#endif
